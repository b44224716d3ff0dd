"""`raybus doctor` as a command, against a real API server: what it reads there, and what a user may not read."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from raybus.api import crds, installed
from raybus.cli.doctor import gather
from raybus.domain import kinds
from raybus.domain.kinds import Kind
from raybus.kube.client import KubeClient
from raybus.kube.config import load
from raybus.kube.errors import AlreadyExists, NotFound
from support.kube import ROOT, RealKube, fresh_namespace, install_crds

pytestmark = [pytest.mark.realkube]

RAYBUS = Path(sys.executable).parent / "raybus"
OURS = [each["metadata"]["name"] for each in crds.build()]
RIGHTS = ROOT / "deploy" / "helm" / "raybus" / "files" / "rights"
DEPLOYMENT = Kind("apps", "v1", "Deployment", "deployments")
CLUSTER_ROLE = Kind("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", namespaced=False)
CLUSTER_ROLE_BINDING = Kind(
    "rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings", namespaced=False
)


@pytest.fixture
async def client(realkube: RealKube) -> AsyncIterator[KubeClient]:
    async with KubeClient(load(realkube.kubeconfig), user_agent="raybus-tests") as made:
        await install_crds(made)
        for name in OURS:
            await until_served(made, name)
        yield made


@pytest.fixture
async def system(client: KubeClient) -> AsyncIterator[str]:
    """A namespace with the Deployment and the account of job-ctrl, as the chart labels them; without rights and without a node."""
    async with fresh_namespace(client) as name:
        await client.create(kinds.SERVICE_ACCOUNT, {"metadata": {"name": "rb-job-ctrl", "namespace": name}})
        await client.create(DEPLOYMENT, job_ctrl(name))
        yield name
        for kind in (CLUSTER_ROLE_BINDING, CLUSTER_ROLE):
            for each in await client.list_all(kind, label_selector=f"raybus-test={name}"):
                await client.delete(kind, None, each["metadata"]["name"])


def job_ctrl(namespace: str) -> dict[str, Any]:
    labels = {
        "app.kubernetes.io/instance": "rb",
        "app.kubernetes.io/part-of": "raybus",
        "app.kubernetes.io/component": "job-ctrl",
    }
    pod = {"serviceAccountName": "rb-job-ctrl", "containers": [{"name": "job-ctrl", "image": "raybus/raybus:0"}]}
    return {
        "metadata": {"name": "rb-job-ctrl", "namespace": namespace, "labels": labels},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}},
    }


async def give_rights(client: KubeClient, account: str, namespace: str, rules: list[dict[str, Any]]) -> None:
    meta = {"name": f"{namespace}-{account}", "labels": {"raybus-test": namespace}}
    await client.create(CLUSTER_ROLE, {"metadata": meta, "rules": rules})
    binding = {
        "metadata": meta,
        "roleRef": {"apiGroup": CLUSTER_ROLE.group, "kind": "ClusterRole", "name": meta["name"]},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
    }
    await client.create(CLUSTER_ROLE_BINDING, binding)


def of_chart() -> list[dict[str, Any]]:
    written = yaml.safe_load((RIGHTS / "job-ctrl.yaml").read_text())
    return [*written["cluster"], *written["namespaced"]]


async def doctor(kubeconfig: str, *arguments: str) -> tuple[int, dict[str, list[dict[str, str]]]]:
    """Exit code, and findings by check."""
    process = await asyncio.create_subprocess_exec(
        RAYBUS,
        "doctor",
        "--kubeconfig",
        kubeconfig,
        "-o",
        "json",
        *arguments,
        stdout=subprocess.PIPE,
        env=dict(os.environ),
    )
    output, _ = await process.communicate()
    found: dict[str, list[dict[str, str]]] = {}
    for each in json.loads(output)["checks"]:
        found.setdefault(each["check"], []).append(each)
    return process.returncode or 0, found


async def until_served(client: KubeClient, name: str) -> None:
    for _ in range(100):
        if installed.established(await client.get(kinds.CRD, None, name)):
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"{name} is not served after 10 s")


async def until_gone(client: KubeClient, name: str) -> None:
    """Its objects go first, which takes a moment."""
    for _ in range(300):
        try:
            await client.get(kinds.CRD, None, name)
        except NotFound:
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"{name} does not go within 30 s")


async def put_back(client: KubeClient, definition: dict[str, Any]) -> None:
    """Once the deleted one is gone for good."""
    meta = {"name": definition["metadata"]["name"]}
    for _ in range(100):
        with contextlib.suppress(AlreadyExists):
            await client.create(kinds.CRD, {"metadata": meta, "spec": definition["spec"]})
            return await until_served(client, meta["name"])
        await asyncio.sleep(0.1)
    raise AssertionError(f"{meta['name']} does not go within 10 s")


def changed_kubeconfig(path: str, folder: Path, change: Callable[[Any], None]) -> str:
    given = yaml.safe_load(Path(path).read_text())
    change(given)
    changed = folder / "kubeconfig"
    changed.write_text(yaml.safe_dump(given))
    return str(changed)


async def until_pod(client: KubeClient, namespace: str) -> str:
    for _ in range(100):
        if found := await client.list_all(kinds.POD, namespace):
            return str(found[0]["metadata"]["name"])
        await asyncio.sleep(0.1)
    raise AssertionError("no pod within 10 s")


async def test_what_is_there_and_what_is_missing(realkube: RealKube, client: KubeClient, system: str) -> None:
    await until_pod(client, system)
    code, found = await doctor(realkube.kubeconfig, "-n", system)

    assert code == 1
    assert [each["level"] for each in found["API server"]] == ["ok"]
    assert "v1.36" in found["API server"][0]["what"]
    assert [each["level"] for each in found["definitions"]] == ["ok"]
    assert [each["level"] for each in found["other operator"]] == ["ok"]
    words = [each["what"] for each in found[f"installation {system}/rb"]]
    assert words[0] == "job-ctrl: 0 of 1 replicas are ready"
    assert len(words) == 2, words
    rights = found[f"rights {system}/rb"]
    assert [each["level"] for each in rights] == ["failed"]
    assert rights[0]["what"].startswith("job-ctrl may not get namespaces kube-system")


async def test_the_charts_rights_are_what_is_asked_for(realkube: RealKube, client: KubeClient, system: str) -> None:
    await give_rights(client, "rb-job-ctrl", system, of_chart())
    _, found = await doctor(realkube.kubeconfig, "-n", system)
    assert [each["level"] for each in found[f"rights {system}/rb"]] == ["ok"]


async def test_a_live_operator_of_kuberay(realkube: RealKube, client: KubeClient, system: str) -> None:
    lease = {
        "metadata": {"name": "ray-operator-leader", "namespace": system},
        "spec": {"holderIdentity": "kuberay-1", "leaseDurationSeconds": 3600, "renewTime": "2099-01-01T00:00:00.000000Z"},
    }  # fmt: skip
    await client.create(kinds.LEASE, lease)
    _, found = await doctor(realkube.kubeconfig, "-n", system)
    assert [each["level"] for each in found["other operator"]] == ["failed"]
    assert f"kuberay-1 in namespace {system}" in found["other operator"][0]["what"]
    assert "all namespaces" in found["other operator"][0]["what"]  # its pod is not there to be asked

    operator = {"name": "o", "image": "o", "args": ["--watch-namespace=elsewhere"]}
    await client.create(
        kinds.POD, {"metadata": {"name": "kuberay-1", "namespace": system}, "spec": {"containers": [operator]}}
    )
    _, found = await doctor(realkube.kubeconfig, "-n", system)
    assert "looks after namespaces elsewhere as Raybus does" in found["other operator"][0]["what"]


async def test_why_a_pod_does_not_begin(realkube: RealKube, client: KubeClient, system: str) -> None:
    """The kubelet says it in an event alone."""
    name = await until_pod(client, system)
    said = 'MountVolume.SetUp failed for volume "nats" : secret "raybus-nats-rayjob" not found'
    event = {
        "metadata": {"name": f"{name}.1", "namespace": system},
        "involvedObject": {"kind": "Pod", "namespace": system, "name": name},
        "type": "Warning", "reason": "FailedMount", "message": said, "lastTimestamp": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    await client.create(gather.EVENT, event)
    _, found = await doctor(realkube.kubeconfig, "-n", system)
    assert any(said in each["what"] for each in found[f"installation {system}/rb"])


async def test_a_missing_definition_fails(realkube: RealKube, client: KubeClient, system: str) -> None:
    name = "raycronjobs.ray.io"
    definition = await client.get(kinds.CRD, None, name)
    await client.delete(kinds.CRD, None, name)
    try:
        await until_gone(client, name)
        code, found = await doctor(realkube.kubeconfig, "-n", system)
    finally:
        await put_back(client, definition)
    assert code == 1
    assert f"missing: {name}" in [each["what"] for each in found["definitions"]]


async def test_who_may_read_nothing_gets_warnings(
    realkube: RealKube, client: KubeClient, system: str, tmp_path: Path
) -> None:
    asked = await client.request(
        "POST",
        kinds.SERVICE_ACCOUNT.path(system, "rb-job-ctrl", "token"),
        body={"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}},
    )
    mine = changed_kubeconfig(
        realkube.kubeconfig, tmp_path, lambda given: given["users"][0].update(user={"token": asked["status"]["token"]})
    )

    code, found = await doctor(mine)

    assert code == 0, found
    for check in ("definitions", "other operator", "installation", "clocks", "DNS", "images of Ray"):
        assert [each["level"] for each in found[check]] == ["warning"], check
        assert "cannot tell" in found[check][0]["what"]


async def test_an_api_server_that_is_not_there(tmp_path: Path, realkube: RealKube) -> None:
    mine = changed_kubeconfig(
        realkube.kubeconfig,
        tmp_path,
        lambda given: given["clusters"][0]["cluster"].update(server="https://127.0.0.1:1"),
    )
    code, found = await doctor(mine)
    assert code == 1
    assert list(found) == ["API server"]
    assert "cannot connect" in found["API server"][0]["what"]
