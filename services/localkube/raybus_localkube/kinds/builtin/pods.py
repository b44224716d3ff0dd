"""Pods: defaults, admission (service account, tolerations), what may change, how they end, their table."""

from __future__ import annotations

from typing import Any

from raybus_localkube.kinds.builtin import podspec
from raybus_localkube.kinds.builtin.pod_table import POD_COLUMNS, pod_cells
from raybus_localkube.kinds.resource import Call, Column
from raybus_localkube.kinds.typed import TypedStrategy
from raybus_localkube.server import errors
from raybus_localkube.server.errors import Cause, forbidden_field, invalid

Json = dict[str, Any]
TOKEN_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105 -- a path, no secret
CHANGEABLE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)\n"
)
FIELDS = frozenset(
    {"spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "spec.hostNetwork", "status.phase",
     "status.podIP", "status.podIPs", "status.nominatedNodeName"}
)  # fmt: skip


class PodStrategy(TypedStrategy):
    has_generation = True
    has_status = True
    fields = FIELDS

    def default(self, obj: Json, call: Call) -> None:
        spec = obj.get("spec") or {}
        podspec.default(spec)
        spec.setdefault("enableServiceLinks", True)
        obj["spec"] = spec

    def prepare_create(self, obj: Json, call: Call) -> None:
        spec = obj["spec"]
        admit_service_account(obj, call)
        spec["priority"] = spec.get("priority") or 0
        spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
        add_tolerations(spec)
        obj["status"] = {"phase": "Pending", "qosClass": podspec.qos_class(spec)}
        if spec.get("schedulingGates"):
            blocked = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
            message = "Scheduling is blocked due to non-empty scheduling gates"
            obj["status"]["conditions"] = [
                blocked | {"lastProbeTime": None, "lastTransitionTime": None, "message": message}
            ]

    def prepare_update(self, new: Json, old: Json, subresource: str, call: Call) -> None:
        super().prepare_update(new, old, subresource, call)
        if subresource == "status":
            keep_status(new.setdefault("status", {}), old.get("status") or {})
            return
        fill_admitted(new["spec"], old["spec"])
        add_tolerations(new["spec"])

    def generation_changes(self, new: Json, old: Json) -> bool:
        return bool(new["spec"] != old["spec"])

    def validate(self, new: Json, old: Json | None, subresource: str, call: Call) -> list[Cause]:
        if old is None:
            return podspec.validate(new["spec"], "spec")
        if subresource in ("status", "resize", "ephemeralcontainers", "binding"):
            return []
        return change_causes(new["spec"], old["spec"])

    def grace(self, obj: Json, asked: int | None) -> int | None:
        spec, phase = obj["spec"], (obj.get("status") or {}).get("phase")
        period = asked if asked is not None else spec.get("terminationGracePeriodSeconds", 30)
        if period < 0:
            period = 1
        if not spec.get("nodeName") or phase in ("Succeeded", "Failed"):
            return 0
        return int(period)

    def field(self, obj: Json, path: str) -> str | None:
        spec, status = obj.get("spec") or {}, obj.get("status") or {}
        section, _, name = path.partition(".")
        if name == "hostNetwork":
            return "true" if spec.get(name) else "false"
        if name == "podIPs":
            return ",".join(ip["ip"] for ip in status.get("podIPs") or ())
        return str((spec if section == "spec" else status).get(name, ""))

    def row_conditions(self, obj: Json) -> list[Json]:
        word = {"Succeeded": "The pod has completed successfully.", "Failed": "The pod failed."}
        phase = (obj.get("status") or {}).get("phase", "")
        if phase not in word:
            return []
        return [{"type": "Completed", "status": "True", "reason": phase, "message": word[phase]}]

    def columns(self, version: str) -> tuple[Column, ...]:
        return POD_COLUMNS

    def cells(self, obj: Json, version: str, call: Call) -> list[Any]:
        return pod_cells(obj, call.env.now())


def add_tolerations(spec: Json) -> None:
    """Nodes may be away for five minutes, unless the pod says otherwise."""
    tolerations = list(spec.get("tolerations") or ())
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        if not any(covers(toleration, key) for toleration in tolerations):
            tolerations.append({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})
    spec["tolerations"] = tolerations


def covers(toleration: Json, key: str) -> bool:
    if toleration.get("effect") not in (None, "", "NoExecute"):
        return False
    return toleration.get("key", "") in ("", key) and (
        toleration.get("key") == key or toleration.get("operator") == "Exists"
    )


