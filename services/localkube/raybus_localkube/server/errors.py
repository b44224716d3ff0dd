"""Refusals in the words of a real API server: Status objects with code, reason, details and causes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

Json = dict[str, Any]

REASONS = {
    "FieldValueInvalid": "Invalid value",
    "FieldValueRequired": "Required value",
    "FieldValueNotSupported": "Unsupported value",
    "FieldValueForbidden": "Forbidden",
    "FieldValueDuplicate": "Duplicate value",
    "FieldValueNotFound": "Not found",
    "FieldValueTooLong": "Too long",
    "FieldValueTooMany": "Too many",
    "FieldValueTypeInvalid": "Invalid value",
}


@dataclass(frozen=True, slots=True)
class Cause:
    """One wrong field."""

    field: str
    reason: str
    message: str

    def text(self) -> str:
        return f"{self.field}: {self.message}"

    def status(self) -> Json:
        return {"reason": self.reason, "message": self.message, "field": self.field}


def quote(value: Any) -> str:
    """A value as the server's messages show it."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


def invalid(field: str, value: Any, message: str) -> Cause:
    return Cause(field, "FieldValueInvalid", f"Invalid value: {quote(value)}: {message}")


def required(field: str, message: str = "") -> Cause:
    return Cause(field, "FieldValueRequired", "Required value" + (f": {message}" if message else ""))


def forbidden_field(field: str, message: str) -> Cause:
    return Cause(field, "FieldValueForbidden", f"Forbidden: {message}")


def not_supported(field: str, value: Any, supported: Sequence[str]) -> Cause:
    options = ", ".join(quote(option) for option in supported)
    return Cause(field, "FieldValueNotSupported", f"Unsupported value: {quote(value)}: supported values: {options}")


def duplicate(field: str, value: Any) -> Cause:
    return Cause(field, "FieldValueDuplicate", f"Duplicate value: {quote(value)}")


def too_long(field: str, limit: int) -> Cause:
    return Cause(field, "FieldValueTooLong", f"Too long: may not be more than {limit} bytes")


class ApiError(Exception):
    """A refusal. `plain` is sent as text instead of a Status where a real server's router does so."""

    def __init__(
        self, code: int, reason: str, message: str, details: Json | None = None, *, plain: bool = False,
        retry_after: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__(message)
        self.code, self.reason, self.message, self.details = code, reason, message, details
        self.plain, self.retry_after = plain, retry_after

    def status(self) -> Json:
        body: Json = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            body["reason"] = self.reason
        if self.details is not None:
            body["details"] = self.details
        return body | {"code": self.code}


def details(group: str, kind: str, name: str = "") -> Json:
    found = {"name": name, "group": group, "kind": kind}
    return {key: value for key, value in found.items() if value}


def qualified(plural: str, group: str) -> str:
    return f"{plural}.{group}" if group else plural


def page_not_found() -> ApiError:
    return ApiError(404, "NotFound", "404 page not found\n", plain=True)


def no_such_resource() -> ApiError:
    return ApiError(404, "NotFound", "the server could not find the requested resource", {})


def not_found(group: str, plural: str, name: str) -> ApiError:
    return ApiError(404, "NotFound", f'{qualified(plural, group)} "{name}" not found', details(group, plural, name))


def already_exists(group: str, plural: str, name: str, *, deleting: bool = False) -> ApiError:
    prefix = "object is being deleted: " if deleting else ""
    message = f'{prefix}{qualified(plural, group)} "{name}" already exists'
    return ApiError(409, "AlreadyExists", message, details(group, plural, name))


def conflict(group: str, plural: str, name: str, message: str) -> ApiError:
    text = f'Operation cannot be fulfilled on {qualified(plural, group)} "{name}": {message}'
    return ApiError(409, "Conflict", text, details(group, plural, name))


def invalid_object(group: str, kind: str, name: str, causes: Sequence[Cause]) -> ApiError:
    texts = list(dict.fromkeys(cause.text() for cause in causes))
    message = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    found = details(group, kind, name) | {"causes": [cause.status() for cause in causes]}
    return ApiError(422, "Invalid", f'{qualified(kind, group)} "{name}" is invalid: {message}', found)


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def internal(message: str) -> ApiError:
    """A real server's unclassified errors carry no reason."""
    return ApiError(500, "", message)


def forbidden(group: str, plural: str, name: str, message: str) -> ApiError:
    quoted = f' "{name}"' if name else ""
    return ApiError(
        403, "Forbidden", f"{qualified(plural, group)}{quoted} is forbidden: {message}", details(group, plural, name)
    )


def method_not_allowed(message: str, found: Json | None = None) -> ApiError:
    return ApiError(405, "MethodNotAllowed", message, found if found is not None else {})


def unsupported_media_type(accepted: Sequence[str], hint: str = "") -> ApiError:
    message = f"the body of the request was in an unknown format - accepted media types include: {', '.join(accepted)}"
    return ApiError(415, "UnsupportedMediaType", message + hint)


def expired(message: str) -> ApiError:
    return ApiError(410, "Expired", message)


def unauthorized() -> ApiError:
    return ApiError(401, "Unauthorized", "Unauthorized")


def too_large_version(requested: int, current: int) -> ApiError:
    message = f"Timeout: Too large resource version: {requested}, current: {current}"
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    return ApiError(504, "Timeout", message, {"causes": causes, "retryAfterSeconds": 1}, retry_after=1)
