"""Metrics about RayClusters: those that KubeRay's dashboards know, read from what Kubernetes says at each scrape, and a histogram."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from raybus.decide.actions import PatchRayClusterStatus
from raybus.decide.outcome import Outcome, Result
from raybus.domain import conditions, labels, times
from raybus.observe.metrics import Sample, ServiceMetrics
from raybus.runtime.executor import OnOutcome
from raybus.runtime.telemetry import Seen
from raybus_cluster_ctrl.decide.world import PROVISIONED

Json = Mapping[str, Any]

_IDENTITY = ("name", "namespace", "uid")
PROVISIONING_BUCKETS_S = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)


def watch(metrics: ServiceMetrics, seen: Seen) -> None:
    """`seen` are the RayClusters that this replica looks after."""
    roots = seen.roots
    metrics.watch_each("kuberay_cluster_info", "1 for each RayCluster.", (*_IDENTITY, "owner_kind"), roots, info)
    metrics.watch_each(
        "kuberay_cluster_condition_provisioned",
        "1 for each RayCluster; whether all its pods were ready once.",
        (*_IDENTITY, "condition"),
        roots,
        provisioned,
    )
    metrics.watch_each(
        "kuberay_cluster_provisioned_duration_seconds",
        "Time from a RayCluster's creation until all its pods were ready, while it is provisioned.",
        _IDENTITY,
        roots,
        provisioning_seconds,
    )


def count(metrics: ServiceMetrics) -> OnOutcome:
    """Times of what ended here, as a histogram: unlike KubeRay's gauges it does not grow with the number of clusters."""
    seconds = metrics.seconds(
        "raybus_cluster_provisioning_seconds",
        "Time from a RayCluster's creation until all its pods were ready, of those that this replica saw become so.",
        buckets=PROVISIONING_BUCKETS_S,
    )

    def told(outcome: Outcome, root: Json | None) -> None:
        took_s = became_provisioned(outcome, root)
        if took_s is not None:
            seconds.observe(took_s)

    return told


def became_provisioned(outcome: Outcome, root: Json | None) -> float | None:
    """How long it took, if this outcome is the write of the first or another RayClusterProvisioned; else None."""
    action = outcome.action
    if root is None or outcome.result is not Result.DONE or not isinstance(action, PatchRayClusterStatus):
        return None
    if conditions.is_true(action.previous.get("conditions"), PROVISIONED):
        return None
    samples = provisioning_seconds({"metadata": root["metadata"], "status": action.status})
    return next((number for _, number in samples), None)


def info(root: Json) -> Iterable[Sample]:
    owner = (root["metadata"].get("labels") or {}).get(labels.ORIGINATED_FROM_CRD) or "None"
    yield (*_identity(root), owner), 1.0


def provisioned(root: Json) -> Iterable[Sample]:
    told = conditions.is_true((root.get("status") or {}).get("conditions"), PROVISIONED)
    yield (*_identity(root), "true" if told else "false"), 1.0


def provisioning_seconds(root: Json) -> Iterable[Sample]:
    current: Iterable[Json] = (root.get("status") or {}).get("conditions") or ()
    condition = next((c for c in current if c.get("type") == PROVISIONED and c.get("status") == "True"), None)
    if condition is None:
        return
    created = times.parse(root["metadata"].get("creationTimestamp"))
    since = times.parse(condition.get("lastTransitionTime"))
    if created is not None and since is not None:
        yield _identity(root), (since - created).total_seconds()


def _identity(root: Json) -> tuple[str, str, str]:
    meta = root["metadata"]
    return str(meta["name"]), str(meta["namespace"]), str(meta["uid"])
