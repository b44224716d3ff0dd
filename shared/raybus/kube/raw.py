"""Raw JSON requests to an API server over one pool of connections.

Every request has a deadline and passes the gate (raybus.kube.gate), which orders and bounds what is in flight. Streams (watches,
logs) do not: they are few and long.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime as dt
from collections.abc import AsyncGenerator, Mapping
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote, urlencode

import aiohttp
import orjson
from yarl import URL

from raybus.kube import errors
from raybus.kube.config import ConfigError, KubeConfig
from raybus.kube.gate import Gate, Lane
from raybus.kube.limit import AdaptiveLimit
from raybus.kube.lines import LineSplitter, LineTooLongError
from raybus.kube.meter import Meter, NoMeter
from raybus.kube.reach import ASK_TIMEOUT_S, Reach

Query = Mapping[str, str | int | bool]

TIMEOUT_S = 30.0
CONNECT_TIMEOUT_S = 10.0
REFRESH_TIMEOUT_S = 60.0
REFRESH_AGAIN = dt.timedelta(seconds=10)
KEEP_ALIVE_S = 45.0  # shorter than the idle time after which API servers and load balancers close
LINE_MAX = 2**24  # bytes; an object is never larger

JSON = "application/json"


class RawClient:
    """Requests and streams by path; raybus.kube.client.KubeClient adds the verbs of objects."""

    def __init__(
        self,
        config: KubeConfig,
        *,
        user_agent: str = "raybus",
        limit: AdaptiveLimit | None = None,
        meter: Meter | None = None,
    ) -> None:
        self._config = config
        self._user_agent = user_agent
        self._gate = Gate(limit or AdaptiveLimit())
        self._session: aiohttp.ClientSession | None = None
        self._refreshing = asyncio.Lock()
        self._meter = meter or NoMeter()
        self.reach = Reach()

    @property
    def config(self) -> KubeConfig:
        return self._config

    @property
    def gate(self) -> Gate:
        return self._gate

    async def __aenter__(self) -> Self:
        # The gate bounds requests; streams come on top, so the pool itself has no limit.
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S)
        self._session = aiohttp.ClientSession(
            connector=connector,
            trust_env=False,
            skip_auto_headers=("Accept-Encoding",),  # compression costs both sides more than it saves inside a cluster
            headers={"Accept": JSON, "User-Agent": self._user_agent},
            read_bufsize=2**18,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    # Requests

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: Any = None,
        content_type: str | None = None,
        timeout_s: float | None = None,
        lane: Lane = Lane.FIRST,
    ) -> dict[str, Any]:
        """Send `body` (JSON-like, or bytes as they are) and return the decoded answer; {} for an empty one.

        Raises KubeError; NoAnswer when the outcome is unknown. `timeout_s` covers waiting, sending and the answer.
        """
        answer = await self.request_bytes(
            method, path, query=query, body=body, content_type=content_type, timeout_s=timeout_s, lane=lane
        )
        if not answer:
            return {}
        try:
            decoded: dict[str, Any] = orjson.loads(answer)
        except orjson.JSONDecodeError as error:
            raise errors.KubeError(200, "NotJSON", f"{method} {path}: the answer is not JSON: {error}") from error
        return decoded

    async def request_bytes(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: Any = None,
        content_type: str | None = None,
        timeout_s: float | None = None,
        lane: Lane = Lane.FIRST,
    ) -> bytes:
        """As `request`, with the answer's body as it came."""
        data = body if body is None or isinstance(body, bytes) else orjson.dumps(body)
        sent = False
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            async with asyncio.timeout(timeout_s or TIMEOUT_S), self._gate.passing(lane):
                await self._refresh_if_due()
                sent = True
                sent_at = clock()
                self._meter.waited(method, sent_at - began)
                code, answer, retry_after = await self._tried(method, path, query, data, content_type)
                self._gate.limit.answered(clock() - sent_at, self._gate.in_flight)
        except TimeoutError as error:
            why = errors.NoAnswer(f"{method} {path}: no answer in {timeout_s or TIMEOUT_S:g} s", sent=sent)
            if sent:  # else it waited for a place, which says nothing of the server
                self.reach.failed(why.message, since=began, now=clock())
            raise why from error
        except (aiohttp.ClientError, OSError) as error:
            raise self._silent(f"{method} {path}", error, began) from error
        self.reach.answered(code, f"{method} {path}", since=began, now=clock())
        if code < 300:
            return answer
        failure = errors.from_response(code, answer, retry_after)
        if code in (429, 503):
            self._gate.limit.overloaded(asyncio.get_running_loop().time(), failure.retry_after_s)
        raise failure

    async def _tried(
        self, method: str, path: str, query: Query | None, data: bytes | None, content_type: str | None
    ) -> tuple[int, bytes, str | None]:
        """Once, and once more with new credentials if those at hand were refused and there are others."""
        used = self._config
        found = await self._exchange(method, path, query, data, content_type)
        if found[0] == 401 and await self._refresh(used):
            self._meter.repeated(method, 401)
            found = await self._exchange(method, path, query, data, content_type)
        return found

    async def _exchange(
        self, method: str, path: str, query: Query | None, data: bytes | None, content_type: str | None
    ) -> tuple[int, bytes, str | None]:
        clock = asyncio.get_running_loop().time
        began, status = clock(), 0
        try:
            async with self._open(
                method, path, query, data=data, content_type=content_type, timeout=_NO_TIMEOUT
            ) as response:
                answer = await response.read()
                status = response.status
                self._meter.carried(method, len(data or b""), len(answer))
                return status, answer, response.headers.get("Retry-After")
        finally:
            self._meter.answered(method, status, clock() - began)

    def _open(
        self,
        method: str,
        path: str,
        query: Query | None,
        *,
        data: bytes | None = None,
        content_type: str | None = None,
        timeout: aiohttp.ClientTimeout,
    ) -> contextlib.AbstractAsyncContextManager[aiohttp.ClientResponse]:
        if self._session is None:
            raise RuntimeError("the client is used outside `async with`")
        config = self._config
        headers: dict[str, str] = {}
        if config.authorization:
            headers["Authorization"] = config.authorization
        if data is not None:
            headers["Content-Type"] = content_type or JSON
        return self._session.request(
            method,
            _url(config.server, path, query),
            data=data,
            headers=headers,
            ssl=config.tls if config.tls is not None else True,
            server_hostname=config.server_hostname,
            proxy=config.proxy,
            timeout=timeout,
            allow_redirects=False,
        )

    # Credentials

    async def _refresh_if_due(self) -> None:
        due = self._config.refresh_at
        now = dt.datetime.now(dt.UTC)
        if due is None or now < due:
            return
        used = self._config
        try:
            await self._refresh(used)
        except errors.Unauthorized:
            # What we have may still be good for a while; the server says so if it is not.
            self._config = dataclasses.replace(used, refresh_at=now + REFRESH_AGAIN)

    async def _refresh(self, used: KubeConfig) -> bool:
        """Read the credentials again, once for all requests that were refused together; False if there is no way to."""
        async with self._refreshing:
            if self._config is not used:
                return True
            if used.refresh is None:
                return False
            try:
                async with asyncio.timeout(REFRESH_TIMEOUT_S):
                    self._config = await asyncio.to_thread(used.refresh)
            except (ConfigError, TimeoutError) as error:
                raise errors.Unauthorized(
                    401, "Unauthorized", str(error) or "reading credentials took too long"
                ) from error
            return True

    @contextlib.asynccontextmanager
    async def open_stream(
        self, path: str, query: Query | None = None, *, idle_timeout_s: float | None = None, line_max: int = LINE_MAX
    ) -> AsyncGenerator[AsyncGenerator[bytes]]:
        """A long answer (a watch, a log that is followed): entered once the server has accepted, left to hang up.

        The value gives lines without their line feed as they come, until the server ends. `idle_timeout_s` without a byte
        raises NoAnswer, a line of more than `line_max` bytes KubeError.
        """
        timeout = aiohttp.ClientTimeout(sock_connect=CONNECT_TIMEOUT_S, sock_read=idle_timeout_s)
        clock = asyncio.get_running_loop().time
        began = clock()
        status = 0
        try:
            await self._refresh_if_due()
            for attempt in (1, 2):
                used = self._config
                async with self._open("GET", path, query, timeout=timeout) as response:
                    status = response.status
                    self._meter.answered("GET", status, clock() - began)
                    if response.status == 401 and attempt == 1 and await self._refresh(used):
                        self._meter.repeated("GET", 401)
                        continue
                    self.reach.answered(response.status, f"GET {path}", since=began, now=clock())
                    if response.status >= 300:
                        retry_after = response.headers.get("Retry-After")
                        raise errors.from_response(response.status, await response.content.read(2**20), retry_after)
                    async with contextlib.aclosing(self._lines(response.content, line_max)) as lines:
                        yield lines
                    return
        except LineTooLongError as error:
            raise errors.KubeError(200, "LineTooLong", f"GET {path}: {error}") from error
        except (aiohttp.ClientError, OSError) as error:  # TimeoutError is an OSError
            if not status:
                self._meter.answered("GET", status, clock() - began)
            raise self._silent(f"GET {path}", error, began) from error

    async def stream_lines(
        self, path: str, query: Query | None = None, *, idle_timeout_s: float | None = None
    ) -> AsyncGenerator[bytes]:
        """The lines of open_stream, for those who need not know when it opened. Close it (contextlib.aclosing) to hang up."""
        async with self.open_stream(path, query, idle_timeout_s=idle_timeout_s) as lines:
            async for line in lines:
                yield line

    async def _lines(self, content: aiohttp.StreamReader, line_max: int) -> AsyncGenerator[bytes]:
        splitter = LineSplitter(line_max)
        clock = asyncio.get_running_loop().time
        async for chunk in content.iter_any():
            self.reach.heard(clock())
            for line in splitter.feed(chunk):
                yield line
        if rest := splitter.rest():
            yield rest

    # Reach

    async def ask(self) -> None:
        """Whether the server answers at all, past the gate: `reach` knows afterwards. Raises KubeError if it does not."""
        clock = asyncio.get_running_loop().time
        began = clock()
        what = "GET /version"
        try:
            async with asyncio.timeout(ASK_TIMEOUT_S):
                await self._refresh_if_due()
                code, answer, _ = await self._tried("GET", "/version", None, None, None)
        except TimeoutError as error:
            why = errors.NoAnswer(f"{what}: no answer in {ASK_TIMEOUT_S:g} s")
            self.reach.failed(why.message, since=began, now=clock())
            raise why from error
        except errors.Unauthorized as error:
            self.reach.failed(error.message, since=began, now=clock())
            raise
        except (aiohttp.ClientError, OSError) as error:
            raise self._silent(what, error, began) from error
        self.reach.answered(code, what, since=began, now=clock())
        if code >= 300:
            raise errors.from_response(code, answer)

    def _silent(self, what: str, error: Exception, began: float) -> errors.NoAnswer:
        why = _no_answer(what, error)
        self.reach.failed(why.message, since=began, now=asyncio.get_running_loop().time())
        return why


_NO_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S)  # the request's own deadline counts


def _no_answer(what: str, error: Exception) -> errors.NoAnswer:
    """In words for people, without the library's own objects in them."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        refused = f"the certificate of {error.host}:{error.port} is not accepted: {error.certificate_error}"
        return errors.NoAnswer(f"{what}: {refused}", sent=False)
    if isinstance(error, aiohttp.ClientConnectorError):
        reason = error.os_error.strerror or str(error.os_error)
        return errors.NoAnswer(f"{what}: cannot connect to {error.host}:{error.port}: {reason}", sent=False)
    if isinstance(error, aiohttp.ClientPayloadError | aiohttp.ServerDisconnectedError):
        return errors.NoAnswer(f"{what}: the server closed the connection")
    if isinstance(error, TimeoutError):
        return errors.NoAnswer(f"{what}: nothing came for too long")
    return errors.NoAnswer(f"{what}: {error or type(error).__name__}")


def _url(server: str, path: str, query: Query | None) -> URL:
    text = server + quote(path, safe="/:")
    if query:
        plain = {key: _plain(value) for key, value in query.items()}
        text += "?" + urlencode(plain)
    return URL(text, encoded=True)


def _plain(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
