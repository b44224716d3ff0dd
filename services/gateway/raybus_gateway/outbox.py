"""Writes under way: many at a time, in order within a subject, and no more than a fixed number."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from raybus_gateway.catalog import Write

IN_FLIGHT_MAX = 128

Publish = Callable[[Write], Coroutine[Any, Any, object]]


class Outbox:
    """`publish` keeps the order of calls for one subject. Its first failure is raised by every later call here."""

    def __init__(self, publish: Publish, in_flight_max: int = IN_FLIGHT_MAX) -> None:
        self._publish = publish
        self._slots = asyncio.Semaphore(in_flight_max)
        self._numbers = itertools.count(1)
        self._open: dict[int, asyncio.Task[object] | None] = {}  # by number, the oldest first
        self._progress = asyncio.Event()
        self._failure: BaseException | None = None
        self.failed = asyncio.Event()

    async def send(self, writes: list[Write]) -> None:
        """Start each write as soon as there is a slot; returns before they are answered."""
        numbers = [next(self._numbers) for _ in writes]
        self._open.update(
            dict.fromkeys(numbers)
        )  # all of them at once: settle() must know of those that wait for a slot
        for number, write in zip(numbers, writes, strict=True):
            await self._slots.acquire()
            if self._failure is not None:
                self._slots.release()  # for whoever waits for it: to fail as well
                raise self._failure
            task: asyncio.Task[object] = asyncio.create_task(self._publish(write))
            self._open[number] = task
            task.add_done_callback(partial(self._done, number))

    async def settle(self) -> None:
        """Wait for all writes that were given to send() before."""
        last = next(self._numbers)
        while self._failure is None and self._open and next(iter(self._open)) < last:
            self._progress.clear()
            await self._progress.wait()
        if self._failure is not None:
            raise self._failure

    async def close(self) -> None:
        """Give up what is under way; whether it was stored does not matter any more."""
        tasks = [task for task in self._open.values() if task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _done(self, number: int, task: asyncio.Task[object]) -> None:
        self._open.pop(number, None)
        self._slots.release()
        self._progress.set()
        if not task.cancelled() and (error := task.exception()) is not None and self._failure is None:
            self._failure = error
            self.failed.set()
