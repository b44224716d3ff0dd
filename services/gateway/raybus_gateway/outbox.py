"""Writes under way: many at a time, in order within a subject, and no more than a fixed number."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from raybus_gateway.holdings import Write

IN_FLIGHT_MAX = 128

Publish = Callable[[Write], Coroutine[Any, Any, object]]


class Outbox:
    """`publish` keeps the order of calls for one subject. Its first failure is raised by every later call here.

    A write that was given to send() is made, also if that call is cancelled: the catalog counts on it.
    """

    def __init__(self, publish: Publish, in_flight_max: int = IN_FLIGHT_MAX) -> None:
        self._publish = publish
        self._in_flight_max = in_flight_max
        self._numbers = itertools.count(1)
        self._waiting: deque[tuple[int, Write]] = deque()
        self._running: dict[int, asyncio.Task[object]] = {}  # by number, the oldest first
        self._progress = asyncio.Event()
        self._failure: BaseException | None = None
        self.failed = asyncio.Event()

    def __len__(self) -> int:
        """Writes that have no answer yet."""
        return len(self._waiting) + len(self._running)

    async def send(self, writes: list[Write]) -> None:
        """Take the writes at once; return when all have started, so that whoever produces them is slowed down."""
        self._raise()
        self._waiting.extend((next(self._numbers), write) for write in writes)
        self._start()
        while self._waiting:
            await self._next_answer()

    async def settle(self) -> None:
        """Wait for all writes that were given to send() before."""
        last = next(self._numbers)
        self._raise()
        while self._oldest() < last:
            await self._next_answer()

    async def close(self) -> None:
        """Give up what is under way; whether it was stored does not matter any more."""
        self._waiting.clear()
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _oldest(self) -> float:
        if self._running:
            return next(iter(self._running))
        return self._waiting[0][0] if self._waiting else float("inf")

    async def _next_answer(self) -> None:
        self._progress.clear()
        await self._progress.wait()
        self._raise()

    def _start(self) -> None:
        while self._waiting and self._failure is None and len(self._running) < self._in_flight_max:
            number, write = self._waiting.popleft()
            task: asyncio.Task[object] = asyncio.create_task(self._publish(write))
            self._running[number] = task
            task.add_done_callback(partial(self._done, number))

    def _done(self, number: int, task: asyncio.Task[object]) -> None:
        self._running.pop(number, None)
        self._progress.set()
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            self._start()
        elif self._failure is None:
            self._failure = error
            self.failed.set()

    def _raise(self) -> None:
        if self._failure is not None:
            raise self._failure
