"""The status of a RayCluster, computed anew from the pods in each pass, and whether it is worth a write. Pure.

What may live here: one function for each field. Fields that mean nothing are left out, so that the columns stay blank.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from raybus.decide.actions import PatchRayClusterStatus
from raybus.decide.outcome import Outcome
from raybus.domain import cluster_spec, services, times
from raybus.domain import conditions as merging
from raybus_cluster_ctrl.decide import conditions
from raybus_cluster_ctrl.decide.policy import Policy
from raybus_cluster_ctrl.decide.world import ClusterWorld

Json = Mapping[str, Any]

READY = "ready"
_COUNTERS = (
    "desiredWorkerReplicas", "minWorkerReplicas", "maxWorkerReplicas", "availableWorkerReplicas", "readyWorkerReplicas",
)  # fmt: skip
_AT_ONCE = ("state", "reason", "endpoints", "head", "conditions")


def compute(world: ClusterWorld, outcomes: tuple[Outcome, ...], policy: Policy, now: datetime) -> dict[str, Any]:
    """The whole status as it should be, times included."""
    old = world.status
    counters = _counters(world)
    status = {key: value for key, value in old.items() if key not in (*_COUNTERS, "state", "reason")}
    status |= {key: value for key, value in counters.items() if value}
    status |= policy.totals.get(world.present.version, lambda: _desired_resources(world))
    status["observedGeneration"] = world.present.root["metadata"].get("generation", 0)
    status["head"] = _head(world)
    status["lastUpdateTime"] = times.rfc3339(now)
    if ports := _endpoints(world):
        status["endpoints"] = ports
    if state := _state(world, outcomes):
        status["state"] = state
        if state != old.get("state"):
            status["stateTransitionTimes"] = {**(old.get("stateTransitionTimes") or {}), state: times.rfc3339(now)}
    if policy.conditions:
        status["conditions"] = _conditions(world, outcomes, now)
    return status


def worth_writing(old: Json, new: Json) -> bool:
    """Whether the two differ in meaning; times, generation and desired resources ride along with the rest."""
    return any((old.get(key) or None) != (new.get(key) or None) for key in (*_AT_ONCE, *_COUNTERS)) or not old


def due_at(old: Json, new: Json, interval_s: float) -> datetime | None:
    """When the write may be made: None is at once. Counters alone wait, so that a growing cluster costs few writes."""
    if not old or any((old.get(key) or None) != (new.get(key) or None) for key in _AT_ONCE):
        return None
    last = times.parse(old.get("lastUpdateTime"))
    return last + timedelta(seconds=interval_s) if last else None


def patch(world: ClusterWorld, status: Json) -> PatchRayClusterStatus:
    cluster = world.present
    return PatchRayClusterStatus(
        namespace=cluster.namespace,
        name=cluster.name,
        uid=cluster.uid,
        status=status,
        previous=world.status,
        resource_version=str(cluster.root["metadata"]["resourceVersion"]),
        reason=_difference(world.status, status),
    )


def _difference(old: Json, new: Json) -> str:
    changed = [key for key in (*_AT_ONCE, *_COUNTERS) if (old.get(key) or None) != (new.get(key) or None)]
    return f"changed: {', '.join(changed)}" if old else "first status"


def _desired_resources(world: ClusterWorld) -> Mapping[str, str]:
    return cluster_spec.desired_resources(world.present.spec, world.groups).printed()


def _counters(world: ClusterWorld) -> dict[str, int]:
    counts = cluster_spec.counts(world.groups)
    workers = (pod for members in world.workers.values() for pod in members)
    available = [pod for pod in workers if pod.phase == "Running"]
    return {
        "desiredWorkerReplicas": counts.desired,
        "minWorkerReplicas": counts.minimum,
        "maxWorkerReplicas": counts.maximum,
        "availableWorkerReplicas": len(available),
        "readyWorkerReplicas": sum(pod.is_ready for pod in available),
    }


def _state(world: ClusterWorld, outcomes: tuple[Outcome, ...]) -> str:
    """`ready` once everything ran; it stays, since others wait for it and the conditions tell about later trouble."""
    everything = len(world.pods) == world.wanted_workers + 1
    if everything and conditions.all_running(world.pods) and not conditions.had_error(outcomes):
        return READY
    return str(world.status.get("state") or "")


def _endpoints(world: ClusterWorld) -> dict[str, str]:
    service = world.head_service
    known: Mapping[str, str] = world.status.get("endpoints") or {}
    return {**known, **services.endpoints(service)} if service else dict(known)


def _head(world: ClusterWorld) -> dict[str, str]:
    head, service = conditions.current_head(world), world.head_service
    pod_ip = head.ip if head else ""
    cluster_ip = str((service.get("spec") or {}).get("clusterIP") or "") if service else ""
    fields = {
        "podIP": pod_ip,
        "podName": head.name if head else "",
        "serviceIP": pod_ip if cluster_ip == "None" else cluster_ip,
        "serviceName": service["metadata"]["name"] if service else "",
    }
    return {key: value for key, value in fields.items() if value}


def _conditions(world: ClusterWorld, outcomes: tuple[Outcome, ...], now: datetime) -> list[Json]:
    current = world.status.get("conditions") or []
    failure = conditions.replica_failure(outcomes)
    if failure is None and not conditions.had_error(outcomes):
        current = merging.without(current, conditions.REPLICA_FAILURE)
    wanted = (
        failure,
        conditions.head_pod_ready(world),
        conditions.provisioned(world),
        *conditions.not_suspended(),
    )
    return merging.merge(current, (condition for condition in wanted if condition is not None), now)
