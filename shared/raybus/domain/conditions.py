"""metav1.Condition: reading, making and merging.

Pure. `lastTransitionTime` moves only when the status changes; reason and message are brought up to date in place; new
types are appended, so the order is that of first setting.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from raybus.domain import times

Status = Literal["True", "False", "Unknown"]
Conditions = Sequence[Mapping[str, Any]]

_REASON = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
_MAX_REASON = 1024
_MAX_MESSAGE = 32768


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One condition as it should be; the time is added by `merge`."""

    type: str
    status: Status
    reason: str
    message: str = ""


def find(conditions: Conditions | None, type_: str) -> Mapping[str, Any] | None:
    return next((entry for entry in conditions or () if entry.get("type") == type_), None)


def is_true(conditions: Conditions | None, type_: str) -> bool:
    entry = find(conditions, type_)
    return entry is not None and entry.get("status") == "True"


def merge(current: Conditions | None, wanted: Iterable[Condition], now: datetime) -> list[Mapping[str, Any]]:
    """`current` with `wanted` merged in. Entries that say the same already are the same objects as before."""
    merged = list(current or ())
    places = {entry.get("type"): index for index, entry in enumerate(merged)}
    for condition in wanted:
        index = places.get(condition.type)
        entry = _entry(condition, merged[index] if index is not None else None, now)
        if index is None:
            places[condition.type] = len(merged)
            merged.append(entry)
        else:
            merged[index] = entry
    return merged


def without(current: Conditions | None, type_: str) -> list[Mapping[str, Any]]:
    return [entry for entry in current or () if entry.get("type") != type_]


def valid_reason(reason: str | None, default: str = "Unknown") -> str:
    """The reason if the API server would take it, else the default: one odd word must not make a status unwritable."""
    if reason and len(reason) <= _MAX_REASON and _REASON.fullmatch(reason):
        return reason
    return default


def _entry(condition: Condition, old: Mapping[str, Any] | None, now: datetime) -> Mapping[str, Any]:
    reason = valid_reason(condition.reason)
    message = condition.message[:_MAX_MESSAGE]
    if old is not None and old.get("status") == condition.status:
        if old.get("reason") == reason and old.get("message", "") == message:
            return old
        moment = old.get("lastTransitionTime") or times.rfc3339(now)
    else:
        moment = times.rfc3339(now)
    return {
        "type": condition.type,
        "status": condition.status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": moment,
    }
