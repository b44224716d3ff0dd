"""Raw JSON requests to an API server over one pool of connections.

Every request has a deadline and passes the gate (raybus.kube.gate), which orders and bounds what is in flight. Streams (watches,
logs) do not: they are few and long.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime as dt
from collections.abc import AsyncGenerator, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Self
from urllib.parse import quote, urlencode

import aiohttp
import orjson
from yarl import URL

from raybus.domain import kinds
from raybus.domain.kinds import Kind
from raybus.kube import errors
from raybus.kube.config import ConfigError, KubeConfig
from raybus.kube.gate import Gate, Lane
from raybus.kube.limit import AdaptiveLimit
from raybus.kube.lines import LineSplitter

Json = Mapping[str, Any]
Query = Mapping[str, str | int | bool]

TIMEOUT_S = 30.0
CONNECT_TIMEOUT_S = 10.0
REFRESH_TIMEOUT_S = 60.0
REFRESH_AGAIN = dt.timedelta(seconds=10)
KEEP_ALIVE_S = 45.0  # shorter than the idle time after which API servers and load balancers close
PAGE_SIZE = 500
PAGES_MAX = 20_000

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"


class KubeClient:
    """`async with KubeClient(config) as client`. Answers are the server's objects as dicts; refusals raise KubeError."""

    def __init__(self, config: KubeConfig, *, user_agent: str = "raybus", limit: AdaptiveLimit | None = None) -> None:
        self._config = config
        self._user_agent = user_agent
        self._gate = Gate(limit or AdaptiveLimit())
        self._session: aiohttp.ClientSession | None = None
        self._refreshing = asyncio.Lock()
        self._cluster_uid = ""

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
        try:
            async with asyncio.timeout(timeout_s or TIMEOUT_S), self._gate.passing(lane):
                await self._refresh_if_due()
                for attempt in (1, 2):
                    used = self._config
                    sent = True
                    code, answer, retry_after = await self._exchange(method, path, query, data, content_type)
                    if code != 401 or attempt == 2 or not await self._refresh(used):
                        break
        except TimeoutError as error:
            raise errors.NoAnswer(f"{method} {path}: no answer in {timeout_s or TIMEOUT_S:g} s", sent=sent) from error
        except aiohttp.ClientConnectorError as error:
            raise errors.NoAnswer(f"{method} {path}: {error}", sent=False) from error
        except (aiohttp.ClientError, OSError) as error:
            raise errors.NoAnswer(f"{method} {path}: {error or type(error).__name__}") from error
        if code < 300:
            return answer
        failure = errors.from_response(code, answer, retry_after)
        if code in (429, 503):
            self._gate.limit.overloaded(asyncio.get_running_loop().time(), failure.retry_after_s)
        raise failure

    async def _exchange(
        self, method: str, path: str, query: Query | None, data: bytes | None, content_type: str | None
    ) -> tuple[int, bytes, str | None]:
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with self._open(
            method, path, query, data=data, content_type=content_type, timeout=_NO_TIMEOUT
        ) as response:
            answer = await response.read()
            self._gate.limit.answered(loop.time() - began, self._gate.in_flight)
            return response.status, answer, response.headers.get("Retry-After")

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
            raise RuntimeError("KubeClient is used outside `async with`")
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

    # Objects

    async def get(
        self, kind: Kind, namespace: str | None, name: str, *, timeout_s: float | None = None
    ) -> dict[str, Any]:
        return await self.request("GET", kind.path(namespace, name), timeout_s=timeout_s)

    async def list_pages(
        self,
        kind: Kind,
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
        page_size: int = PAGE_SIZE,
        timeout_s: float | None = None,
    ) -> AsyncGenerator[tuple[list[dict[str, Any]], str]]:
        """Pages of objects with the list's resourceVersion; together one consistent snapshot. Items get apiVersion and kind.

        Raises Expired when the snapshot is gone before the last page was read: begin again.
        """
        query: dict[str, str | int | bool] = {"limit": page_size}
        if label_selector:
            query["labelSelector"] = label_selector
        if field_selector:
            query["fieldSelector"] = field_selector
        for _ in range(PAGES_MAX):
            page = await self.request("GET", kind.path(namespace), query=query, timeout_s=timeout_s)
            items: list[dict[str, Any]] = page.get("items") or []
            for item in items:  # the server leaves these two out of the items of built-in kinds
                item.setdefault("apiVersion", kind.api_version)
                item.setdefault("kind", kind.kind)
            yield items, page["metadata"].get("resourceVersion", "")
            token = page["metadata"].get("continue")
            if not token:
                return
            query["continue"] = token
        raise errors.KubeError(0, "TooLong", f"list of {kind.plural}: more than {PAGES_MAX} pages")

    async def list_all(
        self, kind: Kind, namespace: str | None = None, *, label_selector: str = "", field_selector: str = ""
    ) -> list[dict[str, Any]]:  # fmt: skip
        """All objects of a kind; meant for few."""
        pages = self.list_pages(kind, namespace, label_selector=label_selector, field_selector=field_selector)
        return [item async for items, _ in pages for item in items]

    async def create(
        self, kind: Kind, body: Json, *, namespace: str | None = None, query: Query | None = None,
        timeout_s: float | None = None, lane: Lane = Lane.FIRST,
    ) -> dict[str, Any]:  # fmt: skip
        """POST; the namespace is the body's unless given."""
        namespace = namespace or body["metadata"].get("namespace")
        path = kind.path(namespace)
        return await self.request("POST", path, query=query, body=body, timeout_s=timeout_s, lane=lane)

    async def replace(self, kind: Kind, body: Json, *, subresource: str | None = None) -> dict[str, Any]:
        """PUT under the body's own resourceVersion."""
        meta = body["metadata"]
        return await self.request("PUT", kind.path(meta.get("namespace"), meta["name"], subresource), body=body)

    async def merge_patch(
        self, kind: Kind, namespace: str | None, name: str, patch: Json, *, uid: str | None = None,
        resource_version: str | None = None, subresource: str | None = None, timeout_s: float | None = None,
        lane: Lane = Lane.FIRST,
    ) -> dict[str, Any]:  # fmt: skip
        """Merge patch; `uid` and `resource_version` are preconditions (Conflict). Status: subresource="status"."""
        body = with_preconditions(patch, uid, resource_version)
        path = kind.path(namespace, name, subresource)
        return await self.request("PATCH", path, body=body, content_type=MERGE_PATCH, timeout_s=timeout_s, lane=lane)

    async def json_patch(
        self, kind: Kind, namespace: str | None, name: str, operations: Sequence[Json], *, uid: str | None = None,
        resource_version: str | None = None, subresource: str | None = None, timeout_s: float | None = None,
        lane: Lane = Lane.FIRST,
    ) -> dict[str, Any]:  # fmt: skip
        """JSON patch; preconditions become `test` operations, whose failure the server calls Invalid (422)."""
        tests = [
            {"op": "test", "path": f"/metadata/{field}", "value": value}
            for field, value in (("uid", uid), ("resourceVersion", resource_version))
            if value is not None
        ]
        path = kind.path(namespace, name, subresource)
        body = [*tests, *operations]
        return await self.request("PATCH", path, body=body, content_type=JSON_PATCH, timeout_s=timeout_s, lane=lane)

    async def delete(
        self, kind: Kind, namespace: str | None, name: str, *, uid: str | None = None,
        resource_version: str | None = None, propagation: Literal["Background", "Foreground", "Orphan"] = "Background",
        grace_seconds: int | None = None, timeout_s: float | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """DELETE; preconditions raise Conflict. The answer is the object, or a Status once it is gone."""
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        wanted = {"uid": uid, "resourceVersion": resource_version}
        if preconditions := {field: value for field, value in wanted.items() if value is not None}:
            options["preconditions"] = preconditions
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        return await self.request("DELETE", kind.path(namespace, name), body=options, timeout_s=timeout_s)

    async def cluster_uid(self) -> str:
        """What identifies this cluster for good: the uid of its namespace kube-system."""
        if not self._cluster_uid:
            system = await self.get(kinds.NAMESPACE, None, "kube-system")
            self._cluster_uid = system["metadata"]["uid"]
        return self._cluster_uid

    # Streams

    async def stream_lines(
        self, path: str, query: Query | None = None, *, idle_timeout_s: float | None = None, line_max: int = 2**24
    ) -> AsyncGenerator[bytes]:
        """Lines of a long answer (a watch, a log that is followed), without their line feed, as they come.

        Ends when the server ends it. `idle_timeout_s` without a byte raises NoAnswer; a longer line than `line_max` bytes
        raises KubeError. Close the iterator (contextlib.aclosing) to hang up.
        """
        timeout = aiohttp.ClientTimeout(sock_connect=CONNECT_TIMEOUT_S, sock_read=idle_timeout_s)
        splitter = LineSplitter(line_max)
        try:
            await self._refresh_if_due()
            for attempt in (1, 2):
                used = self._config
                async with self._open("GET", path, query, timeout=timeout) as response:
                    if response.status == 401 and attempt == 1 and await self._refresh(used):
                        continue
                    if response.status >= 300:
                        retry_after = response.headers.get("Retry-After")
                        raise errors.from_response(response.status, await response.content.read(2**20), retry_after)
                    async for chunk in response.content.iter_any():
                        for line in splitter.feed(chunk):
                            yield line
                    if rest := splitter.rest():
                        yield rest
                    return
        except ValueError as error:
            raise errors.KubeError(200, "LineTooLong", f"GET {path}: {error}") from error
        except aiohttp.ClientConnectorError as error:
            raise errors.NoAnswer(f"GET {path}: {error}", sent=False) from error
        except (aiohttp.ClientError, OSError) as error:  # TimeoutError is an OSError
            raise errors.NoAnswer(f"GET {path}: {error or type(error).__name__}") from error


_NO_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S)  # the request's own deadline counts


def with_preconditions(patch: Json, uid: str | None, resource_version: str | None) -> Json:
    """The merge patch with metadata that the server compares: a mismatch is a Conflict."""
    wanted = {"uid": uid, "resourceVersion": resource_version}
    metadata = {field: value for field, value in wanted.items() if value is not None}
    if not metadata:
        return patch
    return {**patch, "metadata": {**(patch.get("metadata") or {}), **metadata}}


def _url(server: str, path: str, query: Query | None) -> URL:
    text = server + quote(path, safe="/:")
    if query:
        plain = {key: _plain(value) for key, value in query.items()}
        text += "?" + urlencode(plain)
    return URL(text, encoded=True)


def _plain(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
