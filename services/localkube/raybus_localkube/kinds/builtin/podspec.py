"""Defaults and rules of a pod's spec, wherever it stands: in a Pod or in a Job's template. Pure."""

from __future__ import annotations

from typing import Any

from raybus_localkube.kinds import scalars
from raybus_localkube.kinds.resource import LABEL_HINT, label_problems
from raybus_localkube.server.errors import Cause, duplicate, invalid, not_supported, required

Json = dict[str, Any]
FILE_MODE = 420
VOLUME_MODES = ("configMap", "secret", "projected", "downwardAPI")


def default(spec: Json) -> None:
    """Fill in what the API server fills in for any pod spec."""
    for key, value in (
        ("restartPolicy", "Always"), ("terminationGracePeriodSeconds", 30), ("dnsPolicy", "ClusterFirst"),
        ("securityContext", {}), ("schedulerName", "default-scheduler"),
    ):  # fmt: skip
        spec.setdefault(key, value if not isinstance(value, dict) else {})
    if spec.get("serviceAccountName"):
        spec["serviceAccount"] = spec["serviceAccountName"]
    elif spec.get("serviceAccount"):
        spec["serviceAccountName"] = spec["serviceAccount"]
    for container in all_containers(spec):
        default_container(container)
        if spec.get("hostNetwork"):
            for port in container.get("ports") or ():
                port.setdefault("hostPort", port["containerPort"])
    for volume in spec.get("volumes") or ():
        default_volume(volume)


def all_containers(spec: Json) -> list[Json]:
    return [
        *(spec.get("initContainers") or ()),
        *(spec.get("containers") or ()),
        *(spec.get("ephemeralContainers") or ()),
    ]


def default_container(container: Json) -> None:
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    container.setdefault("imagePullPolicy", pull_policy(container.get("image", "")))
    resources = container.setdefault("resources", {})
    for name, amount in (resources.get("limits") or {}).items():
        resources.setdefault("requests", {}).setdefault(name, amount)
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")
    for variable in container.get("env") or ():
        field = (variable.get("valueFrom") or {}).get("fieldRef")
        if field:
            field.setdefault("apiVersion", "v1")
        resource = (variable.get("valueFrom") or {}).get("resourceFieldRef")
        if resource:
            resource.setdefault("divisor", "0")
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if container.get(name):
            default_probe(container[name])
    for hook in (container.get("lifecycle") or {}).values():
        if isinstance(hook, dict) and hook.get("httpGet"):
            default_http(hook["httpGet"])


def pull_policy(image: str) -> str:
    name = image.rpartition("/")[2]
    if "@" in name:
        return "IfNotPresent"
    tag = name.partition(":")[2] or "latest"
    return "Always" if tag == "latest" else "IfNotPresent"


def default_http(get: Json) -> None:
    get.setdefault("path", "/")
    get.setdefault("scheme", "HTTP")


