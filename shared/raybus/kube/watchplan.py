"""What a list+watch does next after each thing that can happen to it. Pure: chance is given as a number.

The shell (raybus.kube.listwatch) lists, watches and waits as told here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from raybus.kube import errors

FIRST_DELAY_S = 0.2
LONGEST_DELAY_S = 15.0
RELIST_AFTER_FAILURES = 8  # watches in a row that brought nothing: the place to resume from may be the trouble


@dataclass(frozen=True, slots=True)
class Next:
    """`relist`: read everything again, else resume the watch; first wait `delay_s`. `why` is for people."""

    relist: bool
    delay_s: float
    why: str


@dataclass(frozen=True, slots=True)
class Position:
    """Where a list+watch stands: `resource_version` to resume from (empty: must list), failures since the last frame.

    `expired`: the last place was forgotten by the server, and no frame has come since.
    """

    resource_version: str = ""
    failures: int = 0
    expired: bool = False

    def listed(self, resource_version: str) -> Position:
        """A list is complete; whether watching works is still to be seen."""
        return replace(self, resource_version=resource_version)

    def reached(self, resource_version: str) -> Position:
        """A frame of the watch came: the way works."""
        return Position(resource_version or self.resource_version)


def after_end(position: Position, *, relist_due: bool, brought: bool, chance: float) -> tuple[Position, Next]:
    """The server ended the watch, as it does now and then, or a relist is due. `brought`: at least one frame came."""
    if relist_due:
        return Position(), Next(relist=True, delay_s=0.0, why="a full list is due")
    if brought:
        return position, Next(relist=False, delay_s=0.0, why="the server ended the watch")
    failures = position.failures + 1
    following = Next(relist=False, delay_s=backoff_s(failures, chance), why="the watch ended without a frame")
    return replace(position, failures=failures), following


def after_error(position: Position, error: errors.KubeError, chance: float) -> tuple[Position, Next]:
    """A list or a watch failed. `chance` in [0, 1) spreads the retries of many clients."""
    failures = position.failures + 1
    delay = backoff_s(failures, chance)
    if error.retry_after_s:
        delay = max(delay, min(error.retry_after_s, LONGEST_DELAY_S))
    if isinstance(error, errors.Expired):
        # The first time at once: nothing is wrong with the server, we only were away for too long.
        following = Next(relist=True, delay_s=delay if position.expired else 0.0, why=str(error))
        return Position(failures=failures, expired=True), following
    if failures % RELIST_AFTER_FAILURES == 0 or not position.resource_version:
        return replace(position, resource_version="", failures=failures), Next(
            relist=True, delay_s=delay, why=str(error)
        )
    return replace(position, failures=failures), Next(relist=False, delay_s=delay, why=str(error))


def backoff_s(failures: int, chance: float) -> float:
    """Doubling from 0.2 s up to 15 s; between half and all of it by chance."""
    whole = min(FIRST_DELAY_S * 2.0 ** min(failures - 1, 30), LONGEST_DELAY_S)
    return whole * (0.5 + 0.5 * chance)
