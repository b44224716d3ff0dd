"""The CustomResourceDefinitions of ray.io, made from the wire types. Pure, but for writing the files on request.

A field that only Raybus has would be added to the wire types and named here in a second, upstream-shaped variant; there is
none so far, so both are the same.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from raybus.api import raycluster, raycronjob, rayjob, rayservice, v1alpha1
from raybus.api.meta import Root, Wire
from raybus.api.schema import structural
from raybus.domain.kinds import RAYCLUSTER, RAYCRONJOB, RAYJOB, RAYSERVICE, Kind

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Version:
    """One served version: its name, its root type, its printer columns as (name, type, path, priority)."""

    name: str
    model: type[Root]
    columns: tuple[tuple[str, str, str, int], ...] = ()


_CLUSTER_COLUMNS = (
    ("desired workers", "integer", ".status.desiredWorkerReplicas", 0),
    ("available workers", "integer", ".status.availableWorkerReplicas", 0),
    ("cpus", "string", ".status.desiredCPU", 0),
    ("memory", "string", ".status.desiredMemory", 0),
    ("gpus", "string", ".status.desiredGPU", 0),
    ("tpus", "string", ".status.desiredTPU", 1),
    ("status", "string", ".status.state", 0),
    ("age", "date", ".metadata.creationTimestamp", 0),
    ("head pod IP", "string", ".status.head.podIP", 1),
    ("head service IP", "string", ".status.head.serviceIP", 1),
)
_JOB_COLUMNS = (
    ("job status", "string", ".status.jobStatus", 0),
    ("deployment status", "string", ".status.jobDeploymentStatus", 0),
    ("ray cluster name", "string", ".status.rayClusterName", 0),
    ("start time", "string", ".status.startTime", 0),
    ("end time", "string", ".status.endTime", 0),
    ("age", "date", ".metadata.creationTimestamp", 0),
)
_SERVICE_COLUMNS = (
    ("service status", "string", ".status.serviceStatus", 0),
    ("num serve endpoints", "string", ".status.numServeEndpoints", 0),
)
_CRON_COLUMNS = (
    ("schedule", "string", ".spec.schedule", 0),
    ("timezone", "string", ".spec.timeZone", 0),
    ("last schedule", "date", ".status.lastScheduleTime", 0),
    ("age", "date", ".metadata.creationTimestamp", 0),
    ("suspend", "boolean", ".spec.suspend", 0),
)

# The first version of a kind is the stored one.
VERSIONS: dict[Kind, tuple[Version, ...]] = {
    RAYCLUSTER: (
        Version("v1", raycluster.RayCluster, _CLUSTER_COLUMNS),
        Version("v1alpha1", v1alpha1.RayCluster, _CLUSTER_COLUMNS),
    ),
    RAYJOB: (Version("v1", rayjob.RayJob, _JOB_COLUMNS), Version("v1alpha1", v1alpha1.RayJob)),
    RAYSERVICE: (Version("v1", rayservice.RayService, _SERVICE_COLUMNS), Version("v1alpha1", v1alpha1.RayService)),
    RAYCRONJOB: (Version("v1", raycronjob.RayCronJob, _CRON_COLUMNS),),
}


def build() -> list[Json]:
    """The four definitions, ready for the API server; equal on every call and every machine."""
    return [_definition(kind, versions) for kind, versions in VERSIONS.items()]


def to_yaml(definition: Json) -> str:
    """One definition as YAML, without anchors, with the order of `build`."""
    return yaml.dump(definition, Dumper=_Dumper, sort_keys=False, default_flow_style=None, width=120)


def as_yaml() -> str:
    """All definitions in one YAML stream."""
    return "---\n".join(to_yaml(definition) for definition in build())


def file_name(definition: Json) -> str:
    """Name of the file that holds a definition in deploy/crds, such as rayclusters.ray.io.yaml."""
    return f"{definition['metadata']['name']}.yaml"


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the signature is the base class's
        return True


def _definition(kind: Kind, versions: tuple[Version, ...]) -> Json:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{kind.group}"},
        "spec": {
            "group": kind.group,
            "names": {
                "categories": ["all"],
                "kind": kind.kind,
                "listKind": f"{kind.kind}List",
                "plural": kind.plural,
                "singular": kind.kind.lower(),
            },
            "scope": "Namespaced",
            "versions": [_version(kind, version, stored=version is versions[0]) for version in versions],
        },
    }


def _version(kind: Kind, version: Version, *, stored: bool) -> Json:
    out: Json = {"name": version.name, "served": True, "storage": stored}
    if not stored:
        out["deprecated"] = True
        out["deprecationWarning"] = (
            f"{kind.group}/{version.name} {kind.kind} is deprecated and goes away with KubeRay 1.9; "
            f"use {kind.api_version} {kind.kind}"
        )
    if version.columns:
        out["additionalPrinterColumns"] = [_column(*column) for column in version.columns]
    out["schema"] = {"openAPIV3Schema": _root_schema(version.model)}
    out["subresources"] = {"status": {}}
    return out


def _column(name: str, type_: str, path: str, priority: int) -> Json:
    return {"name": name, "type": type_, "jsonPath": path} | ({"priority": priority} if priority else {})


def _root_schema(model: type[Wire]) -> Json:
    """apiVersion, kind and metadata belong to the API server; a CRD only says that they are there."""
    properties = structural(model)["properties"]
    return {
        "type": "object",
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": properties["spec"],
            "status": properties["status"],
        },
    }


def write(folder: Path) -> None:
    """Write each definition to its file in `folder`; what `make crds` runs."""
    for definition in build():
        (folder / file_name(definition)).write_text(to_yaml(definition))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
