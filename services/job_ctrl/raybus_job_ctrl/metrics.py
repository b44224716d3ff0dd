"""Metrics about RayJobs under the names that KubeRay's dashboards know, read from what Kubernetes says at each scrape. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from raybus.domain import times
from raybus.observe.metrics import Sample, ServiceMetrics
from raybus_job_ctrl.decide.table import TERMINAL, Deployment

Json = Mapping[str, Any]
Roots = Callable[[], Iterable[Json]]

_IDENTITY = ("name", "namespace", "uid")


def watch(metrics: ServiceMetrics, roots: Roots) -> None:
    """`roots` gives the RayJobs that this replica looks after."""
    metrics.watch_each("kuberay_job_info", "1 for each RayJob.", _IDENTITY, roots, info)
    metrics.watch_each(
        "kuberay_job_deployment_status",
        "1 for each RayJob; its state, empty while it is new.",
        (*_IDENTITY, "deployment_status"),
        roots,
        deployment_status,
    )
    metrics.watch_each(
        "kuberay_job_execution_duration_seconds",
        "Time from a RayJob's start until it ended, by the state it ended in and the attempts that failed before.",
        (*_IDENTITY, "job_deployment_status", "retry_count"),
        roots,
        execution_seconds,
    )


def info(root: Json) -> Iterable[Sample]:
    yield _identity(root), 1.0


def deployment_status(root: Json) -> Iterable[Sample]:
    yield (*_identity(root), _state(_status(root))), 1.0


def execution_seconds(root: Json) -> Iterable[Sample]:
    status = _status(root)
    state = _state(status)
    began, ended = times.parse(status.get("startTime")), times.parse(status.get("endTime"))
    if state not in TERMINAL or began is None or ended is None:
        return
    failed = int(status.get("failed") or 0)
    retries = max(failed - 1, 0) if state == Deployment.FAILED else failed  # the last attempt is no retry of itself
    yield (*_identity(root), state, str(retries)), (ended - began).total_seconds()


def _status(root: Json) -> Json:
    return root.get("status") or {}


def _state(status: Json) -> str:
    return str(status.get("jobDeploymentStatus") or "")


def _identity(root: Json) -> tuple[str, str, str]:
    meta = root["metadata"]
    return str(meta["name"]), str(meta["namespace"]), str(meta["uid"])
