"""Remembering what was deleted, against answers and news that come late. No clock: times come in as arguments."""

from __future__ import annotations

MEMORY_S = 600.0


class Graves:
    """uids that are gone. What the stream itself deleted may come back in the stream (an etcd restore): its order counts.
    What this replica deleted is gone although the stream has not said so yet.
    """

    def __init__(self) -> None:
        self._by_us: dict[str, float] = {}
        self._by_stream: dict[str, float] = {}

    def dig(self, uid: str, now: float, *, by_us: bool) -> None:
        graves = self._by_us if by_us else self._by_stream
        graves.pop(uid, None)  # so that the order of the dict stays the order of time
        graves[uid] = now
        _forget(graves, now)

    def deleted_by_us(self, uid: str, now: float) -> bool:
        return _young(self._by_us.get(uid), now)

    def deleted(self, uid: str, now: float) -> bool:
        return self.deleted_by_us(uid, now) or _young(self._by_stream.get(uid), now)

    def rise(self, uid: str) -> None:
        """The stream says it is there after all."""
        self._by_stream.pop(uid, None)


def _young(dug: float | None, now: float) -> bool:
    return dug is not None and now - dug < MEMORY_S


def _forget(graves: dict[str, float], now: float) -> None:
    while graves:
        uid, dug = next(iter(graves.items()))
        if _young(dug, now):
            return
        del graves[uid]
