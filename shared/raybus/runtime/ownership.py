"""Which partitions this replica works on: those whose lease it holds and whose trees its mirror has read.

Leases come and go one by one, the mirror reads a set of partitions at once; gains that come together are read together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from raybus.observe.logging import get_logger

READ_TIMEOUT_S = 60.0
RETRY_S = 1.0

ReadPartitions = Callable[[frozenset[int]], Awaitable[None]]


class Ownership:
    def __init__(self, read: ReadPartitions) -> None:
        self._read = read
        self._wanted: set[int] = set()
        self._reading: frozenset[int] = frozenset()  # what the mirror was last told to hold
        self._ready: frozenset[int] = frozenset()
        self._lock = asyncio.Lock()
        self._log = get_logger()

    @property
    def ready(self) -> frozenset[int]:
        """Partitions that may be worked on."""
        return self._ready

    @property
    def wanted(self) -> frozenset[int]:
        """Partitions whose lease is held, read or not."""
        return frozenset(self._wanted)

    async def gain(self, part: int) -> frozenset[int]:
        """The lease of `part` was gained. Answers the partitions that became ready, when they are; empty if another call's did."""
        self._wanted.add(part)
        while part in self._wanted:
            async with self._lock:
                if part in self._ready:
                    return frozenset()
                if await self._take(frozenset(self._wanted)):
                    new = self._reading.intersection(self._wanted) - self._ready
                    self._ready = self._ready.union(new)
                    return new
            await asyncio.sleep(RETRY_S)
        return frozenset()

    async def lose(self, part: int) -> None:
        """The lease of `part` was lost or is about to be released: at once nothing of it is ready."""
        self._wanted.discard(part)
        self._ready -= {part}
        async with self._lock:
            if not self._reading <= self._wanted:
                await self._take(self._reading.intersection(self._wanted))

    async def _take(self, target: frozenset[int]) -> bool:
        try:
            async with asyncio.timeout(READ_TIMEOUT_S):
                await self._read(target)
        except Exception as error:  # noqa: BLE001 - the bus may be down in any way; the lease decides how long we try
            self._log.warning(
                "could not read the partitions", partitions=sorted(target), error=str(error) or repr(error)
            )
            return False
        self._reading = target
        return True
