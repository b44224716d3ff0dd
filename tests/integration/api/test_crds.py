"""The definitions on a real API server: accepted whole, and doing to objects what upstream's do."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from raybus.api import crds
from raybus.domain.kinds import CRD, RAYCLUSTER, RAYCRONJOB, RAYJOB, Kind, kind_named
from raybus.kube import config, errors
from raybus.kube.client import KubeClient
from support.kube import RealKube

pytestmark = [pytest.mark.realkube, pytest.mark.timeout(300)]

ROOT = Path(__file__).resolve().parents[3]
CASES = ROOT.parent / "shared" / "golden" / "cases"  # absent: those tests have no parameters and are skipped
NS = "raybus-test-crds"
KUBECTL = Path(sys.executable).with_name("kubectl")
IMAGE = "example/ray:2.52.0"


@pytest.fixture(scope="module")
def installed(realkube: RealKube) -> str:
    """The kubeconfig of a server that has the definitions, by kubectl, and a namespace to write to."""
    names = [f"crd/{definition['metadata']['name']}" for definition in crds.build()]
    for args in (
        ("apply", "--server-side", "--force-conflicts", "-f", ROOT / "deploy" / "crds"),
        ("wait", "--for=condition=Established", "--timeout=30s", *names),
        ("create", "namespace", NS),
    ):
        command = [KUBECTL, "--kubeconfig", realkube.kubeconfig, *args]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 or "AlreadyExists" in done.stderr, done.stderr
    return realkube.kubeconfig


@pytest.fixture
async def kube(installed: str) -> AsyncIterator[KubeClient]:
    async with KubeClient(config.load(installed)) as client:
        yield client


async def create(client: KubeClient, obj: dict[str, Any], *, version: str = "v1") -> dict[str, Any]:
    """What the server would make of the object, with typos refused; nothing is stored."""
    known = kind_named(obj["kind"])
    kind = Kind(known.group, version, known.kind, known.plural)
    query = {"dryRun": "All", "fieldValidation": "Strict"}
    return await client.create(kind, obj, namespace=NS, query=query)


def a_cluster(**head: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "ray-head", "image": IMAGE}]}}
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": "one"},
        "spec": {"headGroupSpec": {"template": template, **head}},
    }


def a_job(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": "one"}, "spec": spec}


def fields_at_fault(error: errors.KubeError) -> list[str]:
    """Paths of the fields, without the remark that rules were left out because of them."""
    return sorted({cause["field"] for cause in error.causes} - {"<nil>"})


# --- the definitions themselves


async def test_all_are_structural(kube: KubeClient) -> None:
    for definition in crds.build():
        stored = await kube.get(CRD, None, definition["metadata"]["name"])
        conditions = {each["type"]: each["status"] for each in stored["status"]["conditions"]}
        assert conditions == {"NamesAccepted": "True", "Established": "True"}


async def test_server_stores_what_was_built(kube: KubeClient) -> None:
    """Nothing is dropped or filled in, so applying them again changes nothing."""
    for definition in crds.build():
        stored = await kube.get(CRD, None, definition["metadata"]["name"])
        assert stored["spec"]["versions"] == definition["spec"]["versions"]


async def test_a_plain_create_is_accepted_as_well(kube: KubeClient) -> None:
    for definition in crds.build():
        plural = definition["spec"]["names"]["plural"]
        other = {**definition, "metadata": {"name": f"{plural}.example.com"}}
        other["spec"] = {**definition["spec"], "group": "example.com"}
        await kube.create(CRD, other, query={"dryRun": "All", "fieldValidation": "Strict"})


async def test_old_version_warns(kube: KubeClient, installed: str) -> None:
    command = [KUBECTL, "--kubeconfig", installed, "get", "rayjobs.v1alpha1.ray.io", "-n", NS]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "ray.io/v1alpha1 RayJob is deprecated" in done.stderr


# --- what they do to objects


def golden_inputs() -> list[Any]:
    """The subject of each case and its first snapshot."""
    found = []
    for path in sorted(CASES.glob("*/input.yaml")):
        subject = [document for document in yaml.safe_load_all(path.read_text()) if document][-1]
        first = json.loads(path.with_name("expected.json").read_text())[0]
        found.append(pytest.param(subject, first, id=path.parent.name))
    return found


def upstream_accidents(value: Any) -> Any:
    """Without the empty maps and the zero that the reference's whole-object writes fill in."""
    accidents = ("rayStartParams", "scaleStrategy", "metadata", "resources", "spec", "status", "loadBalancer")
    if isinstance(value, dict):
        kept = {k: upstream_accidents(v) for k, v in value.items()}
        return {k: v for k, v in kept.items() if not (k in accidents and v == {}) and (k, v) != ("targetPort", 0)}
    return [upstream_accidents(each) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize(("subject", "expected"), golden_inputs())
async def test_defaults_pruning_and_refusals_are_upstreams(
    kube: KubeClient, subject: dict[str, Any], expected: dict[str, Any]
) -> None:
    if rejected := expected.get("rejected"):
        with pytest.raises(errors.Invalid) as refused:
            await create(kube, subject)
        assert refused.value.code == rejected["code"]
        assert refused.value.reason == rejected["reason"]
        assert fields_at_fault(refused.value) == rejected["fields"]
    else:
        got = await create(kube, subject)
        assert upstream_accidents(got["spec"]) == upstream_accidents(expected["subject"]["spec"])


async def test_a_deletion_rule_knows_one_deployment_status(kube: KubeClient) -> None:
    rules = [{"policy": "DeleteSelf", "condition": {"jobDeploymentStatus": "Complete"}}]
    with pytest.raises(errors.Invalid) as refused:
        await create(kube, a_job(deletionStrategy={"deletionRules": rules}))
    assert fields_at_fault(refused.value) == ["spec.deletionStrategy.deletionRules[0].condition.jobDeploymentStatus"]


async def test_defaults_of_a_worker_group_and_of_ports(kube: KubeClient) -> None:
    cluster = a_cluster()
    container = {"name": "w", "image": IMAGE, "ports": [{"containerPort": 80}]}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}}
    cluster["spec"]["workerGroupSpecs"] = [{"groupName": "g", "template": template, "minReplicas": None}]
    cluster["spec"]["networkPolicy"] = {}
    spec = (await create(kube, cluster))["spec"]
    group = spec["workerGroupSpecs"][0]
    assert {key: value for key, value in group.items() if key != "template"} == {
        "groupName": "g",
        "replicas": 0,
        "minReplicas": 0,
        "maxReplicas": 2147483647,
        "numOfHosts": 1,
        "priority": 0,
    }
    assert group["template"]["metadata"] == {"labels": {"a": "b"}}
    assert group["template"]["spec"]["containers"][0]["ports"] == [{"containerPort": 80, "protocol": "TCP"}]
    assert spec["networkPolicy"] == {"mode": "DenyAll"}