def admit_service_account(obj: Json, call: Call) -> None:
    """Name the service account and mount its token, as the admission of a real server does."""
    spec, meta = obj["spec"], obj["metadata"]
    name = spec.get("serviceAccountName") or "default"
    spec["serviceAccountName"] = spec["serviceAccount"] = name
    record = call.store.get("serviceaccounts", meta["namespace"], name)
    if record is None and name != "default":
        message = f'error looking up service account {meta["namespace"]}/{name}: serviceaccount "{name}" not found'
        raise errors.forbidden("", "pods", meta.get("name", ""), message)
    account = record.load() if record is not None else {}
    if account.get("imagePullSecrets") and not spec.get("imagePullSecrets"):
        spec["imagePullSecrets"] = account["imagePullSecrets"]
    automount = spec.get("automountServiceAccountToken", account.get("automountServiceAccountToken", True))
    if automount:
        mount_token(spec, call)


def mount_token(spec: Json, call: Call) -> None:
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    bare = [c for c in containers if not any(m.get("mountPath") == TOKEN_PATH for m in c.get("volumeMounts") or ())]
    if not bare:
        return
    present = next(
        (v["name"] for v in spec.get("volumes") or () if v.get("name", "").startswith("kube-api-access-")), None
    )
    name = present or f"kube-api-access-{call.env.suffix()}"
    for container in bare:
        mount = {"name": name, "readOnly": True, "mountPath": TOKEN_PATH}
        container["volumeMounts"] = [*(container.get("volumeMounts") or ()), mount]
    if present is None:
        sources = [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {
                "downwardAPI": {
                    "items": [
                        {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
                    ]
                }
            },
        ]
        volume = {"name": name, "projected": {"sources": sources, "defaultMode": podspec.FILE_MODE}}
        spec["volumes"] = [*(spec.get("volumes") or ()), volume]


def keep_status(new: Json, old: Json) -> None:
    """The class of service is the server's; podIP and the first of podIPs are one thing, of which podIP is right."""
    if "qosClass" in old:
        new["qosClass"] = old["qosClass"]
    ip, ips = new.get("podIP"), new.get("podIPs") or []
    if ip and (not ips or ips[0].get("ip") != ip):
        new["podIPs"] = [{"ip": ip}]
    elif ips and not ip:
        new["podIP"] = ips[0]["ip"]


def fill_admitted(new: Json, old: Json) -> None:
    """A PUT without what admission had set keeps it, where the server fills it in again."""
    for key in ("serviceAccountName", "serviceAccount", "priority", "preemptionPolicy", "nodeName"):
        if key in old and not new.get(key):
            new[key] = old[key]


def change_causes(new: Json, old: Json) -> list[Cause]:
    causes: list[Cause] = []
    for kind in ("containers", "initContainers"):
        if len(new.get(kind) or ()) != len(old.get(kind) or ()):
            message = "pod updates may not add or remove containers"
            return [forbidden_field(f"spec.{kind}", message)]
        for index, container in enumerate(new.get(kind) or ()):
            image = container.get("image", "")
            if not image:
                causes.append(errors.required(f"spec.{kind}[{index}].image"))
            elif image != image.strip():
                causes.append(
                    invalid(f"spec.{kind}[{index}].image", image, "must not have leading or trailing whitespace")
                )
    causes += deadline_causes(new, old)
    causes += toleration_causes(new, old)
    if not causes and settled(new, old) != settled(old, old):
        causes.append(forbidden_field("spec", CHANGEABLE))
    return causes


def deadline_causes(new: Json, old: Json) -> list[Cause]:
    fresh, before = new.get("activeDeadlineSeconds"), old.get("activeDeadlineSeconds")
    field = "spec.activeDeadlineSeconds"
    if fresh == before:
        return []
    if fresh is None:
        return [invalid(field, None, "must not update from a positive integer to nil value")]
    if not 1 <= fresh < 1 << 31:
        return [invalid(field, fresh, "must be between 1 and 2147483647, inclusive")]
    if before is not None and fresh > before:
        return [invalid(field, fresh, "must be less than or equal to previous value")]
    return []


def toleration_causes(new: Json, old: Json) -> list[Cause]:
    fresh = [{k: v for k, v in t.items() if k != "tolerationSeconds"} for t in new.get("tolerations") or ()]
    before = [{k: v for k, v in t.items() if k != "tolerationSeconds"} for t in old.get("tolerations") or ()]
    if any(toleration not in fresh for toleration in before):
        return [
            forbidden_field("spec.tolerations", "existing toleration can not be modified except its tolerationSeconds")
        ]
    return []


def settled(spec: Json, old: Json) -> Json:
    """The spec without what may change."""
    kept = {k: v for k, v in spec.items() if k not in ("activeDeadlineSeconds", "tolerations")}
    for kind in ("containers", "initContainers"):
        if kind in kept:
            kept[kind] = [{k: v for k, v in container.items() if k != "image"} for container in kept[kind]]
    if old.get("schedulingGates"):
        kept = {k: v for k, v in kept.items() if k not in ("schedulingGates", "nodeSelector", "affinity")}
    if old.get("terminationGracePeriodSeconds", 0) < 0 and kept.get("terminationGracePeriodSeconds") == 1:
        kept["terminationGracePeriodSeconds"] = old["terminationGracePeriodSeconds"]
    return kept
