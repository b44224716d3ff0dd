"""A container's environment, command and arguments, as the API describes them.

Pure. What may live here: $(VAR) expansion, references to fields, resources, ConfigMaps and Secrets (given as data). Reading those from
the API server is somebody else's part.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from raybus.domain import quantities
from raybus_localkube.kubelet.podspec import Container, Pod
from raybus_localkube.kubelet.resources import Machine

_REFERENCE = re.compile(r"\$\$|\$\(([-._a-zA-Z][-._a-zA-Z0-9]*)\)")
_KEYED = re.compile(r"^metadata\.(labels|annotations)\['(.*)'\]$")
_NAME = re.compile(r"^[-._a-zA-Z][-._a-zA-Z0-9]*$")

Reference = tuple[str, str]  # ("ConfigMap" or "Secret", name)


class ConfigError(Exception):
    """The container cannot be configured as written; the text is for its status and an event."""


@dataclass(frozen=True, slots=True)
class Sources:
    """ConfigMaps and Secrets by (kind, name) with bytes as values; absent ones are missing on the server."""

    data: Mapping[Reference, Mapping[str, bytes]] = field(default_factory=dict)

    def of(self, kind: str, name: str, *, optional: bool) -> Mapping[str, bytes] | None:
        found = self.data.get((kind, name))
        if found is None and not optional:
            raise ConfigError(f'{kind.lower()} "{name}" not found')
        return found


@dataclass(frozen=True, slots=True)
class Facts:
    """What fields of the running pod refer to."""

    pod_ip: str = ""
    host_ip: str = ""
    node: str = ""
    machine: Machine = field(default_factory=lambda: Machine(1, 1 << 30))


def decode_source(obj: Mapping[str, Any]) -> dict[str, bytes]:
    """The data of a ConfigMap or a Secret."""
    if obj.get("kind") == "Secret":
        return {key: base64.b64decode(value) for key, value in (obj.get("data") or {}).items()}
    plain = {key: str(value).encode() for key, value in (obj.get("data") or {}).items()}
    return plain | {key: base64.b64decode(value) for key, value in (obj.get("binaryData") or {}).items()}


def references(container: Container) -> Iterator[Reference]:
    """What the container's environment needs from the API server."""
    for source in container.get("envFrom") or ():
        for kind, name in (("ConfigMap", "configMapRef"), ("Secret", "secretRef")):
            if name in source:
                yield kind, source[name]["name"]
    for entry in container.get("env") or ():
        origin = entry.get("valueFrom") or {}
        for kind, name in (("ConfigMap", "configMapKeyRef"), ("Secret", "secretKeyRef")):
            if name in origin:
                yield kind, origin[name]["name"]


def expand(text: str, values: Mapping[str, str]) -> str:
    """$(NAME) becomes its value, $$ one dollar; an unknown name stays as it is."""

    def replace(match: re.Match[str]) -> str:
        if match.group(1) is None:
            return "$"
        return values.get(match.group(1), match.group(0))

    return _REFERENCE.sub(replace, text)


def environment(  # noqa: PLR0917 -- all of it is needed
    pod: Pod,
    container: Container,
    facts: Facts,
    sources: Sources,
    given: Mapping[str, str],
    defaults: Mapping[str, str],
) -> dict[str, str]:
    """The environment of a container. `given` (the API server's address) and `defaults` yield to what the Pod says."""
    result: dict[str, str] = dict(given)
    own: dict[str, str] = {}
    for source in container.get("envFrom") or ():
        own.update(_env_from(source, sources))
    for entry in container.get("env") or ():
        name = entry["name"]
        if entry.get("valueFrom"):
            value = _value_from(pod, container, entry["valueFrom"], facts, sources)
            if value is not None:
                own[name] = value
        else:
            own[name] = expand(entry.get("value") or "", {**result, **own})
    result.update(own)
    for name, value in defaults.items():
        result.setdefault(name, value)
    return result


def command(container: Container, env: Mapping[str, str]) -> list[str]:
    """The program and its arguments. Raises ConfigError where there is no command: the image that had one is not used."""
    argv = [*(container.get("command") or ()), *(container.get("args") or ())]
    if not container.get("command"):
        raise ConfigError(
            f'container "{container["name"]}" has no command: local pods do not use images, so the command must be in the pod'
        )
    return [expand(part, env) for part in argv]


