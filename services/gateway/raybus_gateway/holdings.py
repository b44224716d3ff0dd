"""What the subjects of the streams hold, and the messages that change it. Pure.

What is planned counts as held: if a write cannot be made, the whole term is given up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from raybus.bus.envelope import Op
from raybus.bus.projection import covers, project, union
from raybus.bus.publisher import Held
from raybus.bus.subjects import parse_object
from raybus.decide.actions import Json
from raybus.decide.routes import Projection

Identity = tuple[str, str, str]
"""Kind, namespace and name."""

Place = tuple[str, str]
"""Controller and subject."""


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


class Holdings:
    """`held` is what each controller's stream held when the term began."""

    def __init__(self, held: Mapping[str, Mapping[str, Held]]) -> None:
        self._held: dict[Place, _Version] = {}
        self._places: dict[Identity, set[Place]] = {}
        for controller, by_subject in held.items():
            for subject, item in by_subject.items():
                if item.op is Op.PUT:
                    self._hold((controller, subject), _Version(item.uid, item.resource_version, item.projection))

    def __len__(self) -> int:
        """How many objects are held, each counted once."""
        return len(self._places)

    def __contains__(self, identity: Identity) -> bool:
        return identity in self._places

    def places(self, identity: Identity) -> frozenset[Place]:
        return frozenset(self._places.get(identity, ()))

    def of(self, controller: str, kind: str) -> list[Place]:
        """All places of a controller that hold an object of this kind, in a fixed order."""
        return sorted(
            place
            for identity, places in self._places.items()
            if identity[0] == kind
            for place in places
            if place[0] == controller
        )

    def any_of(self, kind: str) -> bool:
        return any(identity[0] == kind for identity in self._places)

    def stale(self, place: Place, obj: Json, projections: Iterable[Projection], *, overrule: bool) -> bool:
        """Whether `obj` is to be written there: it is new, newer, or the body there holds too little.

        With `overrule` also if it is older.
        """
        held = self._held.get(place)
        meta = obj["metadata"]
        if held is None or held.uid != meta["uid"]:
            return True
        if held.resource_version == meta["resourceVersion"]:
            return not covers(held.projection, (projection.name for projection in projections))
        return overrule or number(meta["resourceVersion"]) > number(held.resource_version)

    def put(self, place: Place, obj: Json, projections: Iterable[Projection]) -> Write:
        projection = union(projections)
        meta = obj["metadata"]
        self._hold(place, _Version(meta["uid"], meta["resourceVersion"], projection.name))
        return Write(*place, Op.PUT, project(obj, projection), projection.name)

    def drop(self, place: Place, obj: Json | None) -> Write:
        """A tombstone for what the subject holds: with its uid, at the version of `obj`, the last one seen, if that is newer."""
        held = self._held.pop(place)
        identity = identity_at(place)
        places = self._places[identity]
        places.discard(place)
        if not places:
            del self._places[identity]
        version = held.resource_version
        if obj is not None and obj["metadata"]["uid"] == held.uid:
            version = max(version, obj["metadata"]["resourceVersion"], key=number)
        metadata = {"name": identity[2], "namespace": identity[1], "uid": held.uid, "resourceVersion": version}
        return Write(*place, Op.DELETED, {"metadata": metadata})

    def _hold(self, place: Place, version: _Version) -> None:
        self._held[place] = version
        self._places.setdefault(identity_at(place), set()).add(place)


def identity_at(place: Place) -> Identity:
    """The object that a subject is for."""
    address = parse_object(place[1])
    return address.kind, address.key.namespace, address.name


def number(resource_version: str) -> int:
    """Kubernetes promises decimal numbers that grow; anything else (a message of somebody else's) counts as oldest."""
    return int(resource_version) if resource_version.isdecimal() else -1
