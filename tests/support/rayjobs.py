"""Builders for tests of job_ctrl: a RayJob and what stands around it, each with the least that makes it valid."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from raybus.decide.actions import Action, PatchObject, PatchStatus
from raybus.decide.plan import Plan
from raybus.decide.tree import Fact, RootKey, Tree
from raybus_job_ctrl.decide.pipeline import conclude, decide
from raybus_job_ctrl.decide.policy import Policy
from raybus_job_ctrl.decide.world import JobWorld
from raybus_job_ctrl.observe import observe

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
POLICY = Policy()
KEY = RootKey("RayJob", "ml", "train")
UID = "job-uid"
KINDS = frozenset({"RayJob", "RayCluster", "Job", "Pod", "Service"})
CLUSTER_SPEC = {
    "rayVersion": "2.52.0",
    "headGroupSpec": {"template": {"spec": {"containers": [{"name": "ray-head", "image": "example/ray:2.52.0"}]}}},
}
ADDRESS = "train-c-head-svc.ml.svc.cluster.local:8265"


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def stamp(seconds: float = 0) -> str:
    return at(seconds).strftime("%Y-%m-%dT%H:%M:%SZ")


def ray_job(
    status: Mapping[str, Any] | None = None, meta: Mapping[str, Any] | None = None, **spec: Any
) -> dict[str, Any]:
    metadata = {
        "name": "train",
        "namespace": "ml",
        "uid": UID,
        "resourceVersion": "7",
        "finalizers": ["ray.io/rayjob-finalizer"],
        **(meta or {}),
    }
    whole = {"entrypoint": "python train.py", "rayClusterSpec": CLUSTER_SPEC, "submissionMode": "K8sJobMode", **spec}
    job = {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": metadata, "spec": whole}
    return job | ({"status": dict(status)} if status is not None else {})


def running(job_status: str = "", **more: Any) -> dict[str, Any]:
    status = {
        "jobDeploymentStatus": "Running",
        "jobId": "train-j",
        "rayClusterName": "train-c",
        "dashboardURL": ADDRESS,
        "startTime": stamp(-60),
        "succeeded": 0,
        "failed": 0,
        "rayClusterStatus": {"desiredCPU": "0", "desiredMemory": "0", "desiredGPU": "0", "desiredTPU": "0", "head": {}},
        "rayJobInfo": {},
    }
    return status | ({"jobStatus": job_status} if job_status else {}) | more


def known(session: str = "s1", head: str = "pod-1/0") -> dict[str, Any]:
    """Metadata of a RayJob whose head is remembered."""
    return {"annotations": {"raybus.io/head-session": session, "raybus.io/head-pod": head}}


def owned(kind: str, name: str, owner_kind: str = "RayJob", owner_uid: str = UID, **meta: Any) -> dict[str, Any]:
    reference = {"apiVersion": "ray.io/v1", "kind": owner_kind, "name": "o", "uid": owner_uid, "controller": True}
    metadata = {
        "name": name,
        "namespace": "ml",
        "uid": f"{kind}-{name}",
        "resourceVersion": "3",
        "creationTimestamp": stamp(-50),
        "ownerReferences": [reference],
        **meta,
    }
    return {"kind": kind, "metadata": metadata}


def cluster(state: str = "ready", spec: Mapping[str, Any] = CLUSTER_SPEC, **meta: Any) -> dict[str, Any]:
    return owned("RayCluster", "train-c", **meta) | {"spec": spec, "status": {"state": state} if state else {}}


def submitter(
    end: str = "", *, seconds: float = 0, reason: str = "BackoffLimitExceeded", **spec: Any
) -> dict[str, Any]:
    conditions = []
    if end:
        conditions = [
            {"type": end, "status": "True", "reason": reason, "message": "words", "lastTransitionTime": stamp(seconds)}
        ]
    return owned("Job", "train") | {"spec": spec, "status": {"conditions": conditions}}


def head_pod(
    uid: str = "pod-1", restarts: int = 0, phase: str = "Running", ready: str = "True", **meta: Any
) -> dict[str, Any]:
    pod = owned("Pod", f"train-c-head-{uid}", "RayCluster", "RayCluster-train-c", uid=uid, **meta)
    pod["metadata"]["labels"] = {"ray.io/node-type": "head", "ray.io/cluster": "train-c"}
    pod["spec"] = {"containers": [{"name": "ray-head"}]}
    pod["status"] = {
        "phase": phase,
        "conditions": [{"type": "ContainersReady", "status": ready}, {"type": "Ready", "status": ready}],
        "containerStatuses": [{"name": "ray-head", "restartCount": restarts}],
    }
    return pod


def service(cluster_name: str = "train-c", **meta: Any) -> dict[str, Any]:
    spec = {"selector": {"ray.io/cluster": cluster_name}, "clusterIP": "None"}
    return owned("Service", "train-head-svc", **meta) | {"spec": spec}


def record(
    status: str, message: str = "", start_ms: int = 1_772_366_400_123, end_ms: int | None = None
) -> dict[str, Any]:
    if end_ms is None:
        end_ms = 1_772_366_460_999 if status in ("SUCCEEDED", "FAILED", "STOPPED") else 0
    return {"status": status, "message": message or f"ray: {status.lower()}", "start_ms": start_ms, "end_ms": end_ms}


def tree(job: dict[str, Any] | None, *objects: dict[str, Any], key: RootKey = KEY, **more: Any) -> Tree:
    return Tree(key=key, root=job, objects=tuple(objects), complete=KINDS, **more)


def world(
    job: dict[str, Any] | None, *objects: dict[str, Any], fact: Mapping[str, Any] | None = None, **more: Any
) -> JobWorld:
    """The world of these objects. `fact` is what the probe learned; without a token of its own it is as new as can be."""
    seen = observe(tree(job, *objects, **more))
    if fact is None:
        return seen
    value = {"token": seen.token, "session": "s1", "record": None, "error": None, "asked": True, **fact}
    facts = {f"rayjob/{seen.submission_id}": Fact(value=value, seen_at=NOW)}
    return observe(tree(job, *objects, facts=facts, **more))


def decided(seen: JobWorld, now: datetime = NOW, policy: Policy = POLICY) -> Plan:
    return decide(seen, policy=policy, now=now)


def concluded(seen: JobWorld, *outcomes: Any, now: datetime = NOW, policy: Policy = POLICY) -> Plan:
    return conclude(seen, tuple(outcomes), policy=policy, now=now)


def status_after(seen: JobWorld, *outcomes: Any, now: datetime = NOW, policy: Policy = POLICY) -> dict[str, Any]:
    """The status that is written; the present one if nothing is."""
    plan = concluded(seen, *outcomes, now=now, policy=policy)
    assert names(plan) in ([], ["PatchRayJobStatus", "Reconsider"]), "a written status is looked at again"
    return dict(plan.actions[0].status if plan.actions else seen.status)  # it is a PatchStatus


def only(plan: Plan, kind: type[Action]) -> Any:
    """The one action of this class in the plan."""
    found = [action for action in plan.actions if isinstance(action, kind)]
    assert len(found) == 1, f"{len(found)} {kind.__name__} in {[type(action).__name__ for action in plan.actions]}"
    return found[0]


def names(plan: Plan) -> list[str]:
    return [type(action).__name__ for action in plan.actions]


def patched(obj: dict[str, Any], action: PatchObject | PatchStatus) -> dict[str, Any]:
    """The object after this patch, as the API server would have it."""
    if isinstance(action, PatchStatus):
        return {**obj, "status": dict(action.status)} | {"metadata": _next(obj["metadata"])}
    return merged(obj, action.patch) | {"metadata": _next(merged(obj, action.patch)["metadata"])}


def _next(meta: dict[str, Any]) -> dict[str, Any]:
    return {**meta, "resourceVersion": str(int(meta["resourceVersion"]) + 1)}


def merged(target: Any, patch: Any) -> Any:
    if not isinstance(patch, Mapping):
        return patch
    out = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            out.pop(key, None)
        else:
            out[key] = merged(out.get(key), value)
    return out
