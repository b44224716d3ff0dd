"""Events: one store for core/v1 and events.k8s.io/v1, kept in the core form."""

from __future__ import annotations

from typing import Any

import orjson

from raybus_localkube.kinds.ages import age
from raybus_localkube.kinds.decode import Decoder
from raybus_localkube.kinds.resource import Call, Column, Resource
from raybus_localkube.kinds.typed import TypedStrategy
from raybus_localkube.server.errors import Cause, invalid, required
from raybus_localkube.store.records import Record

Json = dict[str, Any]
NEW_TO_CORE = {
    "regarding": "involvedObject", "note": "message", "deprecatedSource": "source", "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp", "deprecatedCount": "count", "reportingController": "reportingComponent",
}  # fmt: skip
CORE_TO_NEW = {core: new for new, core in NEW_TO_CORE.items()}
COLUMNS = (
    Column("Last Seen"), Column("Type"), Column("Reason"), Column("Object"), Column("Subobject", priority=1), Column("Source", priority=1),
    Column("Message"), Column("First Seen", priority=1), Column("Count", priority=1), Column("Name", "string", "name", priority=1),
)  # fmt: skip
INVOLVED = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")


class EventStrategy(TypedStrategy):
    """`group` is that under which the resource is served; both share the stored form."""

    fields = frozenset(
        {*(f"involvedObject.{key}" for key in INVOLVED), *(f"regarding.{key}" for key in INVOLVED),
         "reason", "reportingComponent", "reportingController", "source", "type"}
    )  # fmt: skip

    def __init__(self, schema: str, group: str) -> None:
        super().__init__(schema)
        self.group = group

    def decode(self, raw: Any, resource: Resource, version: str, call: Call) -> tuple[Json, list[str]]:
        obj, problems = super().decode(raw, resource, version, call)
        if self.group:
            obj = {NEW_TO_CORE.get(key, key): value for key, value in obj.items()}
        return obj, problems

    def encode(self, record: Record, resource: Resource, version: str) -> bytes:
        if not self.group:
            return record.body
        converted = {CORE_TO_NEW.get(key, key): value for key, value in record.load().items()}
        Decoder().complete(converted, self.schema)
        return orjson.dumps(converted)

    def default(self, obj: Json, call: Call) -> None:
        for key in ("firstTimestamp", "lastTimestamp", "eventTime"):
            obj.setdefault(key, None)
        for key in ("reportingComponent", "reportingInstance"):
            obj.setdefault(key, "")
        obj.setdefault("source", {})
        obj.setdefault("involvedObject", {})

    def validate(self, new: Json, old: Json | None, subresource: str, call: Call) -> list[Cause]:
        involved, namespace = new["involvedObject"], new["metadata"].get("namespace", "")
        causes: list[Cause] = []
        given = involved.get("namespace", "")
        if (given or "default") != namespace and not (not given and namespace in ("default", "kube-system")):
            causes.append(invalid("involvedObject.namespace", given, "does not match event.namespace"))
        if self.group and new.get("eventTime"):
            causes += [
                required(CORE_TO_NEW.get(key, key))
                for key in ("reportingComponent", "reportingInstance", "reason")
                if not new.get(key)
            ]
            if not new.get("action"):
                causes.append(required("action"))
        return causes

    def field(self, obj: Json, path: str) -> str | None:
        section, _, name = path.partition(".")
        if section in ("involvedObject", "regarding"):
            return str((obj.get("involvedObject") or {}).get(name, ""))
        if path == "source":
            return str((obj.get("source") or {}).get("component") or obj.get("reportingComponent", ""))
        return str(obj.get(NEW_TO_CORE.get(path, path), ""))

    def columns(self, version: str) -> tuple[Column, ...]:
        return COLUMNS

    def cells(self, obj: Json, version: str, call: Call) -> list[Any]:
        core = {NEW_TO_CORE.get(key, key): value for key, value in obj.items()}
        now = call.env.now()
        involved, series = core.get("involvedObject") or {}, core.get("series") or {}
        first = core.get("firstTimestamp") or core.get("eventTime")
        last = series.get("lastObservedTime") or core.get("lastTimestamp") or first
        source = core.get("source") or {}
        shown = ", ".join(filter(None, (source.get("component") or core.get("reportingComponent"), source.get("host"))))
        target = f"{involved.get('kind', '').lower()}/{involved.get('name', '')}"
        return [
            age(last, now), core.get("type", ""), core.get("reason", ""), target, involved.get("fieldPath", ""), shown,
            (core.get("message") or "").strip(), age(first, now), series.get("count") or core.get("count") or 1, core["metadata"]["name"],
        ]  # fmt: skip
