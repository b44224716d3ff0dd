"""Which roots a RayCluster belongs to: the one hop of routes `via cluster`. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from raybus.bus.routing import roots_of
from raybus.decide.actions import Json
from raybus.decide.tree import RootKey
from raybus.domain import kinds
from raybus_gateway.needs import Routes, Scope


class Parents:
    """Learns RayClusters as each watch shows them; a root that any of them tells is a parent."""

    def __init__(self) -> None:
        self._of: dict[tuple[str, str], dict[Scope, frozenset[RootKey]]] = {}

    def put(self, scope: Scope, routes: Routes, cluster: Json) -> bool:
        """Learn a RayCluster by the routes that this watch serves; true if its parents are other ones than before."""
        meta = cluster["metadata"]
        found = frozenset(
            root
            for declared in routes.values()
            for route in declared
            if route.kind == kinds.RAYCLUSTER and route.root_kind != kinds.RAYCLUSTER.kind
            for root in roots_of(route, cluster)
        )
        return self._set(scope, (meta.get("namespace", ""), meta["name"]), found)

    def drop(self, scope: Scope, namespace: str, cluster: str) -> bool:
        """The watch does not show the RayCluster any more; true if its parents are other ones than before."""
        return self._set(scope, (namespace, cluster), frozenset())

    def forget(self, scope: Scope) -> None:
        for key in [key for key, told in self._of.items() if scope in told]:
            self._set(scope, key, frozenset())

    def of(self, root_kind: str, namespace: str, cluster: str) -> Iterable[RootKey]:
        return [root for root in self._all((namespace, cluster)) if root.kind == root_kind]

    def _set(self, scope: Scope, key: tuple[str, str], found: frozenset[RootKey]) -> bool:
        before = self._all(key)
        told = self._of.setdefault(key, {})
        told.pop(scope, None)
        if found:
            told[scope] = found
        if not told:
            del self._of[key]
        return self._all(key) != before

    def _all(self, key: tuple[str, str]) -> frozenset[RootKey]:
        return frozenset().union(*self._of.get(key, {}).values())
