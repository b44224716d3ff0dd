"""Kinds with few rules: config maps, secrets, namespaces, service accounts, nodes, leases, claims, endpoints, roles."""

from __future__ import annotations

import base64
import re
from typing import Any

from raybus_localkube.kinds.ages import age
from raybus_localkube.kinds.resource import Call, Column, label_problems, path_segment_problems
from raybus_localkube.kinds.typed import TypedStrategy
from raybus_localkube.server.errors import Cause, forbidden_field, invalid

Json = dict[str, Any]
CONFIG_KEY = re.compile(r"[-._a-zA-Z0-9]+")
KEY_HINT = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' "
    "(e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
IMMUTABLE = "field is immutable when `immutable` is set"
NAME = Column("Name", "string", "name")


class PrintedStrategy(TypedStrategy):
    """A kind whose table has columns between name and age."""

    between: tuple[Column, ...] = ()
    behind: tuple[Column, ...] = ()

    def words(self, obj: Json) -> list[Any]:
        return []

    def more(self, obj: Json) -> list[Any]:
        return []

    def columns(self, version: str) -> tuple[Column, ...]:
        return (NAME, *self.between, Column("Age"), *self.behind)

    def cells(self, obj: Json, version: str, call: Call) -> list[Any]:
        meta = obj["metadata"]
        return [meta["name"], *self.words(obj), age(meta.get("creationTimestamp"), call.env.now()), *self.more(obj)]


class PlainStrategy(PrintedStrategy):
    """Stored and checked by type, nothing more. The status belongs to its subresource, where there is one."""

    def __init__(self, schema: str, *, status: bool = False, generation: bool = False) -> None:
        super().__init__(schema)
        self.has_status, self.has_generation = status, generation

    def prepare_create(self, obj: Json, call: Call) -> None:
        if self.has_status:
            obj["status"] = {}


class ConfigMapStrategy(PrintedStrategy):
    between = (Column("Data"),)

    def validate(self, new: Json, old: Json | None, subresource: str, call: Call) -> list[Cause]:
        causes: list[Cause] = []
        binary = new.get("binaryData") or {}
        for section in ("data", "binaryData"):
            for key in new.get(section) or ():
                if not CONFIG_KEY.fullmatch(key):
                    causes.append(invalid(f"{section}[{key}]", key, KEY_HINT))
                if section == "data" and key in binary:
                    causes.append(invalid(f"data[{key}]", key, "duplicate of key present in binaryData"))
        if old is not None and old.get("immutable"):
            if not new.get("immutable"):
                causes.append(forbidden_field("immutable", IMMUTABLE))
            causes += [
                forbidden_field(key, IMMUTABLE) for key in ("data", "binaryData") if new.get(key) != old.get(key)
            ]
        return causes

    def words(self, obj: Json) -> list[Any]:
        return [len(obj.get("data") or ()) + len(obj.get("binaryData") or ())]


class SecretStrategy(PrintedStrategy):
    between = (Column("Type"), Column("Data"))
    fields = frozenset({"type"})

    def default(self, obj: Json, call: Call) -> None:
        obj.setdefault("type", "Opaque")
        for key, value in (obj.pop("stringData", None) or {}).items():
            obj.setdefault("data", {})[key] = base64.b64encode(value.encode()).decode()

    def validate(self, new: Json, old: Json | None, subresource: str, call: Call) -> list[Cause]:
        causes = [
            invalid(f"data[{key}]", key, KEY_HINT) for key in new.get("data") or () if not CONFIG_KEY.fullmatch(key)
        ]
        if old is not None and new["type"] != old.get("type"):
            causes.append(invalid("type", new["type"], "field is immutable"))
        if old is not None and old.get("immutable"):
            if not new.get("immutable"):
                causes.append(forbidden_field("immutable", IMMUTABLE))
            if new.get("data") != old.get("data"):
                causes.append(forbidden_field("data", IMMUTABLE))
        return causes

    def field(self, obj: Json, path: str) -> str | None:
        return str(obj.get("type", ""))

    def words(self, obj: Json) -> list[Any]:
        return [obj.get("type", ""), len(obj.get("data") or ())]


