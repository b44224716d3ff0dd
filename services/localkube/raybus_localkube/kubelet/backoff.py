"""When a container that ended starts again: at once, then after 10 s, 20 s ... 300 s; ten minutes of running forgive. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

FIRST = timedelta(seconds=10)
LONGEST = timedelta(seconds=300)
FORGIVEN_AFTER = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class BackOff:
    """`delay` is what the latest end costs, `until` when that is over."""

    delay: timedelta = timedelta(0)
    until: datetime | None = None

    def ended(self, started: datetime | None, finished: datetime) -> BackOff:
        """The back-off after an end; the first one after a long run costs nothing."""
        long_run = started is not None and finished - started >= FORGIVEN_AFTER
        if self.until is None or long_run:
            return BackOff(timedelta(0), finished)
        delay = min(max(self.delay * 2, FIRST), LONGEST)
        return BackOff(delay, finished + delay)


def resumed(restarts: int, finished: datetime | None) -> BackOff:
    """The back-off as the restart count of a status implies it, for a kubelet that has just started."""
    if finished is None:
        return BackOff()
    if restarts == 0:
        return BackOff(timedelta(0), finished)
    delay = min(FIRST * 2 ** min(restarts - 1, 5), LONGEST)
    return BackOff(delay, finished + delay)
