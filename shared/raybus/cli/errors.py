"""Errors that are the user's to mend: one clear message, what to do next, and the exit code. Never a stack trace."""

from __future__ import annotations

# Exit codes of `raybus`: 0 done or SUCCEEDED.
EXIT_JOB_FAILED = 1
EXIT_USAGE = 2
EXIT_JOB_STOPPED = 3
EXIT_ENVIRONMENT = 4
EXIT_INTERRUPTED = 130


class UserError(Exception):
    """`message` names the thing that is wrong, `hint` says what to do about it."""

    def __init__(self, message: str, hint: str = "", code: int = EXIT_USAGE) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.code = code
