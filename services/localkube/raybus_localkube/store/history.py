"""The recent changes of one resource, and those who wait for the next one."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Sequence

from raybus_localkube.store.records import Change

KEEP_CHANGES = 2000
KEEP_BYTES = 6 << 20
"""Whatever is reached first; a watcher that is further behind is told to list again (410)."""


class History:
    """A bounded list of changes in order of version. `oldest` is the lowest version from which it is complete."""

    def __init__(self, rv: int) -> None:
        self.oldest = rv
        self._changes: list[Change] = []
        self._bytes = 0
        self._waiters: set[asyncio.Future[None]] = set()

    def append(self, changes: Sequence[Change]) -> None:
        self._changes.extend(changes)
        self._bytes += sum(len(change.record.body) for change in changes)
        if len(self._changes) > KEEP_CHANGES * 1.25 or self._bytes > KEEP_BYTES * 1.25:
            self._trim()
        waiters, self._waiters = self._waiters, set()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _trim(self) -> None:
        drop = max(0, len(self._changes) - KEEP_CHANGES)
        kept = self._bytes - sum(len(change.record.body) for change in self._changes[:drop])
        while kept > KEEP_BYTES and drop < len(self._changes) - 1:
            kept -= len(self._changes[drop].record.body)
            drop += 1
        if drop:
            self.oldest = self._changes[drop - 1].rv
            del self._changes[:drop]
            self._bytes = kept

    def after(self, rv: int) -> Sequence[Change]:
        """All changes newer than `rv`; the caller has checked that `rv` is not below `oldest`."""
        return self._changes[bisect_right(self._changes, rv, key=lambda change: change.rv) :]

    async def wait(self, timeout_s: float) -> bool:
        """Wait for a change, at most `timeout_s` seconds; False if none came."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            done, _ = await asyncio.wait([waiter], timeout=timeout_s)
        finally:
            self._waiters.discard(waiter)
        return bool(done)

    def wake(self) -> None:
        """Let all waiters look again, though nothing changed (at shutdown)."""
        self.append(())
