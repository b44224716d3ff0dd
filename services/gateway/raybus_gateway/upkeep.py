"""The streams and lease buckets stay there: what was deleted, or lost with the server's store, is made again."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from raybus.bus.streams import GATEWAY, HISTORY_STREAM, bucket_stream, lease_bucket, object_stream
from raybus.bus.subjects import CONTROLLERS
from raybus.bus.transport import Bus, BusError, StreamMissing
from raybus.kube.errors import KubeError
from raybus.observe.logging import get_logger

LOOK_EVERY_S = 10.0
EXPECTED = (
    HISTORY_STREAM,
    *(bucket_stream(lease_bucket(name)) for name in (GATEWAY, *CONTROLLERS)),
    *(object_stream(name) for name in CONTROLLERS),
)


class Upkeep:
    """`make` makes all streams that are not there. It is called where one is missing; `made` afterwards.

    Looks after each reconnect and every ten seconds. Every gateway does, for without its bucket none is the active one.
    """

    def __init__(self, bus: Bus, make: Callable[[], Awaitable[None]], made: Callable[[], None]) -> None:
        self._bus = bus
        self._make = make
        self._made = made
        self._now = asyncio.Event()
        self._log = get_logger()
        self._off: Callable[[], None] | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._off = self._bus.on_connection(lambda connected: self._now.set() if connected else None)
        self._task = asyncio.create_task(self._looking(), name="upkeep of streams")

    async def stop(self) -> None:
        if self._off:
            self._off()
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _looking(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY_S):
                    await self._now.wait()
            self._now.clear()
            try:
                if missing := await self._missing():
                    self._log.warning("streams_missing", streams=missing)
                    await self._make()
                    self._made()
            except (BusError, KubeError) as error:
                self._log.warning("streams_not_looked_after", error=str(error))

    async def _missing(self) -> list[str]:
        missing = []
        for name in EXPECTED:
            try:
                await self._bus.stream_info(name)
            except StreamMissing:
                missing.append(name)
        return missing
