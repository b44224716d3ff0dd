"""Metrics about RayJobs: those that KubeRay's dashboards know, read from what Kubernetes says at each scrape, and our own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from raybus.decide.actions import PatchRayJobStatus
from raybus.decide.outcome import Outcome, Result
from raybus.domain import times
from raybus.observe.metrics import Sample, ServiceMetrics
from raybus.runtime.executor import OnOutcome
from raybus.runtime.telemetry import Seen
from raybus_job_ctrl.decide.table import TERMINAL, Deployment

Json = Mapping[str, Any]

_IDENTITY = ("name", "namespace", "uid")
DURATION_BUCKETS_S = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 43_200.0, 86_400.0, 604_800.0)
GRACE_S = 60.0  # a cluster goes as fast as its pods end
WHYS = ("kept", "ttl", "overdue", "orphaned")


def watch(metrics: ServiceMetrics, seen: Seen, now: Callable[[], datetime]) -> None:
    """`seen` are the RayJobs that this replica looks after."""
    roots = seen.roots
    metrics.watch(
        "raybus_job_leftover_clusters",
        "RayClusters made for RayJobs that have ended, by why they are there: kept as the RayJob asks, ttl not over, overdue "
        "(their time to live ended more than a minute ago), orphaned (the RayJob is gone).",
        lambda: leftover_clusters(seen, now()),
        label="why",
    )
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


def count(metrics: ServiceMetrics) -> OnOutcome:
    """Times of what ended here, as a histogram: unlike KubeRay's gauges it does not grow with the number of jobs."""
    seconds = metrics.seconds(
        "raybus_job_execution_seconds",
        "Time from a RayJob's start until it ended, of those that this replica saw end.",
        ("job_deployment_status",),
        buckets=DURATION_BUCKETS_S,
    )

    def told(outcome: Outcome, _root: Json | None) -> None:
        ended = has_ended(outcome)
        if ended is not None:
            seconds.labels(ended[0]).observe(ended[1])

    return told


def has_ended(outcome: Outcome) -> tuple[str, float] | None:
    """State and seconds, if this outcome is the write of a verdict; else None."""
    action = outcome.action
    if outcome.result is not Result.DONE or not isinstance(action, PatchRayJobStatus):
        return None
    state, took_s = _state(action.status), _took_s(action.status)
    if state not in TERMINAL or _state(action.previous) in TERMINAL or took_s is None:
        return None
    return state, took_s


def leftover_clusters(seen: Seen, now: datetime) -> Mapping[str, int]:
    """How many there are, by why; each of WHYS is there, so that a leak shows as a change and not as something new."""
    found: Counter[str] = Counter()
    for key, root in seen.trees():
        if root is not None and _state(_status(root)) not in TERMINAL:
            continue
        for cluster in seen.kin(key, "RayCluster"):
            found[_why(root, cluster, now)] += 1
    return {why: found[why] for why in WHYS}


def _why(root: Json | None, cluster: Json, now: datetime) -> str:
    if root is None:
        deleting = times.parse(cluster["metadata"].get("deletionTimestamp"))
        return "ttl" if deleting is not None and now <= deleting + timedelta(seconds=GRACE_S) else "orphaned"
    spec = root.get("spec") or {}
    ended = times.parse(_status(root).get("endTime"))
    if not spec.get("shutdownAfterJobFinishes") or ended is None:
        return "kept"
    ttl = spec.get("ttlSecondsAfterFinished") or 0
    return "ttl" if now <= ended + timedelta(seconds=ttl + GRACE_S) else "overdue"


def info(root: Json) -> Iterable[Sample]:
    yield _identity(root), 1.0


def deployment_status(root: Json) -> Iterable[Sample]:
    yield (*_identity(root), _state(_status(root))), 1.0


def execution_seconds(root: Json) -> Iterable[Sample]:
    status = _status(root)
    state, took_s = _state(status), _took_s(status)
    if state not in TERMINAL or took_s is None:
        return
    failed = int(status.get("failed") or 0)
    retries = max(failed - 1, 0) if state == Deployment.FAILED else failed  # the last attempt is no retry of itself
    yield (*_identity(root), state, str(retries)), took_s


def _took_s(status: Json) -> float | None:
    began, ended = times.parse(status.get("startTime")), times.parse(status.get("endTime"))
    return None if began is None or ended is None else (ended - began).total_seconds()


def _status(root: Json) -> Json:
    return root.get("status") or {}


def _state(status: Json) -> str:
    return str(status.get("jobDeploymentStatus") or "")


def _identity(root: Json) -> tuple[str, str, str]:
    meta = root["metadata"]
    return str(meta["name"]), str(meta["namespace"]), str(meta["uid"])