def default_probe(probe: Json) -> None:
    for key, value in (("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)):
        if not probe.get(key):
            probe[key] = value
    if probe.get("httpGet"):
        default_http(probe["httpGet"])
    if probe.get("grpc"):
        probe["grpc"].setdefault("service", "")


def default_volume(volume: Json) -> None:
    if set(volume) <= {"name"}:
        volume["emptyDir"] = {}
    for name in VOLUME_MODES:
        if name in volume:
            volume[name].setdefault("defaultMode", FILE_MODE)
    if "hostPath" in volume:
        volume["hostPath"].setdefault("type", "")
    sources = list((volume.get("projected") or {}).get("sources") or ())
    for source in sources:
        if "serviceAccountToken" in source:
            source["serviceAccountToken"].setdefault("expirationSeconds", 3600)
    items = [*((volume.get("downwardAPI") or {}).get("items") or ())]
    items += [item for source in sources for item in (source.get("downwardAPI") or {}).get("items") or ()]
    for item in items:
        if item.get("fieldRef"):
            item["fieldRef"].setdefault("apiVersion", "v1")
        if item.get("resourceFieldRef"):
            item["resourceFieldRef"].setdefault("divisor", "0")


def qos_class(spec: Json) -> str:
    requests, limits = False, False
    guaranteed = True
    for container in [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]:
        resources = container.get("resources") or {}
        asked = {k: v for k, v in (resources.get("requests") or {}).items() if k in ("cpu", "memory") and amount(v)}
        limited = {k: v for k, v in (resources.get("limits") or {}).items() if k in ("cpu", "memory") and amount(v)}
        requests, limits = requests or bool(asked), limits or bool(limited)
        if set(limited) != {"cpu", "memory"} or any(asked.get(k, v) != v for k, v in limited.items()):
            guaranteed = False
    if not requests and not limits:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def amount(text: str) -> bool:
    return scalars.quantity_value(str(text)) != 0


def validate(spec: Json, path: str) -> list[Cause]:
    """What is wrong with a defaulted spec; the rules that users meet, in the server's words and order."""
    causes: list[Cause] = []
    names: set[str] = set()
    volumes = volume_causes(spec, path)
    if not spec.get("containers"):
        causes.append(required(f"{path}.containers"))
    for kind in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(kind) or ()):
            causes += container_causes(container, f"{path}.{kind}[{index}]", names, spec)
    policy = spec.get("restartPolicy")
    if policy not in ("Always", "OnFailure", "Never"):
        causes.append(not_supported(f"{path}.restartPolicy", policy, ["Always", "OnFailure", "Never"]))
    if spec.get("dnsPolicy") not in ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"):
        options = ["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"]
        causes.append(not_supported(f"{path}.dnsPolicy", spec.get("dnsPolicy"), options))
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline < 1 << 31:
        causes.append(invalid(f"{path}.activeDeadlineSeconds", deadline, "must be between 1 and 2147483647, inclusive"))
    return volumes + causes


def volume_causes(spec: Json, path: str) -> list[Cause]:
    causes: list[Cause] = []
    seen: set[str] = set()
    for index, volume in enumerate(spec.get("volumes") or ()):
        field = f"{path}.volumes[{index}].name"
        name = volume.get("name", "")
        if not name:
            causes.append(required(field))
        else:
            causes += [invalid(field, name, problem) for problem in label_problems(name)]
        if name in seen:
            causes.append(duplicate(field, name))
        seen.add(name)
    return causes


def container_causes(container: Json, path: str, names: set[str], spec: Json) -> list[Cause]:
    causes: list[Cause] = []
    name, image = container.get("name", ""), container.get("image", "")
    if not name:
        causes.append(required(f"{path}.name"))
    elif label_problems(name):
        causes.append(invalid(f"{path}.name", name, LABEL_HINT))
    elif name in names:
        causes.append(duplicate(f"{path}.name", name))
    names.add(name)
    if not image:
        causes.append(required(f"{path}.image"))
    elif image != image.strip():
        causes.append(invalid(f"{path}.image", image, "must not have leading or trailing whitespace"))
    causes += port_causes(container, path)
    for index, variable in enumerate(container.get("env") or ()):
        if not variable.get("name"):
            causes.append(required(f"{path}.env[{index}].name"))
    volumes = {volume.get("name") for volume in spec.get("volumes") or ()}
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        field = f"{path}.volumeMounts[{index}]"
        if not mount.get("name"):
            causes.append(required(f"{field}.name"))
        elif mount["name"] not in volumes:
            causes.append(Cause(f"{field}.name", "FieldValueNotFound", f'Not found: "{mount["name"]}"'))
        if not mount.get("mountPath"):
            causes.append(required(f"{field}.mountPath"))
    return causes + resource_causes(container, path)


def port_causes(container: Json, path: str) -> list[Cause]:
    causes: list[Cause] = []
    seen: set[str] = set()
    for index, port in enumerate(container.get("ports") or ()):
        field = f"{path}.ports[{index}]"
        name = port.get("name", "")
        if name and (len(name) > 15 or label_problems(name)):
            causes.append(
                invalid(f"{field}.name", name, "must be no more than 15 characters" if len(name) > 15 else LABEL_HINT)
            )
        elif name and name in seen:
            causes.append(duplicate(f"{field}.name", name))
        seen.add(name)
        if not port.get("containerPort"):
            causes.append(required(f"{field}.containerPort"))
        elif not 1 <= port["containerPort"] <= 65535:
            causes.append(
                invalid(f"{field}.containerPort", port["containerPort"], "must be between 1 and 65535, inclusive")
            )
    return causes


def resource_causes(container: Json, path: str) -> list[Cause]:
    causes = []
    resources = container.get("resources") or {}
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for name, value in requests.items():
        if name in limits and scalars.quantity_value(value) > scalars.quantity_value(limits[name]):
            message = f"must be less than or equal to {name} limit of {limits[name]}"
            causes.append(invalid(f"{path}.resources.requests", value, message))
    return causes
