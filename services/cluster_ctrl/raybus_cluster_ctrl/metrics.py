"""Metrics about RayClusters under the names that KubeRay's dashboards know, read from what Kubernetes says at each scrape. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from raybus.domain import conditions, labels, times
from raybus.observe.metrics import Sample, ServiceMetrics
from raybus_cluster_ctrl.decide.world import PROVISIONED

Json = Mapping[str, Any]
Roots = Callable[[], Iterable[Json]]

_IDENTITY = ("name", "namespace", "uid")


def watch(metrics: ServiceMetrics, roots: Roots) -> None:
    """`roots` gives the RayClusters that this replica looks after."""
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
