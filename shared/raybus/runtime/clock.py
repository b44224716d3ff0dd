"""The one place that reads the clocks. Everything else is given a Clock, so that a simulation can give its own."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """`now` is the wall clock (timezone-aware, UTC); `monotonic` counts seconds on the same scale as the event loop's timers."""

    def now(self) -> datetime: ...

    def monotonic(self) -> float: ...


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        try:
            return asyncio.get_running_loop().time()
        except RuntimeError:  # outside a loop, while starting
            return time.monotonic()
