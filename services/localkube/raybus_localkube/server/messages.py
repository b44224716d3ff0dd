"""A request and its answer, whatever carries them: HTTP, or a call in the same process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

JSON_TYPE = "application/json"


@dataclass(frozen=True, slots=True)
class User:
    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Query:
    """The query string; a key may be given more than once."""

    values: Mapping[str, Sequence[str]]

    def get(self, key: str, default: str = "") -> str:
        found = self.values.get(key)
        return found[0] if found else default

    def all(self, key: str) -> Sequence[str]:
        return self.values.get(key, ())

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def flag(self, key: str) -> bool:
        """Go's reading of a boolean: "", "0" and "false" are false, everything else is true."""
        return self.get(key).lower() not in ("", "0", "false")


@dataclass(slots=True)
class Request:
    """`warnings` gathers what the answer's Warning headers shall say."""

    method: str
    path: str
    query: Query
    body: bytes
    user: User
    accept: str = JSON_TYPE
    content_type: str | None = None
    warnings: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Response:
    status: int
    body: bytes
    content_type: str = JSON_TYPE
    headers: list[tuple[str, str]] = field(default_factory=list)


@dataclass(slots=True)
class Stream:
    """An answer of unknown length; the header goes out before the first part. Closing `parts` ends what feeds it."""

    parts: AsyncIterator[bytes]
    content_type: str = JSON_TYPE
    status: int = 200
    headers: list[tuple[str, str]] = field(default_factory=list)


Answer = Response | Stream


def json_response(obj: Any, status: int = 200, content_type: str = JSON_TYPE) -> Response:
    return Response(status, orjson.dumps(obj), content_type)