async def test_typo_in_a_pod_template_is_refused(kube: KubeClient) -> None:
    cluster = a_cluster()
    cluster["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["imagePullPolcy"] = "Never"
    with pytest.raises(errors.KubeError, match="imagePullPolcy") as refused:
        await create(kube, cluster)
    assert refused.value.code == 400


async def test_owner_references_in_a_template_are_unknown_fields(kube: KubeClient) -> None:
    cluster = a_cluster()
    cluster["spec"]["headGroupSpec"]["template"]["metadata"] = {"name": "x", "ownerReferences": []}
    with pytest.raises(errors.KubeError, match="ownerReferences"):
        await create(kube, cluster)


async def test_equal_environment_names_are_refused(kube: KubeClient) -> None:
    cluster = a_cluster()
    env = [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]
    cluster["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["env"] = env
    with pytest.raises(errors.Invalid) as refused:
        await create(kube, cluster)
    assert fields_at_fault(refused.value) == ["spec.headGroupSpec.template.spec.containers[0].env[1]"]


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"headGroupSpec": {}}, "spec.headGroupSpec.template"),
        ({}, "spec.headGroupSpec"),
        ({"managedBy": "somebody"}, "spec.managedBy"),
        ({"upgradeStrategy": {"type": "Later"}}, "spec.upgradeStrategy.type"),
        (
            {"autoscalerOptions": {"resources": {"limits": {"cpu": "much"}}}},
            "spec.autoscalerOptions.resources.limits.cpu",
        ),
    ],
)
async def test_fields_that_a_cluster_is_refused_for(kube: KubeClient, spec: dict[str, Any], field: str) -> None:
    cluster = a_cluster()
    cluster["spec"] = {**({} if spec == {} else cluster["spec"]), **spec}
    with pytest.raises(errors.Invalid) as refused:
        await create(kube, cluster)
    assert fields_at_fault(refused.value) == [field]


