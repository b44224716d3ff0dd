"""How many requests may be in flight, learnt from the answers. Pure: time is an argument, nothing waits here.

A fixed rate neither protects the API server nor helps us. Beyond some number in flight every further request only waits in the
server; so the limit grows slowly while the median latency does not, and halves when the server says that it has too much.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field

WINDOW = 100  # answers between two looks at the median
GROWN = 1.25  # a median above this multiple of the best one counts as grown
PAUSE_MAX_S = 30.0


@dataclass(slots=True)
class AdaptiveLimit:
    """`limit` requests may be in flight and none may start before `not_before` (the caller's monotonic seconds)."""

    limit: int = 16
    lowest: int = 2
    highest: int = 64
    not_before: float = 0.0
    _latencies: list[float] = field(default_factory=list)
    _best: float = float("inf")
    _reached: bool = False
    _halved_at: float = float("-inf")

    def answered(self, latency_s: float, in_flight: int) -> None:
        """An answer came. `in_flight` counts the requests at that moment, this one included."""
        self._latencies.append(latency_s)
        self._reached = self._reached or in_flight >= self.limit
        if len(self._latencies) < WINDOW:
            return
        median = statistics.median(self._latencies)
        if self._reached and median <= self._best * GROWN:
            self.limit = min(self.limit + 1, self.highest)
        self._best = min(self._best, median)
        self._latencies.clear()
        self._reached = False

    def overloaded(self, now: float, retry_after_s: float | None) -> None:
        """The server answered 429 or 503: halve, once for all requests that were in flight together, and pause as it asked."""
        if now - self._halved_at >= 1.0:
            self.limit = max(self.limit // 2, self.lowest)
            self._halved_at = now
        if retry_after_s:
            self.not_before = max(self.not_before, now + min(retry_after_s, PAUSE_MAX_S))
