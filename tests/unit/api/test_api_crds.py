"""The definitions: equal to the files people install, structural, and as upstream's in what kubectl shows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from raybus.api import crds, schema
from raybus.api.generate_podschema import check_map_keys, generate

DEPLOY = Path(__file__).resolve().parents[3] / "deploy" / "crds"
BY_NAME = {definition["spec"]["names"]["kind"]: definition for definition in crds.build()}


def nodes(node: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, node
    for name, child in node.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if key in node:
            yield from nodes(node[key], f"{path}[]")


def schemas() -> Iterator[tuple[str, dict[str, Any]]]:
    for kind, definition in BY_NAME.items():
        for version in definition["spec"]["versions"]:
            yield from nodes(version["schema"]["openAPIV3Schema"], f"{kind}/{version['name']}")


def spec_of(kind: str, version: int = 0) -> dict[str, Any]:
    spec: dict[str, Any] = BY_NAME[kind]["spec"]["versions"][version]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return spec


def test_files_to_install_are_what_the_command_prints() -> None:
    built = {crds.file_name(definition): crds.to_yaml(definition) for definition in crds.build()}
    assert {path.name: path.read_text() for path in DEPLOY.iterdir()} == built, "run `make crds`"


def test_command_writes_the_files(tmp_path: Path) -> None:
    crds.write(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in DEPLOY.iterdir()}


def test_building_twice_gives_the_same() -> None:
    assert json.dumps(crds.build()) == json.dumps(crds.build())


def test_yaml_reads_back_as_built() -> None:
    definition = BY_NAME["RayCronJob"]
    assert yaml.load(crds.to_yaml(definition), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)) == definition


def test_fits_into_a_request_and_into_etcd() -> None:
    for definition in crds.build():
        assert len(json.dumps(definition)) < 1_000_000


def test_v1_is_stored_and_v1alpha1_deprecated() -> None:
    told = {
        kind: [
            (v["name"], v["served"], v["storage"], v.get("deprecated", False)) for v in definition["spec"]["versions"]
        ]
        for kind, definition in BY_NAME.items()
    }
    both = [("v1", True, True, False), ("v1alpha1", True, False, True)]
    assert told == {"RayCluster": both, "RayJob": both, "RayService": both, "RayCronJob": both[:1]}


def test_every_node_is_typed_and_holds_only_what_the_api_server_knows() -> None:
    known = {
        "type", "format", "properties", "items", "additionalProperties", "required", "default", "enum", "nullable", "anyOf",
        "pattern", "minimum", "minItems", "minLength", "maxLength", "x-kubernetes-int-or-string",
        "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type", "x-kubernetes-validations",
    }  # fmt: skip
    for path, node in schemas():
        assert node.keys() <= known, path
        assert ("type" in node) != node.get("x-kubernetes-int-or-string", False), path


def test_nothing_is_let_through_unknown() -> None:
    """No object without properties or values of a known kind, apart from the metadata that the API server owns itself."""
    for path, node in schemas():
        if node.get("type") == "object" and not path.endswith(".metadata"):
            assert "properties" in node or "additionalProperties" in node or path.endswith(".emptyDir"), path


def test_required_fields_exist() -> None:
    for path, node in schemas():
        assert set(node.get("required", ())) <= node.get("properties", {}).keys(), path


def test_list_map_keys_are_required_or_defaulted() -> None:
    for path, node in schemas():
        for key in node.get("x-kubernetes-list-map-keys", ()):
            item = node["items"]
            assert key in item.get("required", ()) or "default" in item["properties"][key], path


def test_embedded_metadata_keeps_five_fields() -> None:
    for path, node in schemas():
        if path.endswith((".template.metadata", ".headService.metadata", ".serveService.metadata")):
            assert set(node["properties"]) == {"annotations", "finalizers", "labels", "name", "namespace"}, path


def test_defaults_of_our_own_fields() -> None:
    found = {
        path.removeprefix("RayService/v1.spec"): node["default"]
        for path, node in nodes(spec_of("RayService"), "RayService/v1.spec")
        if "default" in node and ".template" not in path and "Service.spec" not in path and path.count("valueFrom") == 0
    }
    group = ".rayClusterConfig.workerGroupSpecs[]"
    assert {k: v for k, v in found.items() if not k.endswith(".name")} == {
        f"{group}.replicas": 0,
        f"{group}.minReplicas": 0,
        f"{group}.maxReplicas": 2147483647,
        f"{group}.numOfHosts": 1,
        f"{group}.priority": 0,
        ".rayClusterConfig.networkPolicy.mode": "DenyAll",
        ".upgradeStrategy.clusterUpgradeOptions.maxSurgePercent": 100,
    }


def test_rules_stand_where_upstream_has_them() -> None:
    found = sorted(path for path, node in nodes(spec_of("RayJob")) if "x-kubernetes-validations" in node)
    assert found == [
        ".deletionStrategy",
        ".deletionStrategy.deletionRules[].condition",
        ".managedBy",
        ".rayClusterSpec.gcsFaultToleranceOptions.backend",
        ".rayClusterSpec.managedBy",
    ]


def test_cron_job_embeds_the_spec_of_a_job() -> None:
    assert spec_of("RayCronJob")["properties"]["jobTemplate"] == spec_of("RayJob")


@pytest.mark.parametrize(
    ("kind", "columns"),
    [
        ("RayJob", ["job status", "deployment status", "ray cluster name", "start time", "end time", "age"]),
        ("RayService", ["service status", "num serve endpoints"]),
        ("RayCronJob", ["schedule", "timezone", "last schedule", "age", "suspend"]),
    ],
)
def test_printer_columns_in_order(kind: str, columns: list[str]) -> None:
    assert [each["name"] for each in BY_NAME[kind]["spec"]["versions"][0]["additionalPrinterColumns"]] == columns


def test_wide_columns_of_a_cluster() -> None:
    for version in BY_NAME["RayCluster"]["spec"]["versions"]:
        wide = [each["name"] for each in version["additionalPrinterColumns"] if each.get("priority")]
        assert wide == ["tpus", "head pod IP", "head service IP"]


def test_callers_cannot_spoil_the_shared_definitions() -> None:
    schema.core("PodTemplateSpec")["properties"].clear()
    assert schema.core("PodTemplateSpec")["properties"]


def test_generator_undoes_the_edits_of_the_package() -> None:
    source = {
        "io.k8s.api.core.v1.Container": {
            "description": "dropped",
            "type": ["object", "null"],
            "properties": {
                "ports": {
                    "items": {"$ref": "#/$defs/io.k8s.api.core.v1.ContainerPort"},
                    "type": ["array", "null"],
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["containerPort", "protocol"],
                    "x-kubernetes-patch-merge-key": "containerPort",
                }
            },
        },
        "io.k8s.api.core.v1.ContainerPort": {
            "type": ["object", "null"],
            "required": ["containerPort"],
            "properties": {"containerPort": {"type": "integer"}, "protocol": {"type": ["string", "null"]}},
        },
    }
    assert generate(source, ("io.k8s.api.core.v1.Container",)) == {
        "Container": {
            "type": "object",
            "properties": {
                "ports": {
                    "items": {"$ref": "ContainerPort"},
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["containerPort", "protocol"],
                }
            },
        },
        "ContainerPort": {
            "type": "object",
            "required": ["containerPort"],
            "properties": {"containerPort": {"type": "integer"}, "protocol": {"type": "string", "default": "TCP"}},
        },
    }


def test_generator_names_a_list_key_that_the_api_server_would_refuse() -> None:
    items = {"items": {"$ref": "Item"}, "x-kubernetes-list-map-keys": ["name"]}
    definitions = {"Owner": {"properties": {"list": items}}, "Item": {"properties": {"name": {"type": "string"}}}}
    with pytest.raises(ValueError, match=r"Owner\.list: list-map key name"):
        check_map_keys(definitions)