def _env_from(source: Mapping[str, Any], sources: Sources) -> dict[str, str]:
    prefix = source.get("prefix") or ""
    result: dict[str, str] = {}
    for kind, name in (("ConfigMap", "configMapRef"), ("Secret", "secretRef")):
        if name in source:
            wanted = source[name]
            found = sources.of(kind, wanted["name"], optional=bool(wanted.get("optional"))) or {}
            result |= {
                prefix + key: value.decode(errors="replace")
                for key, value in found.items()
                if _NAME.match(prefix + key)
            }
    return result


def _value_from(
    pod: Pod, container: Container, origin: Mapping[str, Any], facts: Facts, sources: Sources
) -> str | None:
    if "fieldRef" in origin:
        return field_value(pod, origin["fieldRef"]["fieldPath"], facts)
    if "resourceFieldRef" in origin:
        return resource_value(pod, container, origin["resourceFieldRef"], facts)
    for kind, name in (("ConfigMap", "configMapKeyRef"), ("Secret", "secretKeyRef")):
        if name not in origin:
            continue
        wanted = origin[name]
        optional = bool(wanted.get("optional"))
        found = sources.of(kind, wanted["name"], optional=optional)
        if found is None:
            return None
        if wanted["key"] not in found:
            if optional:
                return None
            where = f"{pod['metadata']['namespace']}/{wanted['name']}"
            raise ConfigError(f"couldn't find key {wanted['key']} in {kind} {where}")
        return found[wanted["key"]].decode(errors="replace")
    raise ConfigError(f'env of container "{container["name"]}": unknown valueFrom {sorted(origin)}')


def field_value(pod: Pod, path: str, facts: Facts) -> str:
    """The value of a fieldPath. Raises ConfigError for one that Kubernetes does not know."""
    meta, spec = pod["metadata"], pod["spec"]
    keyed = _KEYED.match(path)
    if keyed:
        return str((meta.get(keyed.group(1)) or {}).get(keyed.group(2), ""))
    values: dict[str, Any] = {
        "metadata.name": meta["name"],
        "metadata.namespace": meta.get("namespace", ""),
        "metadata.uid": meta["uid"],
        "metadata.labels": _lines(meta.get("labels") or {}),
        "metadata.annotations": _lines(meta.get("annotations") or {}),
        "spec.nodeName": spec.get("nodeName") or facts.node,
        "spec.serviceAccountName": spec.get("serviceAccountName", ""),
        "status.hostIP": facts.host_ip,
        "status.hostIPs": facts.host_ip,
        "status.podIP": facts.pod_ip,
        "status.podIPs": facts.pod_ip,
    }
    if path not in values:
        raise ConfigError(f"fieldPath {path} is not supported")
    return str(values[path])


def _lines(values: Mapping[str, str]) -> str:
    def quoted(text: str) -> str:
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'

    return "\n".join(f"{name}={quoted(values[name])}" for name in sorted(values))


def resource_value(pod: Pod, container: Container, origin: Mapping[str, Any], facts: Facts) -> str:
    """The value of a resourceFieldRef: in units of its divisor, rounded up; a missing limit is what the node has."""
    named = origin.get("containerName")
    if named:
        every: Sequence[Container] = [*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"]]
        found = next((other for other in every if other["name"] == named), None)
        if found is None:
            raise ConfigError(f'resourceFieldRef: no container "{named}"')
        container = found
    side, _, name = str(origin["resource"]).partition(".")
    resources = container.get("resources") or {}
    text = (resources.get(side) or {}).get(name)
    if text is None and side == "requests":
        text = (resources.get("limits") or {}).get(name)
    if text is None and side == "limits":
        text = {"cpu": str(facts.machine.cpus), "memory": str(facts.machine.memory)}.get(name)
    amount = quantities.parse(text) or quantities.ZERO
    divisor = quantities.parse(origin.get("divisor")) or quantities.ZERO
    return str(ceil(amount.amount / (divisor.amount or 1)))
