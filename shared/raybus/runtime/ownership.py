"""Which partitions this replica works on: those whose lease it holds and whose trees its mirror has read.

Leases come and go one by one, the mirror reads a set of partitions at once; gains that come together are read together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

READ_TIMEOUT_S = 20.0

ReadPartitions = Callable[[frozenset[int]], Awaitable[None]]


class Ownership:
    def __init__(self, read: ReadPartitions) -> None:
        self._read = read
        self._wanted: set[int] = set()
        self._reading: frozenset[int] = frozenset()  # what the mirror was last told to hold
        self._ready: frozenset[int] = frozenset()
        self._lock = asyncio.Lock()

    @property
    def ready(self) -> frozenset[int]:
        """Partitions that may be worked on."""
        return self._ready

    async def gain(self, part: int) -> frozenset[int]:
        """The lease of `part` was gained. Answers the partitions that became ready now; empty if another call's answer had it.

        Raises what reading raises, or TimeoutError: call again while the lease is held.
        """
        self._wanted.add(part)
        async with self._lock:
            if part in self._ready or part not in self._wanted:
                return frozenset()
            await self._take(frozenset(self._wanted))
            new = self._reading.intersection(self._wanted) - self._ready
            self._ready |= new
            return new

    async def lose(self, part: int) -> None:
        """The lease of `part` was lost or is about to be released: at once nothing of it is ready."""
        self._wanted.discard(part)
        self._ready -= {part}
        async with self._lock:
            if not self._reading <= self._wanted:
                await self._take(self._reading.intersection(self._wanted))

    async def _take(self, target: frozenset[int]) -> None:
        async with asyncio.timeout(READ_TIMEOUT_S):
            await self._read(target)
        self._reading = target
