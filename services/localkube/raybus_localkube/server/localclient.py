"""The client for what runs in the server's own process: the same interface as over HTTP, without sockets."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import orjson

from raybus.kube import errors
from raybus.kube.client import KubeClient
from raybus.kube.config import KubeConfig
from raybus.kube.gate import Lane
from raybus.kube.lines import LineSplitter
from raybus.kube.raw import JSON, LINE_MAX, TIMEOUT_S, Query
from raybus_localkube.server.core import Core
from raybus_localkube.server.messages import Query as ServerQuery
from raybus_localkube.server.messages import Request, Response, Stream, User

CONTROLLERS = User("system:kube-controller-manager", ("system:masters", "system:authenticated"))


class LocalClient(KubeClient):
    """KubeClient over a core in the same process. Streams end when the server closes."""

    def __init__(self, core: Core, user: User = CONTROLLERS) -> None:
        super().__init__(KubeConfig(server="local://localkube"))
        self._core, self._user = core, user

    def _request(self, method: str, path: str, query: Query | None, body: bytes, content_type: str | None) -> Request:
        values = {
            key: [str(value).lower() if isinstance(value, bool) else str(value)] for key, value in (query or {}).items()
        }
        return Request(method, path, ServerQuery(values), body, self._user, JSON, content_type)

    async def request_bytes(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: Any = None,
        content_type: str | None = None,
        timeout_s: float | None = None,
        lane: Lane = Lane.FIRST,  # noqa: ARG002 - nothing waits here, so there is no order to keep
    ) -> bytes:
        data = b"" if body is None else body if isinstance(body, bytes) else orjson.dumps(body)
        try:
            async with asyncio.timeout(timeout_s or TIMEOUT_S):
                answer = await self._core.handle(
                    self._request(method, path, query, data, content_type if data else None)
                )
                found = answer.body if isinstance(answer, Response) else b"".join([part async for part in answer.parts])
        except TimeoutError as error:
            raise errors.NoAnswer(f"{method} {path}: no answer in {timeout_s or TIMEOUT_S:g} s") from error
        if answer.status >= 300:
            raise errors.from_response(answer.status, found, dict(answer.headers).get("Retry-After"))
        return found

    @contextlib.asynccontextmanager
    async def open_stream(
        self, path: str, query: Query | None = None, *, idle_timeout_s: float | None = None, line_max: int = LINE_MAX
    ) -> AsyncGenerator[AsyncGenerator[bytes]]:
        answer = await self._core.handle(self._request("GET", path, query, b"", None))
        if isinstance(answer, Response):
            if answer.status >= 300:
                raise errors.from_response(answer.status, answer.body, dict(answer.headers).get("Retry-After"))
            answer = Stream(_once(answer.body))
        async with contextlib.aclosing(_lines(answer.parts, idle_timeout_s, line_max, path)) as lines:
            yield lines


async def _once(body: bytes) -> AsyncIterator[bytes]:
    yield body


async def _lines(parts: AsyncIterator[bytes], idle_s: float | None, line_max: int, path: str) -> AsyncGenerator[bytes]:
    splitter = LineSplitter(line_max)
    try:
        while True:
            try:
                async with asyncio.timeout(idle_s):
                    part = await anext(parts)
            except StopAsyncIteration:
                break
            except TimeoutError as error:
                raise errors.NoAnswer(f"GET {path}: nothing in {idle_s} s") from error
            for line in splitter.feed(part):
                yield line
        if rest := splitter.rest():
            yield rest
    finally:
        close = getattr(parts, "aclose", None)
        if close is not None:
            await close()
