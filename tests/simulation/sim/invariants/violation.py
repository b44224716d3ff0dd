"""What is raised where an invariant does not hold."""

from __future__ import annotations

SECRET = "hunter2-do-not-tell"  # what every template holds and nobody may repeat


class Violation(Exception):
    """`invariant` is its id, as docs and planted defects name it."""

    def __init__(self, invariant: str, message: str) -> None:
        super().__init__(f"{invariant}: {message}")
        self.invariant = invariant
