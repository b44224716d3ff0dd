"""The commands of docs/migrate-from-kuberay.md, run as they stand there against a real control plane that KubeRay's objects fill.

Two things are played: KubeRay's Deployment (its pods, and a Lease that is renewed while it is not scaled to 0), and the installation
by Helm, for which processes of Raybus start: no pod runs on a control plane alone. tests/e2e_kube installs the chart.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from raybus.decide.rights import REFERENCE_LEASE
from raybus.domain import kinds, labels
from raybus.domain.kinds import Kind
from raybus.kube.client import KubeClient
from raybus.kube.errors import NotFound
from support import waiting
from support.fake_ray import FakeHead, FakeJob, FakeRay
from support.kube import ROOT, RealKube, client_of, fresh_namespace
from support.operators import Operator
from support.recorded import CASES, Recorded, run

pytestmark = [
    pytest.mark.realkube,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not CASES.exists(), reason="needs ../shared/golden beside the repository"),
]

GUIDE = ROOT / "docs" / "migrate-from-kuberay.md"
SYSTEM = "kuberay-operator"
DEPLOYMENT = Kind("apps", "v1", "Deployment", "deployments")
LABELS = {"app.kubernetes.io/name": "kuberay-operator"}


def commands(section: str) -> list[str]:
    """The commands of a section, in order."""
    text = GUIDE.read_text().split(f"\n## {section}\n")[1].split("\n## ")[0]
    blocks = re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    return [line.removeprefix("$ ") for block in blocks for line in block.splitlines() if line.startswith("$ ")]


class Shell:
    """Commands as a user types them, in one folder, with kubectl on the path."""

    def __init__(self, folder: Path, kubeconfig: str) -> None:
        self._folder = folder
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self._env = {"PATH": path, "KUBECONFIG": kubeconfig, "HOME": str(folder)}

    async def __call__(self, command: str) -> str:
        done = await asyncio.to_thread(
            subprocess.run, ["bash", "-c", command], cwd=self._folder, env=self._env, capture_output=True, text=True,
            timeout=150, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout


@contextlib.asynccontextmanager
async def kuberay(kube: KubeClient) -> AsyncIterator[None]:
    """Its Deployment, and its Lease, which is renewed while the Deployment wants pods."""
    await kube.create(kinds.NAMESPACE, {"metadata": {"name": SYSTEM}})
    container = {"name": "kuberay-operator", "image": "quay.io/kuberay/operator:v1.5.1", "command": ["/manager"]}
    template = {"metadata": {"labels": LABELS}, "spec": {"containers": [container], "terminationGracePeriodSeconds": 0}}
    spec = {"replicas": 1, "selector": {"matchLabels": LABELS}, "template": template}
    body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": SYSTEM}, "spec": spec}
    await kube.create(DEPLOYMENT, body, namespace=SYSTEM)
    renewing = asyncio.create_task(renew(kube), name="KubeRay's Lease")
    try:
        yield
    finally:
        renewing.cancel()
        await asyncio.gather(renewing, return_exceptions=True)
        with contextlib.suppress(NotFound):
            await kube.delete(kinds.LEASE, SYSTEM, REFERENCE_LEASE)
        await kube.delete(kinds.NAMESPACE, None, SYSTEM)


async def renew(kube: KubeClient) -> None:
    await kube.create(kinds.LEASE, {"metadata": {"name": REFERENCE_LEASE, "namespace": SYSTEM}, "spec": {}})
    while True:
        if (await kube.get(DEPLOYMENT, SYSTEM, SYSTEM))["spec"]["replicas"]:
            (pod, *_) = await kube.list_all(kinds.POD, SYSTEM) or [{"metadata": {"name": SYSTEM}}]
            spec = {
                "holderIdentity": f"{pod['metadata']['name']}_6ff5ab27-58a1-44cb-a17c-30aa6c8c4b6a",
                "leaseDurationSeconds": 15,
                "renewTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            }
            await kube.merge_patch(kinds.LEASE, SYSTEM, REFERENCE_LEASE, {"spec": spec})
        await asyncio.sleep(2)


def refused(folder: Path, kubeconfig: str, nats_url: str) -> str:
    """What a controller says that is started too early."""
    done = subprocess.run(
        [sys.executable, "-m", "raybus_cluster_ctrl", "--kubeconfig", kubeconfig, "--nats-url", nats_url, "--health-port", "0"],
        capture_output=True, text=True, timeout=60, cwd=folder, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    return done.stderr.splitlines()[-1]


async def test_the_procedure(realkube: RealKube, tmp_path: Path) -> None:
    async with (
        client_of(realkube.kubeconfig) as kube,
        FakeRay().serving() as ray,
        fresh_namespace(kube) as team_a,
        fresh_namespace(kube) as team_b,
        kuberay(kube),
    ):
        await waiting.found(lambda: clean(kube), "the pods of other tests to go", within_s=60)
        recorded = [
            Recorded("055-workers-to-delete", "pods run", team_a),
            Recorded("100-job-default", "job runs", team_b),
        ]
        for each in recorded:
            await each.put(kube)
            await run(kube, each.namespace)
        job = recorded[1]
        cluster = next(name for kind, name in job.objects if kind == "RayCluster")
        ray.heads[f"{cluster}-head-svc.{team_b}.svc.cluster.local"] = head = FakeHead()
        head.jobs[job.job_id] = FakeJob({"entrypoint": "python count.py", "submission_id": job.job_id})
        head.jobs[job.job_id].become("RUNNING", "ray: at work")

        shell = Shell(tmp_path, realkube.kubeconfig)
        operator = Operator(
            tmp_path / "raybus", realkube.kubeconfig, "cluster_ctrl", "job_ctrl", proxy=f"http://{ray.address}"
        )
        operator.nats.start()
        assert REFERENCE_LEASE in await asyncio.to_thread(refused, tmp_path, realkube.kubeconfig, operator.nats.url)
        operator.nats.stop()

        said: dict[str, str] = {}
        async with contextlib.AsyncExitStack() as stack:
            for command in commands("Procedure"):
                if command.startswith("helm install"):
                    await stack.enter_async_context(operator)
                    await asyncio.sleep(5)
                elif not command.startswith("helm"):
                    said[command] = await shell(command)
            await went_on(kube, recorded, head)
        assert said["diff before.txt after.txt"] == ""
        assert len((tmp_path / "before.txt").read_text().splitlines()) == 1 + 4 + 2, "the pods of both namespaces"
        assert "ready" in said["kubectl get rayclusters,rayjobs -A"]


async def clean(kube: KubeClient) -> bool:
    """No pods of other tests are left, and all kinds are served."""
    group: dict[str, Any] = await kube.request("GET", "/apis/ray.io/v1")
    served = {resource["name"] for resource in group["resources"]}
    return "rayservices" in served and not await kube.list_all(kinds.POD, label_selector=labels.IS_RAY_NODE)


async def went_on(kube: KubeClient, recorded: list[Recorded], head: FakeHead) -> None:
    """It was not only left alone: Raybus looks after it."""
    job = recorded[1]
    head.jobs[job.job_id].become("SUCCEEDED")

    async def seen() -> bool:
        status: dict[str, Any] = (await kube.get(kinds.RAYJOB, job.namespace, job.name))["status"]
        return status["jobStatus"] == "SUCCEEDED"

    await waiting.found(seen, "the end of the job to be seen", within_s=60)


def test_going_back_is_two_commands() -> None:
    """The first needs Helm and is tried with the chart; the second is the reverse of one that was run above."""
    back = commands("Going back")
    assert [word.split()[0] for word in back] == ["helm", "kubectl"]
    assert back[1].replace("--replicas=1", "--replicas=0") in commands("Procedure")
