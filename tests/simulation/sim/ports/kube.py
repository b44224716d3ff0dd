"""The Kubernetes client of a simulated process: the product's own, over a network that the seed rules.

What may live here: what can happen to a request or a watch on its way.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

import orjson

from raybus.kube import errors
from raybus.kube.client import KubeClient
from raybus.kube.config import KubeConfig
from raybus.kube.raw import LINE_MAX
from raybus_localkube.server.messages import Response, Stream
from simulation.sim.loop import Process

if TYPE_CHECKING:
    from simulation.sim.world import World

FREEZE_S = 20.0
SLOW_S = 3.0
LAG_S = 8.0
LATE_S = 2.0  # a creation that was under way for longer may meet another world than the one it was decided on
SORTS = {"POST": "kube.create", "PATCH": "kube.patch", "PUT": "kube.patch", "DELETE": "kube.delete", "GET": "kube.read"}
REFUSALS = {
    "forbidden": (403, "Forbidden", "exceeded quota"),
    "invalid": (422, "Invalid", "admission webhook denied the request"),
    "throttled": (429, "TooManyRequests", "too many requests, please try again later"),
    "error-500": (500, "InternalError", "etcdserver: leader changed"),
    "no-right": (403, "Forbidden", "the service account cannot do this"),
    "unavailable": (503, "ServiceUnavailable", "apiserver is shutting down"),
}
GONE = b'{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","code":410,"reason":"Expired","message":"too old resource version"}}'


def kind_of(path: str) -> str:
    """The plural of the objects that a path is about, with the subresource."""
    parts = path.split("/")
    rest = parts[3:] if parts[1] == "api" else parts[4:]
    if not rest:
        return "discovery"
    if rest[0] == "namespaces" and len(rest) > 2:
        rest = rest[2:]
    return rest[0] + (f"/{rest[2]}" if len(rest) > 2 else "")


class SimKube(KubeClient):
    """`faulty` False: nothing happens to its requests but that they take time."""

    def __init__(self, world: World, process: Process, *, faulty: bool = True) -> None:
        super().__init__(KubeConfig(server="https://simulated"))
        self._world, self._process, self._faulty = world, process, faulty

    def _fault(self, sort: str, what: str) -> str:
        return self._world.faults.at(sort, f"{what} @{self._process.name}") if self._faulty else ""

    async def _exchange(
        self, method: str, path: str, query: Mapping[str, Any] | None, data: bytes | None, content_type: str | None
    ) -> tuple[int, bytes, str | None]:
        world = self._world
        began = world.loop.now
        fault = self._fault(SORTS[method], kind_of(path))
        if fault:
            world.story.tell("fault", f"{fault}: {method} {path} of {self._process.name}")
            refused = await self._on_the_way(fault, method, path)
            if refused is not None:
                return refused
        if world.sick and method != "GET" and self._is_of_the_sick(path, data):
            await self._hampered()
        await world.travel()
        late = method == "POST" and world.loop.now - began > LATE_S
        world.late_creations += late  # nothing can keep it from arriving
        found = world.api.answer(
            self._process.name, method, path, query, data or b"", (content_type or "application/json") if data else None
        )
        assert isinstance(found, Response)
        world.late_creations -= late and found.status != 201
        world.requested(self._process, method, path, data or b"", found)
        if fault:
            await self._on_the_way_back(fault)
        await world.travel()
        return found.status, found.body, dict(found.headers).get("Retry-After")

    async def _on_the_way(self, fault: str, method: str, path: str) -> tuple[int, bytes, str | None] | None:
        """What keeps the request from arriving; an answer if it is refused."""
        if fault in REFUSALS:
            code, reason, message = REFUSALS[fault]
            await self._world.travel()
            body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason}
            return code, orjson.dumps({**body, "message": message}), "2" if code == 429 else None
        match fault:
            case "refused":
                raise ConnectionRefusedError("connection refused")
            case "lost-request":
                await self._world.never_answered(self._process)
            case "slow":
                await asyncio.sleep(SLOW_S)
            case "crash-before":
                await self._world.dies(self._process)
            case "freeze":
                await self._world.stands_still(self._process, FREEZE_S)
            case "conflict":
                self._world.touch(path)
        return None

    def _is_of_the_sick(self, path: str, data: bytes | None) -> bool:
        return self._world.sick in path or self._world.sick.encode() in (data or b"")

    async def _hampered(self) -> None:
        """No answer, or a breaking connection: what is asked of this object alone."""
        if self._world.between(0.0, 1.0) < 0.6:
            await self._world.silence(None)
        raise ConnectionResetError("connection reset by peer")

    async def _on_the_way_back(self, fault: str) -> None:
        match fault:
            case "lost-answer":
                await self._world.never_answered(self._process)
            case "cut-answer":
                raise ConnectionResetError("connection reset by peer")
            case "crash-after":
                await self._world.dies(self._process)
            case "changed":
                self._world.mishaps.something_changes()

    @contextlib.asynccontextmanager
    async def open_stream(
        self,
        path: str,
        query: Mapping[str, Any] | None = None,
        *,
        idle_timeout_s: float | None = None,
        line_max: int = LINE_MAX,
    ) -> AsyncGenerator[AsyncGenerator[bytes]]:
        world, kind = self._world, kind_of(path)
        fault = self._fault("kube.watch", kind)
        if fault:
            world.story.tell("fault", f"{fault}: watch of {kind} by {self._process.name}")
        if fault == "refused":
            raise errors.NoAnswer(f"GET {path}: connection refused", sent=False)
        if fault == "error-500":
            raise errors.KubeError(500, "InternalError", "etcdserver: leader changed")
        if fault == "no-right":
            raise errors.Forbidden(403, "Forbidden", "the service account cannot watch this")
        if fault == "gone":
            raise errors.Expired(410, "Expired", "too old resource version")
        await asyncio.sleep(SLOW_S if fault == "slow" else world.latency())
        answer = world.api.answer(self._process.name, "GET", path, query, b"", None)
        if isinstance(answer, Response):
            raise errors.from_response(answer.status, answer.body)
        assert isinstance(answer, Stream)
        async with contextlib.aclosing(self._lines_of(answer.parts, kind, path, idle_timeout_s)) as lines:
            yield lines

    async def _lines_of(
        self, parts: AsyncIterator[bytes], kind: str, path: str, idle_s: float | None
    ) -> AsyncGenerator[bytes]:
        world = self._world
        try:
            while True:
                part = await self._next(parts, path, idle_s)
                if part is None:
                    return
                fault = self._fault("kube.news", kind)
                if fault:
                    world.story.tell("fault", f"{fault}: news of {kind} for {self._process.name}")
                    if fault == "cut":
                        raise errors.NoAnswer(f"GET {path}: the server closed the connection")
                    if fault == "gone":
                        yield GONE
                        return
                    if fault == "silent":
                        await world.silence(idle_s)
                        raise errors.NoAnswer(f"GET {path}: nothing in {idle_s} s")
                await asyncio.sleep(LAG_S if fault == "lag" else world.latency())
                for _ in range(2 if fault == "twice" else 1):
                    for line in part.splitlines():
                        yield line
        finally:
            await parts.aclose()

    async def _next(self, parts: AsyncIterator[bytes], path: str, idle_s: float | None) -> bytes | None:
        try:
            async with asyncio.timeout(idle_s):
                return await anext(parts)
        except StopAsyncIteration:
            return None
        except TimeoutError as error:
            raise errors.NoAnswer(f"GET {path}: nothing in {idle_s} s") from error
