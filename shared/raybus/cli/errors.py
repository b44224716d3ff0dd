"""Errors that are the user's to mend: one clear message, what to do next, and the exit code. Never a stack trace."""

from __future__ import annotations

from collections.abc import Mapping

EXIT_JOB_FAILED = 1
EXIT_USAGE = 2
EXIT_JOB_STOPPED = 3
EXIT_ENVIRONMENT = 4
EXIT_INTERRUPTED = 130

EXIT_CODES: Mapping[int, str] = {
    0: "done; of a job: SUCCEEDED",
    EXIT_JOB_FAILED: "the job FAILED; of `raybus doctor`: a check failed",
    EXIT_USAGE: "a file, a flag or an object is not valid",
    EXIT_JOB_STOPPED: "the job was STOPPED",
    EXIT_ENVIRONMENT: "this machine or the cluster does not allow it: something is missing, does not answer or is not ready",
    EXIT_INTERRUPTED: "interrupted with Ctrl-C, or by SIGTERM",
}


class UserError(Exception):
    """`message` names the thing that is wrong, `hint` says what to do about it."""

    def __init__(self, message: str, hint: str = "", code: int = EXIT_USAGE) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.code = code
