"""Which roots a RayCluster belongs to: the one hop of routes `via cluster`. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from raybus.bus.routing import roots_of
from raybus.decide.actions import Json
from raybus.decide.tree import RootKey
from raybus.domain import kinds
from raybus_gateway.needs import Routes


class Parents:
    def __init__(self) -> None:
        self._of: dict[tuple[str, str], frozenset[RootKey]] = {}

    def put(self, routes: Routes, cluster: Json) -> bool:
        """Learn a RayCluster; true if its parents are other ones than before."""
        meta = cluster["metadata"]
        key = (meta.get("namespace", ""), meta["name"])
        found = frozenset(
            root
            for declared in routes.values()
            for route in declared
            if route.kind == kinds.RAYCLUSTER and route.root_kind != kinds.RAYCLUSTER.kind
            for root in roots_of(route, cluster)
        )
        before = self._of.get(key, frozenset())
        if found:
            self._of[key] = found
        else:
            self._of.pop(key, None)
        return found != before

    def drop(self, namespace: str, cluster: str) -> bool:
        """Forget a RayCluster; true if it had parents."""
        return self._of.pop((namespace, cluster), None) is not None

    def of(self, root_kind: str, namespace: str, cluster: str) -> Iterable[RootKey]:
        return [root for root in self._of.get((namespace, cluster), ()) if root.kind == root_kind]
