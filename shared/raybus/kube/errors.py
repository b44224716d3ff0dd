"""What an API server, or the way to it, can answer instead of success: one class per reason. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson


class KubeError(Exception):
    """A refused or failed request.

    `code` is the HTTP status (0 without an answer), `reason` Kubernetes' machine-readable word, `message` the server's own
    words, `retry_after_s` what the server asked for, `details` the Status' details (name, kind, causes ...).
    """

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        retry_after_s: float | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(f"{reason or code}: {message}")
        self.code = code
        self.reason = reason
        self.message = message
        self.retry_after_s = retry_after_s
        self.details: Mapping[str, Any] = details or {}

    @property
    def ambiguous(self) -> bool:
        """A write may have happened all the same: the server gave up waiting for its own store or for a hook."""
        return self.code == 504 or (self.code == 500 and "timed out" in self.message)

    @property
    def causes(self) -> tuple[Mapping[str, Any], ...]:
        return tuple(self.details.get("causes") or ())

    def about(self, field: str) -> bool:
        """Whether a cause names this field."""
        return any(cause.get("field") == field for cause in self.causes)

    @property
    def namespace_terminating(self) -> bool:
        """Nothing can be created in this namespace any more."""
        return any(cause.get("reason") == "NamespaceTerminating" for cause in self.causes)


class NotFound(KubeError):
    """No such object; or no such resource, then `details` has no name."""

    @property
    def resource_unknown(self) -> bool:
        """The kind itself is not served here: its CRD is missing, say."""
        return not self.details.get("name")


class Conflict(KubeError):
    """A precondition (resourceVersion, uid) does not hold."""


class AlreadyExists(KubeError):
    """An object of this name exists."""


class Invalid(KubeError):
    """The object breaks a rule of its schema; `causes` name the fields."""


class Forbidden(KubeError):
    """No right to do this, or an admission rule or quota refused it."""


class Unauthorized(KubeError):
    """The credentials were not accepted."""


class Expired(KubeError):
    """The resourceVersion or the continue token is too old: list again."""


class TooManyRequests(KubeError):
    """The server protects itself; nothing was done."""


class NoAnswer(KubeError):
    """The connection failed or the answer did not come in time. With `sent`, a write may have happened."""

    def __init__(self, message: str, *, sent: bool = True) -> None:
        super().__init__(0, "NoAnswer", message)
        self.sent = sent

    @property
    def ambiguous(self) -> bool:
        return self.sent


_BY_REASON: dict[str, type[KubeError]] = {
    "NotFound": NotFound,
    "Conflict": Conflict,
    "AlreadyExists": AlreadyExists,
    "Invalid": Invalid,
    "Forbidden": Forbidden,
    "Unauthorized": Unauthorized,
    "Expired": Expired,
    "Gone": Expired,
    "TooManyRequests": TooManyRequests,
}
_BY_CODE: dict[int, type[KubeError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Expired,
    422: Invalid,
    429: TooManyRequests,
}


def from_status(status: Mapping[str, Any], code: int = 0, retry_after_s: float | None = None) -> KubeError:
    """The error that a Status object describes. `code` counts where the object has none."""
    code = int(status.get("code") or code)
    reason = str(status.get("reason") or "")
    details = status.get("details") or {}
    if retry_after_s is None and details.get("retryAfterSeconds"):
        retry_after_s = float(details["retryAfterSeconds"])
    kind = _BY_REASON.get(reason) or _BY_CODE.get(code) or KubeError
    return kind(code, reason, str(status.get("message") or f"HTTP {code}"), retry_after_s, details)


def from_response(code: int, body: bytes, retry_after: str | None = None) -> KubeError:
    """The error of an answer with this HTTP status; the body may be a Status or plain text (unknown API groups)."""
    retry_after_s = float(retry_after) if retry_after and retry_after.isdigit() else None
    try:
        status = orjson.loads(body)
    except orjson.JSONDecodeError:
        status = None
    if not isinstance(status, dict) or status.get("kind") != "Status":
        status = {"message": body[:500].decode(errors="replace").strip() or f"HTTP {code}"}
    return from_status(status, code, retry_after_s)
