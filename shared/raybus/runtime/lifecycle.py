"""How a service ends: the first SIGTERM or SIGINT asks for an orderly stop, the second ends the process at once."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable
from typing import Self, TypeVar

T = TypeVar("T")

EXIT_AT_ONCE = 130
SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StoppedError(Exception):
    """A signal came before something was done."""


class Stop:
    """`with Stop() as stop:` inside the running loop takes over the signals."""

    def __init__(self) -> None:
        self._asked = asyncio.Event()

    @property
    def asked(self) -> bool:
        return self._asked.is_set()

    def __enter__(self) -> Self:
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self.ask)
        return self

    def __exit__(self, *_error: object) -> None:
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.remove_signal_handler(number)

    def ask(self) -> None:
        if self._asked.is_set():
            os._exit(EXIT_AT_ONCE)
        self._asked.set()

    async def wait(self) -> None:
        await self._asked.wait()

    async def unless(self, work: Awaitable[T]) -> T:
        """The result of `work`, or StoppedError if a signal comes first; `work` is cancelled then."""
        task = asyncio.ensure_future(work)
        asked = asyncio.ensure_future(self._asked.wait())
        try:
            await asyncio.wait((task, asked), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise StoppedError
        finally:
            asked.cancel()
            task.cancel()
            await asyncio.gather(task, asked, return_exceptions=True)
