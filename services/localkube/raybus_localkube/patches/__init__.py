"""The three patch types as functions of document and patch. Pure.

What may live here: patch algorithms. Nothing that knows a store or a request.
"""

from __future__ import annotations

from raybus_localkube.server import errors


class PatchError(Exception):
    """A patch that cannot be applied; `code` is the answer's."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message

    def refusal(self) -> errors.ApiError:
        if self.code == 422:
            return errors.ApiError(422, "Invalid", "the server rejected our request due to an error in our request", {})
        if self.code == 400:
            return errors.bad_request(self.message)
        return errors.internal(self.message)
