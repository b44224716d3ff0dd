"""Makes data/core.json: the schemas of the core types that ray.io objects embed, as structural schemas for CRDs.

Run by a developer when a new Kubernetes is out; never at run time:

    pip install kubernetes-validate==<version> && python -m raybus.api.generate_podschema > shared/raybus/api/data/core.json

The input is the OpenAPI document of that Kubernetes as the package carries it. The edits that the package makes for other
validators are undone, descriptions go, and what the API server wants of a CRD is added. Pure apart from reading that file.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

CORE = "io.k8s.api.core.v1."
NETWORKING = "io.k8s.api.networking.v1."
ROOTS = (
    *(
        CORE + name
        for name in (
            "PodTemplateSpec", "Service", "ResourceRequirements", "SecurityContext", "EnvVar", "EnvVarSource",
            "EnvFromSource", "VolumeMount",
        )
    ),
    *(NETWORKING + name for name in ("IngressTLS", "NetworkPolicyIngressRule", "NetworkPolicyEgressRule")),
)  # fmt: skip

KEPT = ("type", "format", "required", "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type")
QUANTITY_PATTERN = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
INT_OR_STRING: dict[str, Any] = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "x-kubernetes-int-or-string": True,
}
STRINGS = {"additionalProperties": {"type": "string"}, "type": "object"}

# Types that stand for something else in a CRD. Of embedded metadata only these five survive pruning.
REPLACED: Mapping[str, dict[str, Any]] = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {**INT_OR_STRING, "pattern": QUANTITY_PATTERN},
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": INT_OR_STRING,
    "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta": {
        "type": "object",
        "properties": {
            "annotations": STRINGS,
            "finalizers": {"items": {"type": "string"}, "type": "array"},
            "labels": STRINGS,
            "name": {"type": "string"},
            "namespace": {"type": "string"},
        },
    },
}

# Defaults that the API server gives built-in objects, where upstream's definitions carry them as well.
DEFAULTS: Mapping[tuple[str, str], Any] = {
    **{(CORE + owner, "protocol"): "TCP" for owner in ("ContainerPort", "ServicePort")},
    **{
        (CORE + owner, "name"): ""
        for owner in (
            "LocalObjectReference", "ConfigMapKeySelector", "SecretKeySelector", "ConfigMapEnvSource", "SecretEnvSource",
            "ConfigMapProjection", "SecretProjection", "ConfigMapVolumeSource",
        )
    },
    (CORE + "FileKeySelector", "optional"): False,
    (CORE + "GRPCAction", "service"): "",
    (CORE + "ISCSIVolumeSource", "iscsiInterface"): "default",
    (CORE + "RBDVolumeSource", "keyring"): "/etc/ceph/keyring",
    (CORE + "RBDVolumeSource", "pool"): "rbd",
    (CORE + "RBDVolumeSource", "user"): "admin",
    (CORE + "ScaleIOVolumeSource", "fsType"): "xfs",
    (CORE + "ScaleIOVolumeSource", "storageMode"): "ThinProvisioned",
    (CORE + "AzureDiskVolumeSource", "fsType"): "ext4",
    (CORE + "AzureDiskVolumeSource", "readOnly"): False,
}  # fmt: skip

Schema = dict[str, Any]


def generate(source: Mapping[str, Schema], roots: tuple[str, ...] = ROOTS) -> dict[str, Schema]:
    """The definitions that `roots` reach, by short name, references as {"$ref": short name}."""
    out: dict[str, Schema] = {}
    open_names = list(roots)
    while open_names:
        name = open_names.pop()
        if short(name) in out:
            continue
        out[short(name)] = dict(REPLACED[name]) if name in REPLACED else structural(name, source[name])
        if name not in REPLACED:
            open_names.extend(references(source[name]))
    check_map_keys(out)
    return out


def short(name: str) -> str:
    return name.rsplit(".", 1)[-1]


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"].removeprefix("#/$defs/")
        for value in node.values():
            yield from references(value)


def structural(owner: str, node: Schema) -> Schema:
    if "$ref" in node:
        return {"$ref": short(node["$ref"])}
    out = {key: node[key] for key in KEPT if key in node}
    if isinstance(out.get("type"), list):
        out["type"] = out["type"][0]
    if "items" in node:
        out["items"] = structural("", node["items"])
    if isinstance(node.get("additionalProperties"), dict):
        out["additionalProperties"] = structural("", node["additionalProperties"])
    if "properties" in node:
        out["properties"] = {name: structural("", child) for name, child in node["properties"].items()}
        for name, child in out["properties"].items():
            if (owner, name) in DEFAULTS:
                child["default"] = DEFAULTS[owner, name]
    return out


def check_map_keys(definitions: Mapping[str, Schema]) -> None:
    """The API server wants each key of a list-map to be required or defaulted; say which one is neither."""
    for owner, definition in definitions.items():
        for name, child in definition.get("properties", {}).items():
            for key in child.get("x-kubernetes-list-map-keys", ()):
                item = definitions[child["items"]["$ref"]]
                if key not in item.get("required", ()) and "default" not in item["properties"][key]:
                    raise ValueError(f"{owner}.{name}: list-map key {key} is neither required nor has a default")


def main() -> None:
    package = find_spec("kubernetes_validate")
    if package is None or package.origin is None:
        raise SystemExit("kubernetes_validate is missing: pip install kubernetes-validate==<version>")
    newest = max(
        Path(package.origin).parent.glob("kubernetes-json-schema/*-local"),
        key=lambda folder: [int(part) for part in folder.name[1:].removesuffix("-local").split(".")],
    )
    source = json.loads(newest.joinpath("_definitions.json").read_text())["$defs"]
    document = {"kubernetes": newest.name[1:].removesuffix("-local"), "definitions": generate(source)}
    json.dump(document, sys.stdout, indent=1, sort_keys=True)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
