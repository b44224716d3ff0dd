"""What history keeps of decisions and actions (docs/contracts.md, "History"). Pure. No bodies, no env values, no secrets."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from raybus.decide.actions import Action, CreateObject, ExistingObject, Json
from raybus.decide.outcome import Outcome
from raybus.decide.plan import Plan

MESSAGE_MAX = 1024


def target(action: Action) -> dict[str, str]:
    """What an action is about, in a word; empty if it has no object."""
    if isinstance(action, CreateObject | ExistingObject):
        return {"target": f"{action.kind.kind}/{action.name}"}
    submission = getattr(action, "submission_id", "")
    return {"target": f"submission/{submission}"} if submission else {}


def decision(stage: str, plan: Plan, root: Json | None, trigger: str, now: datetime) -> dict[str, Any]:
    """`stage` is "decide" (what to do) or "conclude" (what follows from it)."""
    return {
        "what": "decision",
        **_root(root, now),
        "stage": stage,
        "trigger": trigger,
        "confirm": plan.confirm,
        "notes": list(plan.notes),
        "actions": [{"class": type(a).__name__, **target(a), "reason": a.reason} for a in plan.actions],
        "wakeAt": plan.wake_at.isoformat() if plan.wake_at else None,
    }


def action(outcome: Outcome, root: Json | None, trigger: str, now: datetime, took_ms: float) -> dict[str, Any]:
    return {
        "what": "action",
        **_root(root, now),
        "trigger": trigger,
        "class": type(outcome.action).__name__,
        **target(outcome.action),
        "reason": outcome.action.reason,
        "result": outcome.result.value,
        "code": outcome.code,
        "message": outcome.message[:MESSAGE_MAX],
        "ms": round(took_ms, 1),
    }


def _root(root: Json | None, now: datetime) -> dict[str, str]:
    metadata = root["metadata"] if root else {}
    return {
        "time": now.isoformat(),
        "uid": metadata.get("uid", ""),
        "resourceVersion": metadata.get("resourceVersion", ""),
    }
