"""Trees for tests of a controller's own metrics: see raybus.runtime.telemetry.Seen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from raybus.decide.tree import RootKey

Json = dict[str, Any]


class Trees:
    """Roots, each with its relatives; `found` may be changed between two scrapes."""

    def __init__(self, *roots: Json) -> None:
        self.found: list[tuple[RootKey, Json | None, list[Json]]] = []
        for root in roots:
            self.add(root)

    def add(self, root: Json, *kin: Json) -> None:
        meta = root["metadata"]
        self.found.append((RootKey(root["kind"], meta["namespace"], meta["name"]), root, list(kin)))

    def orphan(self, key: RootKey, *kin: Json) -> None:
        self.found.append((key, None, list(kin)))

    def roots(self) -> Iterator[Json]:
        return (root for _, root, _ in self.found if root is not None)

    def trees(self) -> Iterator[tuple[RootKey, Json | None]]:
        return ((key, root) for key, root, _ in self.found)

    def kin(self, key: RootKey, kind: str) -> list[Json]:
        return [obj for found, _, kin in self.found if found == key for obj in kin if obj["kind"] == kind]
