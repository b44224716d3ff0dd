"""Views of given objects: typed access, exact errors, nothing lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from raybus import api
from raybus.api import v1alpha1
from raybus.domain.kinds import POD, RAYCLUSTER, RAYJOB

# Inputs of golden cases; without the folder the test has no parameters and is skipped.
CASES = Path(__file__).resolve().parents[4] / "shared" / "golden" / "cases"
TEMPLATE = {"spec": {"containers": [{"name": "ray-head", "image": "example/ray"}], "newField": True}}


def a_cluster(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": "demo", "namespace": "ns1", "uid": "u1"},
        "spec": {"headGroupSpec": {"template": TEMPLATE}, **spec},
    }


def problems(obj: dict[str, Any], kind: str = "RayCluster") -> list[str]:
    with pytest.raises(api.InvalidObject) as raised:
        api.parse(kind, obj)
    return [str(problem) for problem in raised.value.problems]


def test_view_has_defaults_and_template_as_given() -> None:
    group = {"groupName": "g", "template": TEMPLATE, "replicas": 3}
    view = api.RayCluster.parse(a_cluster(workerGroupSpecs=[group]))
    assert view.spec is not None
    assert view.spec.worker_group_specs is not None
    worker = view.spec.worker_group_specs[0]
    assert (worker.replicas, worker.min_replicas, worker.max_replicas, worker.num_of_hosts) == (3, 0, 2147483647, 1)
    assert view.spec.head_group_spec.template == TEMPLATE
    assert view.metadata.name == "demo"


def test_fields_of_later_versions_are_kept() -> None:
    view = api.RayCluster.parse(a_cluster(idleSuspend={"a": 1}))
    assert view.spec is not None
    assert view.spec.model_extra == {"idleSuspend": {"a": 1}}


def test_parsing_changes_nothing_in_the_given_object() -> None:
    given = a_cluster(workerGroupSpecs=[{"groupName": "g", "template": TEMPLATE, "replicas": None}])
    before = repr(given)
    api.parse(RAYCLUSTER, given)
    assert repr(given) == before


def test_null_means_absent() -> None:
    view = api.RayCluster.parse(
        a_cluster(workerGroupSpecs=[{"groupName": "g", "template": TEMPLATE, "replicas": None}])
    )
    assert view.spec is not None
    assert view.spec.worker_group_specs is not None
    assert view.spec.worker_group_specs[0].replicas == 0


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"headGroupSpec": {}}, "spec.headGroupSpec.template: is required"),
        ({"suspend": "yes"}, "spec.suspend: should be a valid boolean, not 'yes'"),
        (
            {"workerGroupSpecs": [{"groupName": "g", "template": {}, "replicas": "3"}]},
            "spec.workerGroupSpecs[0].replicas: should be a valid integer, not '3'",
        ),
        (
            {"autoscalerOptions": {"version": "v3"}},
            "spec.autoscalerOptions.version: should be 'v1' or 'v2', not 'v3'",
        ),
        ({"headGroupSpec": {"template": []}}, "spec.headGroupSpec.template: should be an object, not a list"),
        (
            {"workerGroupSpecs": [{"groupName": "g", "template": {}, "maxReplicas": 2**31}]},
            "spec.workerGroupSpecs[0].maxReplicas: should be less than or equal to 2147483647, not 2147483648",
        ),
    ],
)
def test_errors_name_field_and_expectation(spec: dict[str, Any], message: str) -> None:
    assert problems(a_cluster(**spec)) == [message]


def test_all_problems_are_told_at_once() -> None:
    found = problems(a_cluster(suspend=1, rayVersion=2.5))
    assert {problem.split(":")[0] for problem in found} == {"spec.suspend", "spec.rayVersion"}


def test_error_reads_as_one_sentence() -> None:
    with pytest.raises(
        api.InvalidObject, match=r"RayCluster 'demo' is invalid: spec\.suspend: should be a valid boolean"
    ):
        api.RayCluster.parse(a_cluster(suspend=1))


def test_kind_and_version_must_be_known() -> None:
    assert problems({**a_cluster(), "kind": "Pod"}) == ["kind: must be RayCluster, not 'Pod'"]
    assert problems({**a_cluster(), "apiVersion": "ray.io/v2"}) == [
        "apiVersion: must be ray.io/v1 or ray.io/v1alpha1, not 'ray.io/v2'"
    ]
    with pytest.raises(api.InvalidObject, match=r"one of ray\.io"):
        api.parse(POD, {"apiVersion": "v1", "kind": "Pod"})


def test_object_without_metadata() -> None:
    assert problems({"apiVersion": "ray.io/v1", "kind": "RayCluster"}) == ["metadata: is required"]


def test_old_version_has_its_own_types() -> None:
    job = {"apiVersion": "ray.io/v1alpha1", "kind": "RayJob", "metadata": {"name": "j"}, "spec": {"entrypoint": "x"}}
    assert isinstance(api.parse(RAYJOB, job), v1alpha1.RayJob)
    assert problems({**job, "spec": {}}, "RayJob") == ["spec.entrypoint: is required"]


def test_names_that_are_not_plain_camel_case() -> None:
    spec = {"runtimeEnvYAML": "a: 1"}
    status = {"dashboardURL": "h:8265", "rayClusterStatus": {"desiredCPU": "2", "head": {"podIP": "10.0.0.1"}}}
    job = {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": "j"}, "spec": spec, "status": status}
    view = api.RayJob.parse(job)
    assert view.spec is not None
    assert view.spec.runtime_env_yaml == "a: 1"
    assert view.status is not None
    assert view.status.dashboard_url == "h:8265"
    assert view.status.ray_cluster_status is not None
    assert view.status.ray_cluster_status.desired_cpu == "2"
    assert view.status.ray_cluster_status.head is not None
    assert view.status.ray_cluster_status.head.pod_ip == "10.0.0.1"


@pytest.mark.parametrize("path", sorted(CASES.glob("*/input.yaml")), ids=lambda path: path.parent.name)
def test_golden_inputs_are_understood(path: Path) -> None:
    for document in yaml.safe_load_all(path.read_text()):
        if (
            document
            and document["apiVersion"].startswith("ray.io/")
            and path.parent.name != "126-job-refused-by-schema"
        ):
            view = api.parse(document["kind"], document)
            unknown = view.model_extra
            assert not unknown, f"fields without a type: {unknown}"


def test_schema_refusals_of_the_api_server_are_found_before() -> None:
    rules = [{"policy": "DeleteAll", "condition": {"jobStatus": "SUCCEEDED"}}]
    job = {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": "j"}}
    found = problems({**job, "spec": {"deletionStrategy": {"deletionRules": rules}}}, "RayJob")
    assert [problem.split(":")[0] for problem in found] == ["spec.deletionStrategy.deletionRules[0].policy"]
