"""A gateway in one class: whatever a scripted API server stores becomes news on a controller's stream, late if wanted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from raybus.bus import streams
from raybus.bus.publisher import ObjectPublisher
from raybus.bus.routing import trees_of
from raybus.bus.streams import StreamSettings
from raybus.bus.subjects import object_subject, partition_of
from raybus.bus.transport import Bus
from raybus.decide.actions import Json
from raybus.decide.routes import Route

CLUSTER_UID = "uid-of-kube-system"
PARTITIONS = 4
MARK_EVERY_S = 1.0


class News:
    """`start`, give `say` to whom stores objects, at the end `close`. News are said `late_s` seconds after the write."""

    def __init__(self, bus: Bus, controller: str, routes: Iterable[Route], *, late_s: float = 0.0) -> None:
        self._bus = bus
        self._controller = controller
        self._routes = tuple(routes)
        self.late_s = late_s
        self._silent = False
        self._marks = asyncio.Lock()
        self.settings: StreamSettings
        self._publisher: ObjectPublisher
        self._queue: asyncio.Queue[Json] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        self.settings = await streams.provision(
            self._bus, self._controller, cluster_uid=CLUSTER_UID, partitions=PARTITIONS
        )
        await streams.provision_history(self._bus, max_bytes=1 << 24)
        self._publisher = ObjectPublisher(self._bus, self._controller, self.settings, term="gateway-1")
        await self._publisher.load_term()
        await self._mark()
        self._tasks = [asyncio.create_task(self._marking()), asyncio.create_task(self._saying())]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def say(self, obj: Json) -> None:
        self._queue.put_nowait(obj)

    async def _saying(self) -> None:
        while True:
            obj = await self._queue.get()
            await asyncio.sleep(self.late_s)
            for key in trees_of(self._routes, obj):
                part = partition_of(key, self.settings.partitions)
                kind, name = obj["kind"], obj["metadata"]["name"]
                subject = object_subject(self._controller, self.settings.generation, part, key, kind, name)
                await self._publisher.put(subject, obj, projection="full")

    async def silence(self) -> None:
        """Vouch for nothing any more; no marker is on its way when this returns."""
        async with self._marks:
            self._silent = True

    async def speak(self) -> None:
        self._silent = False
        await self._mark()

    async def _marking(self) -> None:
        while True:
            await asyncio.sleep(MARK_EVERY_S)
            await self._mark()

    async def _mark(self) -> None:
        async with self._marks:
            kinds = () if self._silent else {route.kind.kind for route in self._routes}
            for kind in kinds:
                await self._publisher.mark(kind, "1")
