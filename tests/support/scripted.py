"""Small stand-ins for what the runtime talks to, and a controller whose decisions a test writes down.

They keep what they were asked, and fail when told to. The real parts are tested with the real runtime in tests/integration/runtime.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from raybus.bus.routing import trees_of
from raybus.decide.actions import CreatePod, Json, PatchRayClusterStatus
from raybus.decide.outcome import Outcome
from raybus.decide.plan import NOTHING, Plan
from raybus.decide.routes import FULL, Route, Via
from raybus.decide.tree import RootKey, Tree
from raybus.domain import kinds, labels
from raybus.domain.kinds import Kind
from raybus.kube import errors
from raybus.runtime.clock import SystemClock
from raybus.runtime.executor import Ports
from raybus.runtime.spec import ControllerSpec

ROUTES = (
    Route(root_kind="RayCluster", kind=kinds.RAYCLUSTER, via=Via.ROOT, projection=FULL),
    Route(root_kind="RayCluster", kind=kinds.POD, via=Via.LABEL, projection=FULL, label=labels.CLUSTER),
)


def key_of(name: str, namespace: str = "ns") -> RootKey:
    return RootKey("RayCluster", namespace, name)


def cluster(name: str, namespace: str = "ns", **status: Any) -> dict[str, Any]:
    metadata = {"namespace": namespace, "name": name, "uid": f"uid-{namespace}-{name}", "resourceVersion": "1"}
    return {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": metadata, "spec": {}, "status": status}


def pod(name: str, of: Json, **metadata: Any) -> dict[str, Any]:
    owner = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": of["metadata"]["name"], "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": of["metadata"]["namespace"],
            "name": name,
            "labels": {labels.CLUSTER: of["metadata"]["name"]},
            "ownerReferences": [{**owner, "uid": of["metadata"]["uid"]}],
            **metadata,
        },
        "spec": {},
    }


@dataclass
class Kube:
    """An API server of a few verbs. `fail["create"]` is a list of errors for the next calls of that verb, None lets one pass;
    `lose_answer` holds verbs whose next call happens, but is not answered. `calls` is what was asked."""

    objects: dict[tuple[str, str, str], dict[str, Any]] = field(default_factory=dict)
    fail: dict[str, list[errors.KubeError | None]] = field(default_factory=dict)
    lose_answer: set[str] = field(default_factory=set)
    calls: list[tuple[str, str]] = field(default_factory=list)
    slow_s: float = 0.0
    on_write: Callable[[Json], None] = lambda _obj: None
    in_flight: int = 0
    most_in_flight: int = 0
    _version: Iterable[int] = field(default_factory=lambda: itertools.count(100))

    def add(self, obj: Json) -> dict[str, Any]:
        meta = {
            "uid": f"uid-{obj['metadata']['name']}-{self._next()}",
            **obj["metadata"],
            "resourceVersion": self._next(),
        }
        stored = {**obj, "metadata": meta}
        self.objects[obj["kind"], meta["namespace"], meta["name"]] = stored
        self.on_write(stored)
        return stored

    def _next(self) -> str:
        return str(next(iter(self._version)))

    @property
    def writes(self) -> list[tuple[str, str]]:
        return [call for call in self.calls if call[0] not in ("get", "list")]

    async def _ask(self, verb: str, what: str) -> None:
        self.calls.append((verb, what))
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            await asyncio.sleep(self.slow_s)
        finally:
            self.in_flight -= 1
        planned = self.fail.get(verb)
        if planned and (error := planned.pop(0)) is not None:
            raise error

    def _answer(self, verb: str, body: dict[str, Any]) -> dict[str, Any]:
        if verb in self.lose_answer:
            self.lose_answer.discard(verb)
            raise errors.NoAnswer(f"{verb}: no answer")
        return body

    def _found(self, kind: Kind, namespace: str | None, name: str) -> dict[str, Any]:
        found = self.objects.get((kind.kind, namespace or "", name))
        if found is None:
            raise errors.NotFound(404, "NotFound", f'{kind.plural} "{name}" not found', details={"name": name})
        return found

    async def get(
        self, kind: Kind, namespace: str | None, name: str, *, timeout_s: float | None = None
    ) -> dict[str, Any]:
        await self._ask("get", f"{kind.kind}/{name}")
        return self._found(kind, namespace, name)

    async def list_all(
        self, kind: Kind, namespace: str | None = None, *, label_selector: str = "", field_selector: str = ""
    ) -> list[dict[str, Any]]:
        await self._ask("list", f"{kind.kind}?{label_selector}")
        return [obj for (of, ns, _), obj in self.objects.items() if of == kind.kind and ns == namespace]

    async def create(
        self, kind: Kind, body: Json, *, timeout_s: float | None = None, lane: Any = None
    ) -> dict[str, Any]:
        meta = body["metadata"]
        await self._ask("create", f"{kind.kind}/{meta['name']}")
        if (kind.kind, meta["namespace"], meta["name"]) in self.objects:
            raise errors.AlreadyExists(409, "AlreadyExists", f'{kind.plural} "{meta["name"]}" already exists')
        return self._answer("create", self.add({"kind": kind.kind, "apiVersion": kind.api_version, **body}))

    async def merge_patch(
        self, kind: Kind, namespace: str | None, name: str, patch: Json, *, uid: str | None = None,
        resource_version: str | None = None, subresource: str | None = None, timeout_s: float | None = None,
        lane: Any = None,
    ) -> dict[str, Any]:  # fmt: skip
        await self._ask("patch", f"{kind.kind}/{name}{f'/{subresource}' if subresource else ''}")
        found = self._found(kind, namespace, name)
        if resource_version not in (None, found["metadata"]["resourceVersion"]):
            raise errors.Conflict(409, "Conflict", "the object has been modified")
        merged = _merged(found, patch)
        merged["metadata"] = {**merged["metadata"], "resourceVersion": self._next()}
        self.objects[kind.kind, namespace or "", name] = merged
        self.on_write(merged)
        return self._answer("patch", merged)

    async def delete(
        self, kind: Kind, namespace: str | None, name: str, *, uid: str | None = None,
        resource_version: str | None = None, propagation: str = "Background", grace_seconds: int | None = None,
        timeout_s: float | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        await self._ask("delete", f"{kind.kind}/{name}")
        found = self._found(kind, namespace, name)
        version_held = resource_version in (None, found["metadata"]["resourceVersion"])
        if uid not in (None, found["metadata"]["uid"]) or not version_held:
            raise errors.Conflict(409, "Conflict", "Precondition failed")
        if found["metadata"].get("finalizers"):
            meta = {**found["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z", "resourceVersion": self._next()}
            self.objects[kind.kind, namespace or "", name] = {**found, "metadata": meta}
            return self._answer("delete", self.objects[kind.kind, namespace or "", name])
        del self.objects[kind.kind, namespace or "", name]
        return self._answer("delete", {"kind": "Status", "status": "Success"})


def _merged(obj: Json, patch: Json) -> dict[str, Any]:
    out = dict(obj)
    for name, value in patch.items():
        if value is None:
            out.pop(name, None)
        elif isinstance(value, Mapping):
            out[name] = _merged(out.get(name) or {}, value)
        else:
            out[name] = value
    return out


@dataclass
class Mirror:
    """Trees by the routes, without any network: what is upserted is there. `marker_age` and `unread` are the test's to set."""

    routes: tuple[Route, ...] = ROUTES
    objects: dict[str, Json] = field(default_factory=dict)
    marker_age: float | None = 1.0
    unread: set[int] = field(default_factory=set)
    freshened: list[RootKey] = field(default_factory=list)
    reads: list[frozenset[int]] = field(default_factory=list)

    def keys(self) -> set[RootKey]:
        return {key for obj in self.objects.values() for key in trees_of(self.routes, obj)}

    def tree(self, key: RootKey) -> Tree | None:
        mine = [obj for obj in self.objects.values() if key in trees_of(self.routes, obj)]
        if not mine:
            return None
        root = next((obj for obj in mine if obj["kind"] == key.kind and obj["metadata"]["name"] == key.name), None)
        rest = sorted((o for o in mine if o is not root), key=lambda o: (o["kind"], o["metadata"]["name"]))
        return Tree(key=key, root=root, objects=tuple(rest), complete=frozenset(r.kind.kind for r in self.routes))

    def roots(self, partition: int | None = None) -> list[RootKey]:
        return sorted(self.keys())

    def upsert(self, obj: Json) -> None:
        self.objects[obj["metadata"]["uid"]] = obj

    def deleted(self, kind: str, namespace: str, name: str, uid: str) -> None:
        self.objects.pop(uid, None)

    def fresh(self, key: RootKey, objects: Iterable[Json]) -> None:
        self.freshened.append(key)
        self.objects = {uid: obj for uid, obj in self.objects.items() if key not in trees_of(self.routes, obj)}
        for obj in objects:
            self.upsert(obj)

    def caught_up(self, partition: int) -> bool:
        return partition not in self.unread

    def marker_age_s(self, kind: str) -> float | None:
        return self.marker_age

    async def own(self, partitions: frozenset[int]) -> None:
        self.reads.append(partitions)
        await asyncio.sleep(0.001)


