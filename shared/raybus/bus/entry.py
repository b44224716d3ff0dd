"""One object of one tree as a mirror holds it, and how a piece of news relates to it. Pure."""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple

import orjson

_FAILED = b'"phase":"Failed"'
_DELETING = b'"deletionTimestamp":'


class Ref(NamedTuple):
    """An object whose body was not in its message (too large): read it with a GET and hand it to Mirror.learned."""

    kind: str
    namespace: str
    name: str
    uid: str
    resource_version: str


class Entry:
    """`own`: an own write that the stream has not said yet, made at `since`. `doubted`: the stream should have said it by now,
    so whatever it says counts. `turn` is the last re-read that met the object, `arrival` a running number.
    """

    __slots__ = ("_body", "_obj", "arrival", "doubted", "own", "rv", "since", "turn", "uid")

    def __init__(self, uid: str, rv: str, body: bytes = b"", obj: dict[str, Any] | None = None) -> None:
        self.uid = uid
        self.rv = rv
        self._body = body
        self._obj = obj
        self.own = False
        self.doubted = False
        self.since = 0.0
        self.turn = 0
        self.arrival = 0

    @property
    def obj(self) -> dict[str, Any]:
        """The object, decoded when somebody looks: versions that nobody looks at cost nothing."""
        if self._obj is None:
            self._obj = orjson.loads(self._body)
            self._body = b""
        return self._obj

    @property
    def deleting(self) -> bool:
        return _DELETING in self._body if self._obj is None else "deletionTimestamp" in self._obj["metadata"]

    @property
    def failed(self) -> bool:
        if self._obj is None:
            return _FAILED in self._body
        return (self._obj.get("status") or {}).get("phase") == "Failed"


class Relation(Enum):
    """What the stream says, beside what is held."""

    NEWS = "news"  # it goes over what is held
    ECHO = "echo"  # the version that is held
    BEHIND = "behind"  # the stream has not yet said what is held


def newer(version: str, than: str) -> bool:
    """Whether a resourceVersion is newer than another one of the same uid; unequal ones that cannot be compared are."""
    if version.isdigit() and than.isdigit():
        return int(version) > int(than)
    return version != than


def relation(held: Entry | None, uid: str, version: str, created: str) -> Relation:
    """`created` is the news' creationTimestamp; it is looked at only where an own write and the news differ in uid."""
    if held is None or held.doubted:
        return Relation.NEWS
    if held.uid == uid:
        if version == held.rv:
            return Relation.ECHO
        return Relation.NEWS if newer(version, held.rv) or not held.own else Relation.BEHIND
    if not held.own:
        return Relation.NEWS  # the stream's own order
    return Relation.NEWS if created > str(held.obj["metadata"].get("creationTimestamp", "")) else Relation.BEHIND


def trigger(kind: str, *, is_root: bool, before: Entry | None, after: Entry) -> str:
    """In words, why a tree is due. Names are left out: only the words are looked at."""
    if after.deleting and not (before and before.deleting):
        return f"{kind} being deleted"
    if after.failed and not (before and before.failed):
        return f"{kind} failed"
    if before is None:
        return f"{kind} seen"
    if is_root and _generation(before) != _generation(after):
        return f"{kind} spec changed"
    return f"{kind} changed"


def _generation(entry: Entry) -> object:
    return entry.obj["metadata"].get("generation")
