"""A job's own output while the run goes on: what its two sources have in common (submitter_log.py, ray_log.py)."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable

from raybus.cli.story import View

Print = Callable[[str], None]
RETRY_S = 1.0


class JobLog(ABC):
    """Follows one log in a task of its own, and prints each line once."""

    def __init__(self, write: Print) -> None:
        self._write = write
        self._printed = 0
        self._task: asyncio.Task[None] | None = None

    @abstractmethod
    def see(self, view: View) -> None:
        """Begin, change over or end, as the view demands."""

    async def drain(self, limit_s: float) -> None:
        """Wait until the log has ended; at most `limit_s`."""
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=limit_s)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
