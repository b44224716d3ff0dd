"""What became of an action. The executor returns one per action and never raises into the loop. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from raybus.decide.actions import Action, Json


class Result(StrEnum):
    DONE = "done"
    ALREADY_SO = "already_so"
    CONFLICT = "conflict"  # a precondition failed: what was decided rests on an old version
    GONE = "gone"  # the object to act on does not exist any more
    REFUSED = "refused"  # the server understood and said no (invalid, forbidden, quota): the same again is useless
    THROTTLED = "throttled"
    AMBIGUOUS = "ambiguous"  # no answer: it may have happened; read before planning the same again
    FAILED = "failed"
    SKIPPED = "skipped"  # an earlier step failed, or the lease was lost


FAILURES = frozenset({Result.REFUSED, Result.THROTTLED, Result.AMBIGUOUS, Result.FAILED})
"""What a user is told of; the other results without success only mean that the world had moved on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    action: Action
    result: Result
    message: str = ""  # the server's own words
    code: int = 0  # HTTP status, 0 without an answer
    body: Json | None = None  # the object as answered
    retry_after_s: float | None = None
    detail: Any = None

    @property
    def ok(self) -> bool:
        return self.result in (Result.DONE, Result.ALREADY_SO) or (
            self.result is Result.GONE and type(self.action).__name__.startswith("Delete")
        )
