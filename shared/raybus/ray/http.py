"""The way to a dashboard: straight to its address, or through the API server's Service proxy.

One pool of connections serves all dashboards. Every request has a total deadline, so a dashboard that hangs costs its own
probe that long and nobody else anything.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import quote

import aiohttp
import orjson
from yarl import URL

from raybus.ray.errors import NoAnswer, Refused

OnAnswer = Callable[[str, int, float], None]
"""Gets of each request its method, the status (0: no answer) and the seconds it took; it counts, and must not raise."""

DIRECT_TIMEOUT_S = 2.0
PROXY_TIMEOUT_S = 10.0
ANSWER_MAX = 4 * 2**20  # bytes
BODY_MAX = 64 * 2**20  # of a job's whole log, which comes in one answer
AUTH_HEADER = "x-ray-authorization"  # a header of its own: Authorization belongs to the API server in front


class Answer(NamedTuple):
    status: int
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode(errors="replace")


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How the API server is reached: its address and, per request, what proves who we are. Secrets stay out of repr."""

    server: str
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    server_hostname: str | None = None
    authorization: str = field(default="", repr=False)
    proxy: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Dashboard:
    """One dashboard. `url` has scheme and no trailing slash; `access` is set when the API server stands in between."""

    url: str
    token: str = field(default="", repr=False)
    timeout_s: float = DIRECT_TIMEOUT_S
    access: Access | None = None


class Dashboards:
    """`async with Dashboards(...) as ray`; `at` says how a cluster's dashboard is reached, `request` asks it.

    `access` is given when dashboards are reached through the API server; it is called per request, for tokens that expire.
    Without it HTTP_PROXY and NO_PROXY of the environment count.
    """

    def __init__(
        self,
        *,
        access: Callable[[], Access] | None = None,
        connections: int = 256,
        on_answer: OnAnswer = lambda _method, _status, _seconds: None,
    ) -> None:
        self._access = access
        self._on_answer = on_answer
        self._connections = connections
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(limit=self._connections, limit_per_host=8 if self._access is None else 0)
        self._session = aiohttp.ClientSession(connector=connector, trust_env=self._access is None)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    def at(self, address: str, *, namespace: str, service: str, token: str = "") -> Dashboard:
        """The dashboard at `address` (host:port), which is also port `dashboard` of that Service."""
        if self._access is None:
            return Dashboard(url=f"http://{address}", token=token)
        access = self._access()
        path = f"/api/v1/namespaces/{quote(namespace)}/services/{quote(service)}:dashboard/proxy"
        return Dashboard(url=access.server + path, token=token, timeout_s=PROXY_TIMEOUT_S, access=access)

    async def request(
        self,
        dashboard: Dashboard,
        method: str,
        path: str,
        *,
        body: Any = None,
        timeout_s: float | None = None,
        answer_max: int = ANSWER_MAX,
    ) -> Answer:
        """Send `body` as JSON (None: an empty one); whatever is answered, up to `answer_max` bytes. Raises NoAnswer, Refused."""
        limit_s = timeout_s or dashboard.timeout_s
        asked = f"{method} {dashboard.url}{path}"
        data = b"" if body is None else orjson.dumps(body)
        clock = asyncio.get_running_loop().time
        began, status = clock(), 0
        try:
            async with asyncio.timeout(limit_s), self._open(dashboard, method, path, data) as response:
                answer = await _read(response, asked, answer_max)
                status = response.status
                return Answer(status, answer)
        except TimeoutError as error:
            raise NoAnswer(f"{asked}: no answer in {limit_s:g} s") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise NoAnswer(f"{asked}: {_why(error)}") from error
        finally:
            self._on_answer(method, status, clock() - began)

    def websocket(
        self, dashboard: Dashboard, path: str, *, idle_timeout_s: float | None
    ) -> AbstractAsyncContextManager[aiohttp.ClientWebSocketResponse]:
        """Text frames under `path`; more than `idle_timeout_s` without one ends in a TimeoutError."""
        return self._ready().ws_connect(
            URL(dashboard.url + path, encoded=True),
            headers=_headers(dashboard),
            timeout=aiohttp.ClientWSTimeout(ws_receive=idle_timeout_s, ws_close=dashboard.timeout_s),
            max_msg_size=BODY_MAX,
            **_way(dashboard),
        )

    def _open(
        self, dashboard: Dashboard, method: str, path: str, data: bytes
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        headers = _headers(dashboard)
        if method != "GET":
            headers["Content-Type"] = "application/json"
        return self._ready().request(
            method,
            URL(dashboard.url + path, encoded=True),
            data=data or None,
            headers=headers,
            # A dashboard must not send the operator's rights about on the API server.
            allow_redirects=dashboard.access is None,
            **_way(dashboard),
        )

    def _ready(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("Dashboards is used outside `async with`")
        return self._session


def _why(error: Exception) -> str:
    """In words for people, without the library's own objects in them."""
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"cannot connect: {error.os_error.strerror or error.os_error}"
    return str(error) or type(error).__name__


def _headers(dashboard: Dashboard) -> dict[str, str]:
    headers = {AUTH_HEADER: f"Bearer {dashboard.token}"} if dashboard.token else {}
    if dashboard.access is not None and dashboard.access.authorization:
        headers["Authorization"] = dashboard.access.authorization
    return headers


def _way(dashboard: Dashboard) -> Mapping[str, Any]:
    access = dashboard.access
    if access is None:
        return {}
    tls = access.tls if access.tls is not None else True
    return {"ssl": tls, "server_hostname": access.server_hostname, "proxy": access.proxy}


async def _read(response: aiohttp.ClientResponse, asked: str, limit: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for chunk in response.content.iter_any():
        size += len(chunk)
        if size > limit:
            raise Refused(asked, response.status, f"the answer is longer than {limit} bytes")
        parts.append(chunk)
    return b"".join(parts)
