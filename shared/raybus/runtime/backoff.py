"""How long a key waits after a failure, and when it is not tried any more. Pure: no clock, no chance, nothing waits here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from raybus.decide.tree import RootKey

BASE_S = 0.05
CAP_S = 60.0
CRASHES_MAX = 5
EVENTS_WAIT_MAX_S = 5.0


def delay(failures: int, retry_after_s: float | None = None) -> float:
    """Seconds to wait after the `failures`-th failure in a row; never less than the server asked for (up to 10 minutes)."""
    doubled = BASE_S * float(1 << min(max(failures - 1, 0), 20))
    return max(min(doubled, CAP_S), min(retry_after_s or 0.0, 600.0))


def hold(wait_s: float, retry_after_s: float | None) -> float:
    """Seconds for which changes of the tree's objects alone do not start a pass during a back-off of `wait_s`.

    News is not kept back for long: a failure of one action must not keep the status from telling about the others. What the
    server asked for is obeyed.
    """
    return max(min(wait_s, EVENTS_WAIT_MAX_S), min(retry_after_s or 0.0, 600.0))


@dataclass(slots=True)
class Backoff:
    """Counts failures and crashes in a row, per key. A crash is an exception from pure code: our bug, not the world's fault.

    After `crashes_max` crashes in a row the key is parked: only a change of its objects gives it one more try.
    """

    crashes_max: int = CRASHES_MAX
    _failures: dict[RootKey, int] = field(default_factory=dict)
    _crashes: dict[RootKey, int] = field(default_factory=dict)

    def failed(self, key: RootKey, retry_after_s: float | None = None) -> float:
        """One more failure; the answer is the seconds to wait."""
        self._crashes.pop(key, None)
        self._failures[key] = self._failures.get(key, 0) + 1
        return delay(self._failures[key], retry_after_s)

    def crashed(self, key: RootKey) -> bool:
        """One more crash; True exactly when it is the one that parks the key."""
        self._crashes[key] = self._crashes.get(key, 0) + 1
        return self._crashes[key] == self.crashes_max

    def parked(self, key: RootKey) -> bool:
        return self._crashes.get(key, 0) >= self.crashes_max

    @property
    def parked_count(self) -> int:
        return sum(count >= self.crashes_max for count in self._crashes.values())

    @property
    def failing_count(self) -> int:
        """Keys whose last try failed."""
        return len(self._failures)

    def failures(self, key: RootKey) -> int:
        return self._failures.get(key, 0)

    def succeeded(self, key: RootKey) -> None:
        self._failures.pop(key, None)
        self._crashes.pop(key, None)

    def crashes(self, key: RootKey) -> int:
        return self._crashes.get(key, 0)

    def drop(self, predicate: Callable[[RootKey], bool]) -> None:
        """Forget the keys of which the predicate holds."""
        for key in [key for key in {*self._failures, *self._crashes} if predicate(key)]:
            self.succeeded(key)
