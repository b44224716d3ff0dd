"""A clock that stands still until it is told to move, for tests and simulations."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_START = datetime(2026, 1, 1, tzinfo=UTC)


class FakeClock:
    def __init__(self, now: datetime = _START) -> None:
        self._now = now
        self._monotonic = 1000.0

    def monotonic(self) -> float:
        return self._monotonic

    def now(self) -> datetime:
        return self._now

    def advance(self, seconds: float) -> None:
        """Move both clocks forward."""
        self._monotonic += seconds
        self._now += timedelta(seconds=seconds)

    def step(self, seconds: float) -> None:
        """Set the wall clock alone, as an administrator or NTP would."""
        self._now += timedelta(seconds=seconds)
