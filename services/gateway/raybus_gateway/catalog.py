"""What the gateway knows of Kubernetes and of the streams, and what must be written so that these agree. Pure.

Objects come in as lists and watches bring them; writes come out. What is planned counts as held: if a write cannot be made, the
whole term is given up and a new catalog begins with what the streams really hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from raybus.bus.envelope import Op
from raybus.bus.projection import covers, project, union
from raybus.bus.publisher import Held
from raybus.bus.routing import trees_of
from raybus.bus.streams import StreamSettings
from raybus.bus.subjects import object_subject, parse_object, partition_of
from raybus.decide.actions import Json
from raybus.decide.routes import Projection
from raybus.domain import kinds, labels
from raybus_gateway.needs import Routes, Scope, needs_clusters
from raybus_gateway.parents import Parents

Identity = tuple[str, str, str]
"""Kind, namespace and name."""


@dataclass(frozen=True, slots=True)
class Write:
    """One message to one subject. `obj` is projected, or metadata alone for a tombstone (`projection` is empty then)."""

    controller: str
    subject: str
    op: Op
    obj: Json
    projection: str = ""


class _Version(NamedTuple):
    """What a subject holds: never a tombstone, those are as good as nothing."""

    uid: str
    resource_version: str
    projection: str


class Catalog:
    """One term's knowledge. `settings` and `held` are by controller; `held` is what its stream held when the term began."""

    def __init__(self, settings: Mapping[str, StreamSettings], held: Mapping[str, Mapping[str, Held]]) -> None:
        self._settings = settings
        self._routes: Routes = {}
        self._scopes: dict[str, frozenset[Scope]] = {}
        self._held: dict[str, dict[str, _Version]] = {controller: {} for controller in settings}
        self._subjects: dict[Identity, set[tuple[str, str]]] = {}
        self._known: dict[
            Identity, Json
        ] = {}  # what exists, as far as it is routed or may be; bodies where they may be needed
        self._members: dict[tuple[str, str], set[Identity]] = {}  # of a RayCluster, by namespace and name
        self._parents = Parents()
        self._listings: dict[Scope, set[Identity]] = {}  # under way: what they have shown so far
        self._complete: set[Scope] = set()
        self._unserved: set[Scope] = set()  # complete because the server does not know the kind
        self._concluded: set[tuple[str, str]] = set()  # (controller, kind): the stream agrees with a complete list
        self._versions: dict[Scope, str] = {}
        for controller, by_subject in held.items():
            for subject, item in by_subject.items():
                if item.op is Op.PUT:
                    self._hold(controller, subject, _Version(item.uid, item.resource_version, item.projection))

    # What is to be served

    def declare(self, routes: Routes, scopes: Iterable[Scope]) -> None:
        """From now on serve these routes. The kinds whose routes or scopes changed must be listed again: call forget()."""
        self._routes = routes
        by_kind: dict[str, set[Scope]] = {}
        for scope in scopes:
            by_kind.setdefault(scope.kind, set()).add(scope)
        self._scopes = {kind: frozenset(found) for kind, found in by_kind.items()}

    def forget(self, kind: str) -> None:
        """Nothing of this kind counts as known or complete until it has been listed again."""
        for scope in [scope for scope in self._complete | self._listings.keys() if scope.kind == kind]:
            self._complete.discard(scope)
            self._listings.pop(scope, None)
            self._versions.pop(scope, None)
        for identity in [identity for identity in self._known if identity[0] == kind]:
            self._unknow(identity)
        self._concluded = {(controller, of) for controller, of in self._concluded if of != kind}
        if kind == kinds.RAYCLUSTER.kind:
            self._parents = Parents()
            self._concluded = {(c, of) for c, of in self._concluded if not needs_clusters(self._routes.get(c, ()), of)}

    # What a list or watch brings

    def begin(self, scope: Scope) -> None:
        self._listings[scope] = set()

    def listed(self, scope: Scope, obj: Json) -> list[Write]:
        """A list overrules what the stream held, also by an older version: the store may have been restored."""
        identity = _identity(obj)
        self._listings[scope].add(identity)
        return self._put(identity, obj, overrule=True)

    def completed(self, scope: Scope, resource_version: str) -> list[Write]:
        """All of the scope has been listed: what it did not show is gone."""
        seen = self._listings.pop(scope)
        self._versions[scope] = resource_version
        self._complete.add(scope)
        self._unserved.discard(scope)
        writes: list[Write] = []
        for identity in [i for i in self._known if i[0] == scope.kind and scope.namespace in ("", i[1])]:
            if identity not in seen:
                writes += self._gone(identity)
        return writes + self._conclude()

    def unserved(self, scope: Scope) -> list[Write] | None:
        """The server does not know the kind: nobody can have an object of it, and its list counts as complete and empty.

        None if that is not to be believed, because there were some: then nothing follows from it.
        """
        listed_before = scope in self._complete and scope not in self._unserved
        if listed_before or any(identity[0] == scope.kind for identity in self._subjects):
            return None
        self._versions[scope] = "0"
        self._complete.add(scope)
        self._unserved.add(scope)
        return self._conclude()

    def changed(self, scope: Scope, obj: Json) -> list[Write]:
        self._versions[scope] = obj["metadata"]["resourceVersion"]
        return self._put(_identity(obj), obj, overrule=False)

    def deleted(self, scope: Scope, obj: Json) -> list[Write]:
        """`obj` is the last state; it also comes when an object's labels leave the watch's selector."""
        self._versions[scope] = obj["metadata"]["resourceVersion"]
        known = self._known.get(_identity(obj))
        if known is not None and known["metadata"]["uid"] != obj["metadata"]["uid"]:
            return []  # its name has been taken by a newer one
        return self._gone(_identity(obj), obj)

    def bookmark(self, scope: Scope, resource_version: str) -> None:
        self._versions[scope] = resource_version

    # What may be marked

    def marks(self, live: Iterable[Scope]) -> list[tuple[str, str, str]]:
        """(controller, kind, resourceVersion) of all that is complete while these scopes are being watched."""
        living = set(live)
        return [
            (controller, kind, min((self._versions[scope] for scope in self._scopes[kind]), key=_number))
            for controller, kind in sorted(self._concluded)
            if self._scopes.get(kind) and self._scopes[kind] <= living
        ]

    def incomplete(self) -> list[str]:
        """Kinds of which something is still to be listed."""
        return sorted(kind for kind, scopes in self._scopes.items() if not scopes <= self._complete)

    @property
    def objects(self) -> int:
        return len(self._known)

    # Inside

    def _put(self, identity: Identity, obj: Json, *, overrule: bool) -> list[Write]:
        if _older(obj, self._known.get(identity)) and not overrule:
            return []
        writes = self._place(identity, obj, overrule=overrule)
        self._remember(identity, obj)
        if identity[0] == kinds.RAYCLUSTER.kind and self._parents.put(self._routes, obj):
            writes += self._republish(identity[1], identity[2])
        return writes

    def _place(self, identity: Identity, obj: Json, *, overrule: bool) -> list[Write]:
        """Bring an object to all subjects where it belongs, and away from those where it does not."""
        writes: list[Write] = []
        wanted: set[tuple[str, str]] = set()
        for controller, subject, projections in self._places(identity, obj):
            wanted.add((controller, subject))
            if self._stale(controller, subject, obj, projections, overrule=overrule):
                projection = union(projections)
                meta = obj["metadata"]
                self._hold(controller, subject, _Version(meta["uid"], meta["resourceVersion"], projection.name))
                writes.append(Write(controller, subject, Op.PUT, project(obj, projection), projection.name))
        for controller, subject in self._subjects.get(identity, set()) - wanted:
            if self._sure(controller, identity[0]):
                writes.append(self._drop(controller, subject, obj))
        return writes

    def _places(self, identity: Identity, obj: Json) -> list[tuple[str, str, list[Projection]]]:
        kind, _, name = identity
        places = []
        for controller, routes in self._routes.items():
            settings = self._settings[controller]
            for key, projections in trees_of(routes, obj, self._parents.of).items():
                part = partition_of(key, settings.partitions)
                subject = object_subject(controller, settings.generation, part, key, kind, name)
                places.append((controller, subject, projections))
        return places

    def _stale(
        self, controller: str, subject: str, obj: Json, projections: list[Projection], *, overrule: bool
    ) -> bool:
        held = self._held[controller].get(subject)
        meta = obj["metadata"]
        if held is None or held.uid != meta["uid"]:
            return True
        if held.resource_version == meta["resourceVersion"]:
            return not covers(held.projection, (projection.name for projection in projections))
        return overrule or _number(meta["resourceVersion"]) > _number(held.resource_version)

    def _sure(self, controller: str, kind: str) -> bool:
        """Whether "it does not belong there" is knowledge: parents are unknown before the RayClusters have been listed."""
        return not needs_clusters(self._routes.get(controller, ()), kind) or self._listed(kinds.RAYCLUSTER.kind)

    def _listed(self, kind: str) -> bool:
        scopes = self._scopes.get(kind, frozenset())
        return bool(scopes) and scopes <= self._complete

    def _remember(self, identity: Identity, obj: Json) -> None:
        """Keep bodies only of what may have to be published again, and nothing of what no route can want."""
        kind, namespace, _ = identity
        cluster = (obj["metadata"].get("labels") or {}).get(labels.CLUSTER)
        self._unknow(identity)
        wanting = [route for routes in self._routes.values() for route in routes if route.kind.kind == kind]
        if cluster and needs_clusters(wanting, kind):
            self._known[identity] = project(obj, union(route.projection for route in wanting))
            self._members.setdefault((namespace, cluster), set()).add(identity)
        elif identity in self._subjects or kind == kinds.RAYCLUSTER.kind:
            self._known[identity] = _stub(obj)

    def _unknow(self, identity: Identity) -> Json | None:
        obj = self._known.pop(identity, None)
        cluster = (obj["metadata"].get("labels") or {}).get(labels.CLUSTER) if obj else None
        members = self._members.get((identity[1], cluster)) if cluster else None
        if cluster and members is not None:
            members.discard(identity)
            if not members:
                del self._members[identity[1], cluster]
        return obj

    def _republish(self, namespace: str, cluster: str) -> list[Write]:
        """The parents of a RayCluster are known now, or others: its objects move with it."""
        writes: list[Write] = []
        for identity in sorted(self._members.get((namespace, cluster), ())):
            writes += self._place(identity, self._known[identity], overrule=False)
        return writes

    def _gone(self, identity: Identity, obj: Json | None = None) -> list[Write]:
        last = self._unknow(identity)
        writes = [self._drop(*place, obj or last) for place in sorted(self._subjects.get(identity, ()))]
        if identity[0] == kinds.RAYCLUSTER.kind and self._parents.drop(identity[1], identity[2]):
            writes += self._republish(identity[1], identity[2])
        return writes

    def _conclude(self) -> list[Write]:
        """Where a complete list is at hand for the first time, remove from the stream what is not in it."""
        writes: list[Write] = []
        for controller, routes in self._routes.items():
            for kind in {route.kind.kind for route in routes}:
                if (controller, kind) not in self._concluded and self._listed(kind) and self._sure(controller, kind):
                    self._concluded.add((controller, kind))
                    writes += self._sweep(controller, kind)
        return writes

    def _sweep(self, controller: str, kind: str) -> list[Write]:
        writes: list[Write] = []
        for identity, places in list(self._subjects.items()):
            if identity[0] != kind:
                continue
            obj = self._known.get(identity)
            wanted = {(c, s) for c, s, _ in self._places(identity, obj)} if obj is not None else set()
            unwanted = [place for place in sorted(places - wanted) if place[0] == controller]
            writes += [self._drop(*place, obj) for place in unwanted]
        return writes

    def _hold(self, controller: str, subject: str, version: _Version) -> None:
        self._held[controller][subject] = version
        address = parse_object(subject)
        self._subjects.setdefault((address.kind, address.key.namespace, address.name), set()).add((controller, subject))

    def _drop(self, controller: str, subject: str, obj: Json | None) -> Write:
        """A tombstone for what the subject holds: with its uid, at the version of the deletion if that is known."""
        held = self._held[controller].pop(subject)
        address = parse_object(subject)
        identity = (address.kind, address.key.namespace, address.name)
        places = self._subjects[identity]
        places.discard((controller, subject))
        if not places:
            del self._subjects[identity]
        meta = obj["metadata"] if obj is not None and obj["metadata"]["uid"] == held.uid else None
        version = meta["resourceVersion"] if meta is not None else held.resource_version
        metadata = {"name": address.name, "namespace": identity[1], "uid": held.uid, "resourceVersion": version}
        return Write(controller, subject, Op.DELETED, {"metadata": metadata})


def _identity(obj: Json) -> Identity:
    meta = obj["metadata"]
    return obj["kind"], meta.get("namespace", ""), meta["name"]


def _stub(obj: Json) -> dict[str, Any]:
    """What routing looks at."""
    meta = obj["metadata"]
    fields = ("name", "namespace", "uid", "resourceVersion", "labels", "ownerReferences")
    metadata = {key: meta[key] for key in fields if key in meta}
    return {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": metadata}


def _older(obj: Json, known: Json | None) -> bool:
    if known is None:
        return False
    new, old = obj["metadata"], known["metadata"]
    return bool(new["uid"] == old["uid"]) and _number(new["resourceVersion"]) < _number(old["resourceVersion"])


def _number(resource_version: str) -> int:
    """Kubernetes promises decimal numbers that grow; anything else (a message of somebody else's) counts as oldest."""
    return int(resource_version) if resource_version.isdecimal() else -1
