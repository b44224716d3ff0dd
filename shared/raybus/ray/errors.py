"""What a Ray dashboard, or the way to it, can answer instead of success: one class per consequence. Pure."""

from __future__ import annotations

TEXT_MAX = 2000
# Ray has no status code of its own for a submission id that is in use; it is known by these words only.
_IN_USE = "Please use a different submission_id"


class RayError(Exception):
    """A request to Ray that did not succeed; the text says what was asked and what came back."""


class NotFound(RayError):
    """Ray answered, and it knows no such job."""


class Refused(RayError):
    """Ray, or what stands in front of it, answered with something else than success.

    `status` is the HTTP status; 2xx if the answer was not what the Jobs API gives. `text` is the answer's body, shortened.
    """

    def __init__(self, asked: str, status: int, text: str) -> None:
        self.status = status
        self.text = text.strip()[:TEXT_MAX]
        super().__init__(f"{asked}: HTTP {status}: {self.text or 'empty answer'}")

    @property
    def id_in_use(self) -> bool:
        """A submission with this id exists already."""
        return _IN_USE in self.text

    @property
    def final(self) -> bool:
        """The request itself is at fault: the same again would be refused again."""
        return 400 <= self.status < 500 and self.status not in (401, 403, 404, 408, 409, 425, 429)


class NoAnswer(RayError):
    """Nothing came back in time, or no connection: what was asked for may have happened."""
