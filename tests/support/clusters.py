"""RayClusters for tests: objects as Kubernetes would give them, and a small world in which plans of cluster_ctrl happen."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from raybus.decide.actions import Action, CreateObject, DeleteObject, PatchStatus, Reconsider, RecordEvent
from raybus.decide.outcome import Outcome, Result
from raybus.decide.plan import Plan
from raybus.decide.tree import RootKey, Tree
from raybus.domain import merge_patch
from raybus_cluster_ctrl.decide import pipeline
from raybus_cluster_ctrl.decide.policy import Policy
from raybus_cluster_ctrl.decide.world import ClusterWorld
from raybus_cluster_ctrl.observe import Observer

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
COMPLETE = frozenset({"RayCluster", "Pod", "Service"})
READY = {"type": "Ready", "status": "True"}
UNREADY = {"type": "Ready", "status": "False", "reason": "ContainersNotReady", "message": "unready"}


def group(name: str = "w", replicas: int | None = 2, **more: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "ray-worker", "image": "ray:1"}]}}
    numbers = {"replicas": replicas, "minReplicas": 0, "maxReplicas": 100, "numOfHosts": 1}
    return {"groupName": name, "template": template} | numbers | more


def cluster(*groups: dict[str, Any], name: str = "demo", **spec: Any) -> dict[str, Any]:
    head = {"template": {"spec": {"containers": [{"name": "ray-head", "image": "ray:1"}]}}}
    metadata = {"name": name, "namespace": "ns1", "uid": f"uid-{name}", "generation": 1, "resourceVersion": "1"}
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": metadata,
        "spec": {"headGroupSpec": head, "workerGroupSpecs": list(groups)} | spec,
    }


class Kubernetes:
    """One namespace with one RayCluster, without nodes. Objects are replaced on change, never modified, as in the mirror."""

    def __init__(self, root: dict[str, Any], policy: Policy | None = None) -> None:
        self.root: dict[str, Any] | None = root
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.policy = policy or Policy(version="raybus-test")
        self.observer = Observer()
        self.now = NOW
        self.events: list[tuple[str, str, str]] = []
        self.refuse: dict[type[Action], str] = {}
        self.deletion_lingers = False
        self.again = False
        self.writes = 0
        self._uids = itertools.count(1)
        self.key = RootKey("RayCluster", "ns1", root["metadata"]["name"])

    # What tests look at

    @property
    def status(self) -> dict[str, Any]:
        assert self.root is not None
        return self.root.get("status", {})

    def condition(self, type_: str) -> dict[str, Any]:
        return next((c for c in self.status.get("conditions", ()) if c["type"] == type_), {})

    def pods(self, group_name: str | None = None) -> list[dict[str, Any]]:
        pods = [obj for (kind, _), obj in sorted(self.objects.items()) if kind == "Pod"]
        return [p for p in pods if group_name in (None, p["metadata"]["labels"].get("ray.io/group"))]

    def names(self, group_name: str | None = None) -> list[str]:
        return [pod["metadata"]["name"] for pod in self.pods(group_name)]

    def reasons(self) -> list[str]:
        return [reason for _, reason, _ in self.events]

    # What happens to it

    def spec(self, **changes: Any) -> None:
        assert self.root is not None
        metadata = {**self.root["metadata"], "generation": self.root["metadata"]["generation"] + 1}
        self.root = {**self.root, "metadata": metadata, "spec": {**self.root["spec"], **changes}}

    def annotate(self, **annotations: str) -> None:
        assert self.root is not None
        self.root = {**self.root, "metadata": {**self.root["metadata"], "annotations": annotations}}

    def run(self, *names: str, **status: Any) -> None:
        """These pods, or all, become running and ready, or what `status` says."""
        for pod in self.pods():
            if not names or pod["metadata"]["name"] in names:
                running = {"phase": "Running", "conditions": [READY], "podIP": "10.0.0.1"}
                self.put({**pod, "status": running | status})

    def delete(self, name: str, kind: str = "Pod", *, lingers: bool = False) -> None:
        if lingers:
            obj = self.objects[kind, name]
            self.put({**obj, "metadata": {**obj["metadata"], "deletionTimestamp": "2026-01-01T12:00:00Z"}})
        else:
            del self.objects[kind, name]

    def put(self, obj: dict[str, Any]) -> None:
        self.objects[obj["kind"], obj["metadata"]["name"]] = obj

    def foreign_pod(self, name: str, node_type: str, group_name: str, owner_uid: str = "another") -> None:
        marks = {"ray.io/cluster": self.key.name, "ray.io/node-type": node_type, "ray.io/group": group_name}
        owners = [{"controller": True, "uid": owner_uid, "kind": "RayCluster", "name": self.key.name}]
        metadata = {
            "name": name,
            "namespace": "ns1",
            "uid": f"foreign-{name}",
            "labels": marks,
            "ownerReferences": owners,
        }
        self.put({"kind": "Pod", "metadata": metadata, "spec": {}, "status": {"phase": "Running"}})

    # Passes

    def tree(self, complete: frozenset[str] = COMPLETE) -> Tree:
        objects = tuple(obj for _, obj in sorted(self.objects.items()))
        return Tree(key=self.key, root=self.root, objects=objects, complete=complete)

    def world(self) -> ClusterWorld:
        return self.observer(self.tree())

    def decide(self) -> Plan:
        return pipeline.decide(self.world(), policy=self.policy, now=self.now)

    def reconcile(self) -> Plan:
        """One pass; the answer is the first plan."""
        self.again = False
        plan = self.decide()
        done = self._carry_out(plan)
        final = pipeline.conclude(self.world(), done, policy=self.policy, now=self.now)
        self._carry_out(final)
        return plan

    def settle(self, passes: int = 20) -> int:
        """Passes, a second apart, until one writes nothing; their number."""
        for number in range(1, passes + 1):
            before = self.writes
            self.reconcile()
            self.now += timedelta(seconds=1)
            if self.writes == before:
                return number
        raise AssertionError(f"still writing after {passes} passes")

    def _carry_out(self, plan: Plan) -> tuple[Outcome, ...]:
        outcomes: list[Outcome] = []
        for step in plan.steps:
            if all(outcome.ok for outcome in outcomes):
                outcomes += [self._act(action) for action in step]
            else:
                outcomes += [Outcome(action=action, result=Result.SKIPPED) for action in step]
        return tuple(outcomes)

    def _act(self, action: Action) -> Outcome:
        if (words := self.refuse.get(type(action))) is not None:
            return Outcome(action=action, result=Result.REFUSED, message=words, code=403)
        match action:
            case Reconsider():
                self.again = True
            case RecordEvent():
                self.events.append((action.type, action.event_reason, action.note))
            case CreateObject():
                return self._create(action)
            case DeleteObject():
                return self._delete(action)
            case PatchStatus():
                assert self.root is not None
                assert merge_patch.difference(action.previous, action.status), "a status write that changes nothing"
                self.writes += 1
                self.root = {**self.root, "status": dict(action.status)}
            case _:
                raise AssertionError(f"cluster_ctrl never does {action}")
        return Outcome(action=action, result=Result.DONE)

    def _create(self, action: CreateObject) -> Outcome:
        kind = action.kind.kind
        if (kind, action.name) in self.objects:
            return Outcome(action=action, result=Result.ALREADY_SO)
        self.writes += 1
        created = (NOW + timedelta(seconds=next(self._uids))).strftime("%Y-%m-%dT%H:%M:%SZ")
        metadata = {**action.body["metadata"], "uid": f"uid-{next(self._uids)}", "creationTimestamp": created}
        status = {"status": {"phase": "Pending"}} if kind == "Pod" else {}
        self.put({**action.body, "kind": kind, "metadata": metadata, **status})
        return Outcome(action=action, result=Result.DONE)

    def _delete(self, action: DeleteObject) -> Outcome:
        found = self.objects.get((action.kind.kind, action.name))
        if found is None or found["metadata"]["uid"] != action.uid:
            return Outcome(action=action, result=Result.GONE)
        assert "deletionTimestamp" not in found["metadata"], "a terminating pod is deleted again"
        self.writes += 1
        self.delete(action.name, action.kind.kind, lingers=self.deletion_lingers)
        return Outcome(action=action, result=Result.DONE)


def actions(plan: Plan, kind: type[Action]) -> list[Any]:
    return [action for action in plan.actions if isinstance(action, kind)]


def names_of(found: Iterable[Any]) -> list[str]:
    return [action.name for action in found]