@pytest.mark.parametrize(
    "strategy",
    [
        {},
        {"onSuccess": {"policy": "DeleteSelf"}},
        {
            "onSuccess": {"policy": "DeleteSelf"},
            "onFailure": {"policy": "DeleteSelf"},
            "deletionRules": [{"policy": "DeleteSelf", "condition": {"jobStatus": "FAILED"}}],
        },
    ],
)
async def test_deletion_styles_do_not_mix(kube: KubeClient, strategy: dict[str, Any]) -> None:
    with pytest.raises(errors.Invalid) as refused:
        await create(kube, a_job(deletionStrategy=strategy))
    assert fields_at_fault(refused.value) == ["spec.deletionStrategy"]


@pytest.mark.parametrize("condition", [{}, {"jobStatus": "FAILED", "jobDeploymentStatus": "Failed"}])
async def test_a_deletion_rule_has_one_condition(kube: KubeClient, condition: dict[str, Any]) -> None:
    rules = [{"policy": "DeleteSelf", "condition": condition}]
    with pytest.raises(errors.Invalid) as refused:
        await create(kube, a_job(deletionStrategy={"deletionRules": rules}))
    assert fields_at_fault(refused.value) == ["spec.deletionStrategy.deletionRules[0].condition"]


async def test_managed_by_may_be_added_and_removed_but_not_changed(kube: KubeClient) -> None:
    await kube.create(RAYJOB, {**a_job(entrypoint="x"), "metadata": {"name": "managed"}}, namespace=NS)
    try:
        first, second = "ray.io/kuberay-operator", "kueue.x-k8s.io/multikueue"
        await kube.merge_patch(RAYJOB, NS, "managed", {"spec": {"managedBy": first}})
        with pytest.raises(errors.Invalid) as refused:
            await kube.merge_patch(RAYJOB, NS, "managed", {"spec": {"managedBy": second}})
        assert fields_at_fault(refused.value) == ["spec.managedBy"]
        await kube.merge_patch(RAYJOB, NS, "managed", {"spec": {"managedBy": None}})
        await kube.merge_patch(RAYJOB, NS, "managed", {"spec": {"managedBy": second}})
    finally:
        await kube.delete(RAYJOB, NS, "managed")


async def test_status_is_a_subresource(kube: KubeClient) -> None:
    await kube.create(RAYCLUSTER, {**a_cluster(), "metadata": {"name": "with-status"}}, namespace=NS)
    try:
        status = {"state": "ready", "desiredCPU": "2", "head": {"podIP": "10.0.0.1"}, "lastUpdateTime": None}
        ignored = await kube.merge_patch(RAYCLUSTER, NS, "with-status", {"status": status})
        assert "status" not in ignored
        written = await kube.merge_patch(RAYCLUSTER, NS, "with-status", {"status": status}, subresource="status")
        assert written["status"]["head"] == {"podIP": "10.0.0.1"}
    finally:
        await kube.delete(RAYCLUSTER, NS, "with-status")


async def test_objects_of_the_old_version_get_the_defaults_of_the_stored_one(kube: KubeClient) -> None:
    job = {"apiVersion": "ray.io/v1alpha1", "kind": "RayJob", "metadata": {"name": "old"}, "spec": {"entrypoint": "x"}}
    old = Kind("ray.io", "v1alpha1", "RayJob", "rayjobs")
    await kube.create(old, job, namespace=NS)
    try:
        stored = await kube.get(RAYJOB, NS, "old")
        assert stored["spec"]["submissionMode"] == "K8sJobMode"
    finally:
        await kube.delete(RAYJOB, NS, "old")
    with pytest.raises(errors.Invalid) as refused:
        await create(kube, {**job, "spec": {}}, version="v1alpha1")
    assert fields_at_fault(refused.value) == ["spec.entrypoint"]


async def test_printer_columns(kube: KubeClient, installed: str) -> None:
    cron = {"apiVersion": "ray.io/v1", "kind": "RayCronJob", "metadata": {"name": "nightly"}}
    await kube.create(RAYCRONJOB, {**cron, "spec": {"schedule": "@daily", "jobTemplate": {}}}, namespace=NS)
    try:
        command = [KUBECTL, "--kubeconfig", installed, "get", "all", "-n", NS]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60)
    finally:
        await kube.delete(RAYCRONJOB, NS, "nightly")
    assert "SCHEDULE   TIMEZONE   LAST SCHEDULE   AGE   SUSPEND" in done.stdout
    assert "raycronjob.ray.io/nightly" in done.stdout
