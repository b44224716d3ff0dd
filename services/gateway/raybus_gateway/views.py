"""What each list+watch shows of Kubernetes. Pure.

An object may be seen through several watches, each at its own pace. Each has its own view of it, so that what one watch says is
never undone by another one that lags.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from raybus.bus.projection import project, union
from raybus.decide.actions import Json
from raybus.domain import kinds, labels
from raybus_gateway.holdings import Identity, number
from raybus_gateway.needs import Routes, Scope, needs_clusters


class Views:
    def __init__(self) -> None:
        self._shown: dict[Scope, dict[Identity, Json]] = {}
        self._members: dict[tuple[str, str], set[tuple[Scope, Identity]]] = {}  # of a RayCluster: namespace and name

    def of(self, scope: Scope) -> Mapping[Identity, Json]:
        return self._shown.get(scope, {})

    def beside(self, siblings: Iterable[Scope], identity: Identity) -> list[tuple[Scope, Json]]:
        """What these other watches show of the object."""
        return [(scope, shown[identity]) for scope in siblings if identity in (shown := self.of(scope))]

    def members(self, namespace: str, cluster: str) -> list[tuple[Scope, Identity]]:
        """The objects of a RayCluster that may have to be published again when its parents change."""
        return sorted(self._members.get((namespace, cluster), ()))

    def put(self, scope: Scope, identity: Identity, obj: Json, served: Routes, *, wanted: bool) -> None:
        """Keep bodies only of what may have to be published again, and nothing of what no route can want."""
        kind, namespace, _ = identity
        self.remove(scope, identity)
        routes = [route for declared in served.values() for route in declared]
        cluster = _cluster(obj)
        if cluster and needs_clusters(routes, kind):
            kept: Json = project(obj, union(route.projection for route in routes))
            self._members.setdefault((namespace, cluster), set()).add((scope, identity))
        elif wanted or kind == kinds.RAYCLUSTER.kind:
            kept = _stub(obj)
        else:
            return
        self._shown.setdefault(scope, {})[identity] = kept

    def remove(self, scope: Scope, identity: Identity) -> Json | None:
        obj = self._shown.get(scope, {}).pop(identity, None)
        cluster = _cluster(obj) if obj is not None else None
        members = self._members.get((identity[1], cluster)) if cluster else None
        if cluster and members is not None:
            members.discard((scope, identity))
            if not members:
                del self._members[identity[1], cluster]
        return obj

    def forget(self, scope: Scope) -> None:
        for identity in list(self.of(scope)):
            self.remove(scope, identity)
        self._shown.pop(scope, None)


def older(obj: Json, seen: Json | None) -> bool:
    """Whether a version of the same object has been seen that is newer."""
    if seen is None:
        return False
    new, old = obj["metadata"], seen["metadata"]
    return bool(new["uid"] == old["uid"]) and number(new["resourceVersion"]) < number(old["resourceVersion"])


def _cluster(obj: Json) -> str | None:
    return (obj["metadata"].get("labels") or {}).get(labels.CLUSTER)


def _stub(obj: Json) -> dict[str, Any]:
    """What routing looks at."""
    meta = obj["metadata"]
    fields = ("name", "namespace", "uid", "resourceVersion", "labels", "ownerReferences")
    metadata = {key: meta[key] for key in fields if key in meta}
    return {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": metadata}
