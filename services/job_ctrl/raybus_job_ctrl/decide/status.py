"""How the status of a RayJob is put together. Pure: one function per change; each returns a new status.

Empty texts are left out, counters and the two structures always stand there, as other clients expect them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from raybus.domain import times
from raybus_job_ctrl.decide.table import TERMINAL, Deployment, JobState, Reason
from raybus_job_ctrl.decide.world import Record

Json = Mapping[str, Any]
Status = dict[str, Any]

# What the RayJob's definition has room for; anything else would be dropped by the server, and written again for ever.
_CLUSTER_FIELDS = (
    "state", "reason", "conditions", "endpoints", "head", "desiredCPU", "desiredMemory", "desiredGPU", "desiredTPU",
    "desiredWorkerReplicas", "minWorkerReplicas", "maxWorkerReplicas", "availableWorkerReplicas", "readyWorkerReplicas",
    "lastUpdateTime", "stateTransitionTimes", "observedGeneration",
)  # fmt: skip
_UNTOLD = frozenset({"lastUpdateTime", "stateTransitionTimes", "observedGeneration"})
EMPTY_CLUSTER: Json = {"desiredCPU": "0", "desiredMemory": "0", "desiredGPU": "0", "desiredTPU": "0", "head": {}}


def base(status: Json) -> Status:
    """The present status with the members that are always there."""
    return {
        **status,
        "succeeded": status.get("succeeded") or 0,
        "failed": status.get("failed") or 0,
        "rayClusterStatus": status.get("rayClusterStatus") or EMPTY_CLUSTER,
        "rayJobInfo": status.get("rayJobInfo") or {},
    }


def put(status: Json, **texts: str) -> Status:
    """`status` with these fields; an empty text takes the field away."""
    kept = {field: value for field, value in status.items() if field not in texts}
    return kept | {field: str(text) for field, text in texts.items() if text}


def with_cluster(status: Json, cluster: Json | None) -> Status:
    """With a copy of the cluster's status, unless the present copy says the same already."""
    told = base(status)
    if cluster is None:
        return told
    given = cluster.get("status") or {}
    copy = {**EMPTY_CLUSTER, **{field: given[field] for field in _CLUSTER_FIELDS if given.get(field) is not None}}
    if _meaning(copy) != _meaning(told["rayClusterStatus"]):
        told["rayClusterStatus"] = copy
    return told


def _meaning(cluster_status: Json) -> Json:
    return {field: value for field, value in cluster_status.items() if field not in _UNTOLD}


def with_record(status: Json, record: Record, seen_at: datetime) -> Status:
    """What Ray's record says; the poll that brought it was a good one. An end without a time ended when it was seen."""
    told = put(base(status), jobStatus=record.status, message=record.message, jobStatusCheckFailureStartTime="")
    info = dict(told["rayJobInfo"])
    if record.start_ms:
        info["startTime"] = times.rfc3339(from_ms(record.start_ms))
    if record.end_ms:
        info["endTime"] = times.rfc3339(from_ms(record.end_ms))
    elif record.status in (JobState.STOPPED, JobState.SUCCEEDED, JobState.FAILED):
        info.setdefault("endTime", times.rfc3339(seen_at))
    told["rayJobInfo"] = info
    return told


def ended(status: Json, deployment: Deployment, now: datetime, *, reason: str = "", message: str = "") -> Status:
    """Complete or Failed: the counters move once, and all times to live count from now."""
    assert deployment in TERMINAL
    told = put(base(status), jobDeploymentStatus=deployment, reason=reason, message=message, endTime=times.rfc3339(now))
    if deployment is Deployment.FAILED:
        told["failed"] += 1
    elif told.get("jobStatus") == JobState.SUCCEEDED:
        told["succeeded"] += 1
    return told


def invalid(status: Json, problem: str) -> Status:
    told = base(status)
    return put(told, jobDeploymentStatus=Deployment.VALIDATION_FAILED, reason=Reason.VALIDATION_FAILED, message=problem)


def from_ms(ms: int) -> datetime:
    """A time of Ray's. One beyond what a calendar has becomes the calendar's last second."""
    try:
        return datetime.fromtimestamp(ms // 1000, tz=UTC)
    except (OverflowError, ValueError, OSError):
        return datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
