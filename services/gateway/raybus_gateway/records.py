"""What of an object version goes to history: enough to see what happened, nothing that could be secret. Pure."""

from __future__ import annotations

from typing import Any

from raybus.bus.envelope import Op
from raybus.decide.actions import Json

# Short words of the status by which people tell versions apart. No messages: they may quote what users wrote.
_STATES = ("phase", "state", "jobStatus", "jobDeploymentStatus", "serviceStatus", "reason")
_COUNTS = ("readyWorkerReplicas", "availableWorkerReplicas", "desiredWorkerReplicas", "failed", "succeeded", "active")


def object_record(obj: Json, op: Op) -> dict[str, Any]:
    """The body of a history record about this version of an object."""
    meta = obj["metadata"]
    record: dict[str, Any] = {
        "what": "object",
        "operation": op.value,
        "uid": meta["uid"],
        "resourceVersion": meta["resourceVersion"],
    }
    if "generation" in meta:
        record["generation"] = meta["generation"]
    if "deletionTimestamp" in meta:
        record["deletionTimestamp"] = meta["deletionTimestamp"]
    status = obj.get("status") or {}
    for field in (*_STATES, *_COUNTS):
        if isinstance(status.get(field), str | int):
            record[field] = status[field]
    conditions = status.get("conditions")
    if isinstance(conditions, list):
        record["conditions"] = {
            str(condition.get("type")): _condition(condition) for condition in conditions if isinstance(condition, dict)
        }
    return record


def _condition(condition: Json) -> str:
    """As people read it: status, and the reason in brackets."""
    reason = condition.get("reason")
    return f"{condition.get('status')} ({reason})" if reason else str(condition.get("status"))