@dataclass
class Events:
    recorded: list[tuple[str, str, str]] = field(default_factory=list)

    def record(self, regarding: Json, type: str, reason: str, action: str, note: str) -> None:  # noqa: A002 - the port's name
        self.recorded.append((type, reason, note))


@dataclass
class History:
    records: list[Mapping[str, Any]] = field(default_factory=list)

    def record(self, namespace: str, kind: str, name: str, body: Mapping[str, Any]) -> None:
        self.records.append(body)

    def of(self, what: str) -> list[Mapping[str, Any]]:
        return [record for record in self.records if record["what"] == what]


@dataclass
class Outside:
    """All ports of an executor or controller."""

    kube: Kube = field(default_factory=Kube)
    mirror: Mirror = field(default_factory=Mirror)
    events: Events = field(default_factory=Events)
    history: History = field(default_factory=History)
    clock: SystemClock = field(default_factory=SystemClock)

    @property
    def ports(self) -> Ports:
        return Ports(self.kube, self.mirror, self.events, self.history)

    def exists(self, obj: Json) -> dict[str, Any]:
        """An object that API server and mirror both have."""
        stored = self.kube.add(obj)
        self.mirror.upsert(stored)
        return stored


Decision = Callable[[Tree, datetime], Plan]
Conclusion = Callable[[Tree, tuple[Outcome, ...], datetime], Plan]


def scripted(
    decide: Decision = lambda _tree, _now: NOTHING,
    conclude: Conclusion = lambda _tree, _outcomes, _now: NOTHING,
    **fields: Any,
) -> ControllerSpec[Tree]:
    """A controller of RayClusters whose world is the tree itself."""

    def observe(tree: Tree, /) -> Tree:
        return tree

    def decided(world: Tree, /, *, now: datetime) -> Plan:
        return decide(world, now)

    def concluded(world: Tree, outcomes: tuple[Outcome, ...], /, *, now: datetime) -> Plan:
        return conclude(world, outcomes, now)

    given: dict[str, Any] = {
        "name": "raycluster",
        "root_kind": kinds.RAYCLUSTER,
        "routes": ROUTES,
        "observe": observe,
        "decide": decided,
        "conclude": concluded,
        "actions": (CreatePod, PatchRayClusterStatus),
        **fields,
    }
    return ControllerSpec(**given)
