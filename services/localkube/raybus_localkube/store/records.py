"""One stored object version, and one change of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import orjson

Json = dict[str, Any]
ChangeType = Literal["ADDED", "MODIFIED", "DELETED"]


@dataclass(slots=True, frozen=True)
class Record:
    """An object as stored: `body` is its JSON without `kind` and `apiVersion`, so that any served version can be put before it.

    Records are never changed; a write makes a new one.
    """

    namespace: str
    name: str
    uid: str
    rv: int
    labels: Json
    body: bytes

    def load(self) -> Json:
        """A fresh dict of the object, without `kind` and `apiVersion`."""
        loaded: Json = orjson.loads(self.body)
        return loaded

    @staticmethod
    def of(obj: Json, rv: int) -> Record:
        """Serialise an object; the caller has set metadata.resourceVersion to `rv` and took `kind` and `apiVersion` out."""
        meta = obj["metadata"]
        return Record(
            meta.get("namespace", ""), meta["name"], meta["uid"], rv, meta.get("labels") or {}, orjson.dumps(obj)
        )


@dataclass(slots=True)
class Change:
    """One change of one object: `record` is the new state, of a deletion the last one with the deletion's version."""

    type: ChangeType
    rv: int
    record: Record
    previous: Record | None
    frames: dict[Any, bytes] = field(default_factory=dict)
    """Rendered watch frames, shared by all watchers that want the same form."""
