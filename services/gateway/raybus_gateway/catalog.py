"""What the gateway knows of Kubernetes and of the streams, and what must be written so that these agree. Pure.

Objects come in as lists and watches bring them; writes come out. Every route is served by one watch (needs.py), and a subject holds
an object for as long as any of the watches that serve its controller shows the object there. So no stream waits for a watch that
serves only another one's routes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from raybus.bus.publisher import Held
from raybus.bus.routing import route_id, trees_of
from raybus.bus.streams import StreamSettings
from raybus.bus.subjects import object_subject, partition_of
from raybus.decide.actions import Json
from raybus.decide.routes import Projection
from raybus.domain import kinds
from raybus_gateway.holdings import Holdings, Identity, Place, Write, identity_at, number
from raybus_gateway.needs import Routes, Scope, needs_clusters
from raybus_gateway.parents import Parents
from raybus_gateway.views import Views, older


class Catalog:
    """One term's knowledge. `settings` and `held` are by controller; `held` is what its stream held when the term began."""

    def __init__(self, settings: Mapping[str, StreamSettings], held: Mapping[str, Mapping[str, Held]]) -> None:
        self._settings = settings
        self._serving: Mapping[Scope, Routes] = {}
        self._by: dict[tuple[str, str], frozenset[Scope]] = {}  # (controller, kind): the scopes that serve it
        self._siblings: dict[Scope, tuple[Scope, ...]] = {}  # through which the same objects may be seen
        self._holdings = Holdings(held)
        self._views = Views()
        self._parents = Parents()
        self._listings: dict[Scope, set[Identity]] = {}  # under way: what they have shown so far
        self._complete: set[Scope] = set()
        self._unserved: set[Scope] = set()  # complete because the server does not know the kind
        self._concluded: set[tuple[str, str]] = set()  # (controller, kind): the stream agrees with a complete list
        self._versions: dict[Scope, str] = {}
        # The uid and version at which one scope told that an object left it, while others still show it or lag behind that
        # version: what they show is older, and nothing is published from it.
        self._left: dict[Identity, tuple[str, int]] = {}

    # What is to be served

    def affected(self, serving: Mapping[Scope, Routes]) -> frozenset[Scope]:
        """Which scopes begin, end or serve other routes if this is declared: their watches must have ended by then."""
        both = self._serving.keys() | serving.keys()
        return frozenset(scope for scope in both if _pairs(self._serving.get(scope)) != _pairs(serving.get(scope)))

    def declare(self, serving: Mapping[Scope, Routes]) -> None:
        """From now on these scopes serve these routes. The affected ones count as never listed."""
        affected, before, self._serving = self.affected(serving), self._serving, dict(serving)
        by: dict[tuple[str, str], set[Scope]] = {}
        for scope, routes in serving.items():
            for controller in routes:
                by.setdefault((controller, scope.kind), set()).add(scope)
        self._by = {what: frozenset(scopes) for what, scopes in by.items()}
        self._siblings = {
            scope: tuple(o for o in serving if o != scope and (o.kind, o.namespace) == (scope.kind, scope.namespace))
            for scope in serving
        }
        for scope in affected:
            self._forget(scope, [*before.get(scope, ()), *serving.get(scope, ())])

    def _forget(self, scope: Scope, controllers: Iterable[str]) -> None:
        """Nothing of this scope counts as known or complete until it has been listed again."""
        self._complete.discard(scope)
        self._unserved.discard(scope)
        self._listings.pop(scope, None)
        self._versions.pop(scope, None)
        self._views.forget(scope)
        self._left = {identity: left for identity, left in self._left.items() if identity[0] != scope.kind}
        self._concluded -= {(controller, scope.kind) for controller in controllers}
        if scope.kind == kinds.RAYCLUSTER.kind:
            self._parents.forget(scope)
            self._concluded = {what for what in self._concluded if not self._via_clusters(*what)}

    # What a list or watch brings

    def begin(self, scope: Scope) -> None:
        self._listings[scope] = set()

    def listed(self, scope: Scope, obj: Json) -> list[Write]:
        """A list overrules what the stream held, also by an older version: the store may have been restored."""
        identity = _identity(obj)
        self._listings[scope].add(identity)
        return self._put(scope, identity, obj, overrule=True)

    def completed(self, scope: Scope, resource_version: str) -> list[Write]:
        """All of the scope has been listed: what it did not show is gone."""
        seen = self._listings.pop(scope)
        self._versions[scope] = resource_version
        self._complete.add(scope)
        self._unserved.discard(scope)
        writes: list[Write] = []
        for identity in [identity for identity in self._views.of(scope) if identity not in seen]:
            writes += self._gone(scope, identity, resource_version)
        return writes + self._conclude()

    def unserved(self, scope: Scope) -> list[Write] | None:
        """The server does not know the kind: nobody can have an object of it, and its list counts as complete and empty.

        None if that is not to be believed, because there were some: then nothing follows from it.
        """
        listed_before = scope in self._complete and scope not in self._unserved
        if listed_before or self._holdings.any_of(scope.kind):
            return None
        self._versions[scope] = "0"
        self._complete.add(scope)
        self._unserved.add(scope)
        return self._conclude()

    def changed(self, scope: Scope, obj: Json) -> list[Write]:
        self._versions[scope] = obj["metadata"]["resourceVersion"]
        return self._put(scope, _identity(obj), obj, overrule=False)

    def deleted(self, scope: Scope, obj: Json) -> list[Write]:
        """`obj` is the last state; it also comes when an object's labels leave the scope's selector."""
        self._versions[scope] = obj["metadata"]["resourceVersion"]
        seen = self._views.of(scope).get(_identity(obj))
        if seen is not None and seen["metadata"]["uid"] != obj["metadata"]["uid"]:
            return []  # its name has been taken by a newer one
        return self._gone(scope, _identity(obj), obj["metadata"]["resourceVersion"], obj)

    def bookmark(self, scope: Scope, resource_version: str) -> None:
        self._versions[scope] = resource_version
        of_kind = [other for other in self._serving if other.kind == scope.kind]
        self._left = {
            identity: (uid, at)
            for identity, (uid, at) in self._left.items()
            if identity[0] != scope.kind or self._lagging(of_kind, at) or self._views.beside(of_kind, identity)
        }

    # What may be marked

    def marks(self, live: Iterable[Scope]) -> list[tuple[str, str, str]]:
        """(controller, kind, resourceVersion) of all that is complete while these scopes are being watched."""
        living = set(live)
        return [
            (controller, kind, min((self._versions[scope] for scope in self._by[controller, kind]), key=number))
            for controller, kind in sorted(self._concluded)
            if self._by[controller, kind] <= living
        ]

    def vouched(self, controller: str, kind: str) -> frozenset[str]:
        """The ids of the routes that a marker of this kind speaks for."""
        return frozenset(
            route_id(route)
            for scope in self._by.get((controller, kind), ())
            for route in self._serving[scope].get(controller, ())
        )

    def incomplete(self) -> list[str]:
        """Kinds of which something is still to be listed."""
        return sorted({scope.kind for scope in self._serving if scope not in self._complete})

    @property
    def objects(self) -> int:
        return len(self._holdings)

    # Inside

    def _put(self, scope: Scope, identity: Identity, obj: Json, *, overrule: bool) -> list[Write]:
        if older(obj, self._views.of(scope).get(identity)) and not overrule:
            return []
        served = self._serving[scope]
        writes = self._place(scope, identity, obj, overrule=overrule)
        self._views.put(scope, identity, obj, served, wanted=identity in self._holdings)
        if identity[0] == kinds.RAYCLUSTER.kind and self._parents.put(scope, served, obj):
            writes += self._republish(identity[1], identity[2])
        return writes

    def _place(self, scope: Scope, identity: Identity, obj: Json, *, overrule: bool) -> list[Write]:
        """Bring an object to all subjects where this scope's routes want it, and away from those where none wants it."""
        writes: list[Write] = []
        wanted = self._places(scope, identity, obj)
        others = self._wanted_beside(scope, identity)
        for place, projections in wanted.items():
            versions, besides = others.get(place, ([], []))
            outdone = self._outdone(identity, obj, versions, overrule=overrule)
            asked = [*projections, *besides]
            if not outdone and self._holdings.stale(place, obj, asked, overrule=overrule):
                writes.append(self._holdings.put(place, obj, asked))
        unwanted = sorted(self._holdings.places(identity) - wanted.keys() - others.keys())
        return writes + [
            self._holdings.drop(place, obj)
            for place in unwanted
            if self._speaks_for(scope, place[0]) and self._knows_parents(place[0], scope.kind)
        ]

    def _outdone(self, identity: Identity, obj: Json, versions: list[int], *, overrule: bool) -> bool:
        """Whether another scope has told of a newer version. A list is not outdone by what was told of a departure."""
        meta = obj["metadata"]
        uid, left = self._left.get(identity, ("", -1))
        own = number(meta["resourceVersion"])
        return any(version > own for version in versions) or (not overrule and uid == meta["uid"] and left > own)

    def _gone(self, scope: Scope, identity: Identity, at: str, obj: Json | None = None) -> list[Write]:
        """The scope does not show the object any more: it is deleted, or its labels are others now."""
        last = self._views.remove(scope, identity)
        others = self._wanted_beside(scope, identity)
        self._left.pop(identity, None)
        if (state := obj or last) is not None and (
            self._views.beside(self._siblings[scope], identity) or self._lagging(self._siblings[scope], number(at))
        ):
            self._left[identity] = (state["metadata"]["uid"], number(at))
        writes = [
            self._holdings.drop(place, obj or last)
            for place in sorted(self._holdings.places(identity) - others.keys())
            if self._speaks_for(scope, place[0])
        ]
        if identity[0] == kinds.RAYCLUSTER.kind and self._parents.drop(scope, identity[1], identity[2]):
            writes += self._republish(identity[1], identity[2])
        return writes

    def _lagging(self, scopes: Iterable[Scope], at: int) -> bool:
        """Whether one of these may still tell of versions before `at`."""
        return any(number(self._versions.get(scope, "0")) < at for scope in scopes)

    def _republish(self, namespace: str, cluster: str) -> list[Write]:
        """The parents of a RayCluster are known now, or others: its objects move with it."""
        writes: list[Write] = []
        for scope, identity in self._views.members(namespace, cluster):
            writes += self._place(scope, identity, self._views.of(scope)[identity], overrule=False)
        return writes

    def _places(self, scope: Scope, identity: Identity, obj: Json) -> dict[Place, list[Projection]]:
        kind, _, name = identity
        places: dict[Place, list[Projection]] = {}
        for controller, routes in self._serving[scope].items():
            settings = self._settings[controller]
            for key, projections in trees_of(routes, obj, self._parents.of).items():
                part = partition_of(key, settings.partitions)
                subject = object_subject(controller, settings.generation, part, key, kind, name)
                places[controller, subject] = projections
        return places

    def _wanted_beside(self, scope: Scope, identity: Identity) -> dict[Place, tuple[list[int], list[Projection]]]:
        """Where the other scopes want the object: the versions that they show, and the projections.

        Versions are compared across uids here, because two live watches of one server tell of one history.
        """
        out: dict[Place, tuple[list[int], list[Projection]]] = {}
        for other, obj in self._views.beside(self._siblings[scope], identity):
            for place, projections in self._places(other, identity, obj).items():
                versions, asked = out.setdefault(place, ([], []))
                versions.append(number(obj["metadata"]["resourceVersion"]))
                asked += projections
        return out

    def _speaks_for(self, scope: Scope, controller: str) -> bool:
        """Whether "no scope wants it there" is knowledge: the scope serves the controller, and all its others are listed."""
        scopes = self._by.get((controller, scope.kind), frozenset())
        return scope in scopes and scopes.intersection(self._siblings[scope]) <= self._complete

    def _knows_parents(self, controller: str, kind: str) -> bool:
        """Parents are unknown before the RayClusters have been listed."""
        return not self._via_clusters(controller, kind) or self._clusters_listed()

    def _clusters_listed(self) -> bool:
        scopes = [scope for scope in self._serving if scope.kind == kinds.RAYCLUSTER.kind]
        return bool(scopes) and self._complete.issuperset(scopes)

    def _via_clusters(self, controller: str, kind: str) -> bool:
        scopes = self._by.get((controller, kind), frozenset())
        return any(needs_clusters(self._serving[scope][controller], kind) for scope in scopes)

    def _conclude(self) -> list[Write]:
        """Where all is listed for the first time, remove from the stream what is not in it."""
        writes: list[Write] = []
        for (controller, kind), scopes in self._by.items():
            listed = scopes <= self._complete and self._knows_parents(controller, kind)
            if listed and (controller, kind) not in self._concluded:
                self._concluded.add((controller, kind))
                writes += self._sweep(controller, kind)
        return writes

    def _sweep(self, controller: str, kind: str) -> list[Write]:
        wanted: set[Place] = set()
        shown: dict[Identity, Json] = {}
        for scope in self._by[controller, kind]:
            for identity, obj in self._views.of(scope).items():
                shown[identity] = obj
                wanted.update(self._places(scope, identity, obj))
        return [
            self._holdings.drop(place, shown.get(identity_at(place)))
            for place in self._holdings.of(controller, kind)
            if place not in wanted
        ]


def _identity(obj: Json) -> Identity:
    meta = obj["metadata"]
    return obj["kind"], meta.get("namespace", ""), meta["name"]


def _pairs(routes: Routes | None) -> frozenset[tuple[str, object]]:
    return frozenset((controller, route) for controller, declared in (routes or {}).items() for route in declared)
