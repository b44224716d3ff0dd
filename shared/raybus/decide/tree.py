"""What a decision looks at: one object and everything that belongs to it, as the mirror or a fresh read shows it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from raybus.decide.actions import Json


class RootKey(NamedTuple):
    """A tree's key: the kind of its root ("RayCluster"), namespace and name."""

    kind: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """Something a probe learned: `value` is JSON-like, `seen_at` when, `source` whom it asked (the head's session name)."""

    value: Any
    seen_at: datetime
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """A frozen snapshot of a tree. Objects are shared with the mirror: never modify them.

    `objects` are sorted by kind and name, without the root. `complete` holds the kinds whose list was complete: of a kind
    that is not in it, nothing counts as absent. `fresh` says the tree was just read from the API server. `takeover` says this
    is the first pass since this replica owns the tree: creations then need a fresh read.
    """

    key: RootKey
    root: Json | None
    objects: tuple[Json, ...] = ()
    complete: frozenset[str] = frozenset()
    fresh: bool = False
    takeover: bool = False
    facts: Mapping[str, Fact] = field(default_factory=dict)

    def of(self, kind: str) -> tuple[Json, ...]:
        """All objects of this kind, sorted by name; terminating ones included."""
        return tuple(obj for obj in self.objects if obj.get("kind") == kind)

    def named(self, kind: str, name: str) -> Json | None:
        return next((obj for obj in self.of(kind) if obj["metadata"]["name"] == name), None)
