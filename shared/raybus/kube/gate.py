"""Lets requests pass in the order of their lanes, no more at a time than the limit says."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
from collections.abc import AsyncIterator
from enum import Enum

from raybus.kube.limit import AdaptiveLimit


class Lane(Enum):
    """What may overtake what while requests queue. The value is how long, in seconds, a request lets newer ones of the
    first lane pass: dear or unimportant writes leave the critical path, but none waits for ever.
    """

    FIRST = 0.0  # reads, creates, deletes
    STATUS = 2.0
    EVENT = 10.0


class Gate:
    def __init__(self, limit: AdaptiveLimit) -> None:
        self._limit = limit
        self._in_flight = 0
        self._order = itertools.count()
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []
        self._timer: asyncio.TimerHandle | None = None

    @property
    def in_flight(self) -> int:
        return self._in_flight

    @property
    def limit(self) -> AdaptiveLimit:
        return self._limit

    @contextlib.asynccontextmanager
    async def passing(self, lane: Lane) -> AsyncIterator[None]:
        """Wait for a place, hold it inside the block. The caller sets the deadline."""
        await self._enter(lane)
        try:
            yield
        finally:
            self._in_flight -= 1
            self._release()

    async def _enter(self, lane: Lane) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        if not self._waiting and self._in_flight < self._limit.limit and now >= self._limit.not_before:
            self._in_flight += 1
            return
        place: asyncio.Future[None] = loop.create_future()
        heapq.heappush(self._waiting, (now + lane.value, next(self._order), place))
        self._release()
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():  # it was let in and cancelled in the same turn of the loop
                self._in_flight -= 1
                self._release()
            raise

    def _release(self) -> None:
        """Let in as many as there are places for; during a pause come back at its end."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        while self._waiting and self._in_flight < self._limit.limit:
            if now < self._limit.not_before:
                if self._timer is None:
                    self._timer = loop.call_at(self._limit.not_before, self._pause_over)
                return
            place = heapq.heappop(self._waiting)[2]
            if not place.done():
                self._in_flight += 1
                place.set_result(None)

    def _pause_over(self) -> None:
        self._timer = None
        self._release()
