"""Where time comes from. Everything in raybus.bus asks a Clock, so that a test or a simulator can be the time."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    def monotonic(self) -> float:
        """Seconds that never go back; only differences mean something."""
        ...

    def now(self) -> datetime:
        """The wall clock, in UTC."""
        ...


class SystemClock:
    def monotonic(self) -> float:
        return time.monotonic()

    def now(self) -> datetime:
        return datetime.now(UTC)


SYSTEM: Clock = SystemClock()