class NamespaceStrategy(PrintedStrategy):
    has_status = True
    between = (Column("Status"),)
    fields = frozenset({"status.phase"})

    def name_problems(self, name: str, *, prefix: bool) -> list[str]:
        return label_problems(name, prefix=prefix)

    def default(self, obj: Json, call: Call) -> None:
        obj["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = obj["metadata"].get("name", "")

    def prepare_create(self, obj: Json, call: Call) -> None:
        spec = obj.setdefault("spec", {})
        if "kubernetes" not in (spec.get("finalizers") or ()):
            spec["finalizers"] = [*(spec.get("finalizers") or ()), "kubernetes"]
        obj["status"] = {"phase": "Active"}

    def prepare_update(self, new: Json, old: Json, subresource: str, call: Call) -> None:
        if subresource == "finalize":
            new["status"] = old["status"]
            return
        super().prepare_update(new, old, subresource, call)
        new["spec"] = old["spec"]

    def holds(self, obj: Json) -> bool:
        return bool(obj["metadata"].get("finalizers") or (obj.get("spec") or {}).get("finalizers"))

    def mark_deleting(self, obj: Json) -> None:
        obj["status"] = (obj.get("status") or {}) | {"phase": "Terminating"}

    def field(self, obj: Json, path: str) -> str | None:
        return str((obj.get("status") or {}).get("phase", ""))

    def words(self, obj: Json) -> list[Any]:
        return [(obj.get("status") or {}).get("phase", "")]


class ServiceAccountStrategy(PrintedStrategy):
    pass


class NodeStrategy(PrintedStrategy):
    has_status = True
    fields = frozenset({"spec.unschedulable"})
    between = (Column("Status"), Column("Roles"))
    behind = (
        Column("Version"), Column("Internal-IP", priority=1), Column("External-IP", priority=1), Column("OS-Image", priority=1),
        Column("Kernel-Version", priority=1), Column("Container-Runtime", priority=1),
    )  # fmt: skip

    def field(self, obj: Json, path: str) -> str | None:
        return "true" if (obj.get("spec") or {}).get("unschedulable") else "false"

    def words(self, obj: Json) -> list[Any]:
        ready = next(
            (c["status"] for c in (obj.get("status") or {}).get("conditions") or () if c["type"] == "Ready"), "Unknown"
        )
        word = {"True": "Ready", "False": "NotReady"}.get(ready, "Unknown")
        if (obj.get("spec") or {}).get("unschedulable"):
            word += ",SchedulingDisabled"
        prefix = "node-role.kubernetes.io/"
        roles = sorted(
            key.removeprefix(prefix) for key in obj["metadata"].get("labels") or () if key.startswith(prefix)
        )
        return [word, ",".join(roles) or "<none>"]

    def more(self, obj: Json) -> list[Any]:
        status = obj.get("status") or {}
        info = status.get("nodeInfo") or {}
        found = {a["type"]: a["address"] for a in reversed(status.get("addresses") or ())}
        return [
            info.get("kubeletVersion", ""), found.get("InternalIP", "<none>"), found.get("ExternalIP", "<none>"),
            info.get("osImage") or "<unknown>", info.get("kernelVersion") or "<unknown>", info.get("containerRuntimeVersion") or "<unknown>",
        ]  # fmt: skip


class LeaseStrategy(PrintedStrategy):
    creates_on_update = True
    accepts_no_version = False
    between = (Column("Holder"),)

    def validate(self, new: Json, old: Json | None, subresource: str, call: Call) -> list[Cause]:
        spec = new.get("spec") or {}
        seconds, moves = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
        causes = []
        if seconds is not None and seconds <= 0:
            causes.append(invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0"))
        if moves is not None and moves < 0:
            causes.append(invalid("spec.leaseTransitions", moves, "must be greater than or equal to 0"))
        return causes

    def words(self, obj: Json) -> list[Any]:
        return [(obj.get("spec") or {}).get("holderIdentity", "")]


class RoleStrategy(PlainStrategy):
    """Roles and bindings are kept for whoever reads them; localkube does not evaluate them."""

    def name_problems(self, name: str, *, prefix: bool) -> list[str]:
        return path_segment_problems(name)

    def default(self, obj: Json, call: Call) -> None:
        if self.schema in ("Role", "ClusterRole"):
            obj.setdefault("rules", None)
        else:
            obj.get("roleRef", {}).setdefault("apiGroup", "rbac.authorization.k8s.io")
            for subject in obj.get("subjects") or ():
                if subject.get("kind") in ("User", "Group"):
                    subject.setdefault("apiGroup", "rbac.authorization.k8s.io")

    def columns(self, version: str) -> tuple[Column, ...]:
        if self.schema in ("Role", "ClusterRole"):
            return (NAME, Column("Created At", "date"))
        return (
            NAME,
            Column("Role"),
            Column("Age"),
            *(Column(n, priority=1) for n in ("Users", "Groups", "ServiceAccounts")),
        )

    def cells(self, obj: Json, version: str, call: Call) -> list[Any]:
        meta = obj["metadata"]
        if self.schema in ("Role", "ClusterRole"):
            return [meta["name"], meta["creationTimestamp"]]
        ref, subjects = obj.get("roleRef") or {}, obj.get("subjects") or ()
        accounts = ", ".join(
            f"{s.get('namespace', '')}/{s['name']}" for s in subjects if s.get("kind") == "ServiceAccount"
        )
        named = [", ".join(s["name"] for s in subjects if s.get("kind") == kind) for kind in ("User", "Group")]
        role = f"{ref.get('kind', '')}/{ref.get('name', '')}"
        return [meta["name"], role, age(meta.get("creationTimestamp"), call.env.now()), *named, accounts]


class ClaimStrategy(PlainStrategy):
    def __init__(self) -> None:
        super().__init__("PersistentVolumeClaim", status=True)

    between = tuple(
        Column(n) for n in ("Status", "Volume", "Capacity", "Access Modes", "StorageClass", "VolumeAttributesClass")
    )
    behind = (Column("VolumeMode", priority=1),)

    def default(self, obj: Json, call: Call) -> None:
        obj.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")

    def prepare_create(self, obj: Json, call: Call) -> None:
        # Without the controller that would take it away, the protection finalizer would hold claims for ever.
        obj["status"] = {"phase": "Pending"}

    def words(self, obj: Json) -> list[Any]:
        spec, status = obj["spec"], obj.get("status") or {}
        modes = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}
        phase = "Terminating" if obj["metadata"].get("deletionTimestamp") else status.get("phase", "")
        shown = ",".join(modes.get(mode, mode) for mode in status.get("accessModes") or ())
        capacity = (status.get("capacity") or {}).get("storage", "")
        return [phase, spec.get("volumeName", ""), capacity, shown, spec.get("storageClassName", ""), "<unset>"]

    def more(self, obj: Json) -> list[Any]:
        return [obj["spec"].get("volumeMode", "<unset>")]


class EndpointsStrategy(PlainStrategy):
    between = (Column("Endpoints"),)

    def words(self, obj: Json) -> list[Any]:
        found = []
        for subset in obj.get("subsets") or ():
            ports: list[Json] = subset.get("ports") or [{}]
            for port in ports:
                found += [f"{a['ip']}:{port['port']}" if port else a["ip"] for a in subset.get("addresses") or ()]
        shown = ",".join(found[:3]) + (f" + {len(found) - 3} more..." if len(found) > 3 else "")
        return [shown or "<none>"]


class EndpointSliceStrategy(PlainStrategy):
    has_generation = True
    between = (Column("AddressType"), Column("Ports"), Column("Endpoints"))

    def __init__(self) -> None:
        super().__init__("EndpointSlice", generation=True)

    def default(self, obj: Json, call: Call) -> None:
        obj.setdefault("endpoints", None)
        for port in obj.get("ports") or ():
            port.setdefault("name", "")
            port.setdefault("protocol", "TCP")
        obj.setdefault("ports", None)

    def generation_changes(self, new: Json, old: Json) -> bool:
        return {k: v for k, v in new.items() if k != "metadata"} != {k: v for k, v in old.items() if k != "metadata"}

    def words(self, obj: Json) -> list[Any]:
        ports = ",".join(str(p.get("port", "*")) for p in obj.get("ports") or ())
        ips = [a for e in obj.get("endpoints") or () for a in e.get("addresses") or ()]
        shown = ",".join(ips[:3]) + (f" + {len(ips) - 3} more..." if len(ips) > 3 else "")
        return [obj.get("addressType", ""), ports or "<unset>", shown or "<unset>"]
