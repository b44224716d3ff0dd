"""Events that repeat become one object with a counter. Pure: time is an argument.

The table decides what is to be sent and when; the shell (raybus.kube.events) sends it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

NOTE_MAX_BYTES = 1024  # the API server refuses more
WORD_MAX = 128  # action, reason, reportingController, reportingInstance
FORGET_AFTER = timedelta(minutes=6)  # a repetition after a longer pause is a new event
COUNT_AFTER_S = 2.0  # repetitions are gathered for so long, then the counter is written once
KEYS_MAX = 4096


@dataclass(frozen=True, slots=True)
class EventKey:
    """What makes two events the same one."""

    controller: str
    instance: str
    type: str
    reason: str
    action: str
    regarding: tuple[str, ...]


@dataclass(slots=True)
class Series:
    """One event object: `body` is what is created, `count` how often it happened, `written` how many of these are stored."""

    body: dict[str, Any]
    count: int
    last: datetime
    written: int = 0
    queued: bool = True

    @property
    def created(self) -> bool:
        return self.written > 0

    def create_body(self) -> dict[str, Any]:
        return {**self.body, **self.series()} if self.count > 1 else self.body

    def series(self) -> dict[str, Any]:
        return {"series": {"count": self.count, "lastObservedTime": micro_time(self.last)}}


class SeriesTable:
    def __init__(self, keys_max: int = KEYS_MAX) -> None:
        self._keys_max = keys_max
        self._table: OrderedDict[EventKey, Series] = OrderedDict()

    def observe(self, key: EventKey, body: dict[str, Any], now: datetime) -> tuple[Series, float | None]:
        """Note that it happened. The second value says in how many seconds to send it; None: a send is on its way already."""
        series = self._table.get(key)
        if series is None or now - series.last > FORGET_AFTER:
            series = Series(body=body, count=1, last=now)
            self._table[key] = series
            self._table.move_to_end(key)
            while len(self._table) > self._keys_max:
                self._table.popitem(last=False)
            return series, 0.0
        series.count += 1
        series.last = now
        self._table.move_to_end(key)
        if series.queued:
            return series, None
        series.queued = True
        return series, COUNT_AFTER_S


def event_body(
    key: EventKey, regarding: Mapping[str, Any], note: str, *, name: str, namespace: str, now: datetime
) -> dict[str, Any]:
    """An Event of events.k8s.io/v1."""
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": namespace},
        "eventTime": micro_time(now),
        "reportingController": key.controller,
        "reportingInstance": key.instance,
        "type": key.type,
        "reason": key.reason,
        "action": key.action,
        "regarding": dict(regarding),
        "note": cut(note, NOTE_MAX_BYTES),
    }


def reference(obj: Mapping[str, Any]) -> dict[str, str]:
    """The ObjectReference of an object, or of something that is a reference already."""
    meta = obj.get("metadata") or obj
    fields = {
        "apiVersion": obj.get("apiVersion"),
        "kind": obj.get("kind"),
        "namespace": meta.get("namespace"),
        "name": meta.get("name"),
        "uid": meta.get("uid"),
        "resourceVersion": meta.get("resourceVersion"),
    }
    return {field: str(value) for field, value in fields.items() if value}


def cut(text: str, max_bytes: int) -> str:
    """At most so many bytes of UTF-8, with an ellipsis where something is missing."""
    data = text.encode()
    if len(data) <= max_bytes:
        return text
    return data[: max_bytes - 3].decode(errors="ignore") + "…"


def micro_time(moment: datetime) -> str:
    """Kubernetes' MicroTime: six digits always, since a time without a fraction is refused."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
