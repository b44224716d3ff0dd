"""All services as processes with their own users of NATS, their keys made by `raybus provision`: nothing of theirs is refused."""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from raybus.domain import kinds, labels
from raybus.kube.client import KubeClient
from support import waiting
from support.fake_ray import FakeHead, FakeRay
from support.installed import PREFIX, USERS, Installation, ended, secret
from support.kube import fresh_namespace, install_crds

pytestmark = [pytest.mark.kube, pytest.mark.timeout(180)]

TEMPLATE = {"spec": {"containers": [{"name": "ray", "image": "example/ray:2.52.0"}]}}
CLUSTER = {"headGroupSpec": {"template": TEMPLATE}}
READY = [{"type": "Ready", "status": "True"}]


@pytest.fixture
async def ray() -> AsyncIterator[FakeRay]:
    async with FakeRay(default=FakeHead(on_submit="RUNNING")).serving() as serving:
        yield serving


@pytest.fixture
async def installed(
    kube: KubeClient, kubeconfig: str, namespace: str, tmp_path: Path, ray: FakeRay
) -> AsyncIterator[Installation]:
    await install_crds(kube)
    proxy = {"HTTP_PROXY": f"http://{ray.address}"}
    async with fresh_namespace(kube) as release:
        installation = Installation(kube, kubeconfig, tmp_path, release=release, watched=namespace, env=proxy)
        async with installation:
            yield installation


async def apply(kube: KubeClient, kind: kinds.Kind, namespace: str, name: str, spec: dict[str, Any]) -> None:
    metadata = {"name": name, "namespace": namespace}
    await kube.create(kind, {"apiVersion": "ray.io/v1", "kind": kind.kind, "metadata": metadata, "spec": spec})


async def head_runs(kube: KubeClient, namespace: str) -> None:
    """All pods run and are ready, as a kubelet would have it."""

    async def pods() -> list[dict[str, Any]]:
        return [pod for pod in await kube.list_all(kinds.POD, namespace) if not pod.get("status", {}).get("podIP")]

    for pod in await waiting.found(pods, "pods"):
        status = {"phase": "Running", "podIP": "10.9.0.1", "conditions": READY}
        name = pod["metadata"]["name"]
        await kube.merge_patch(kinds.POD, namespace, name, {"status": status}, subresource="status")


def state_of(
    kube: KubeClient, kind: kinds.Kind, namespace: str, name: str, **fields: str
) -> Callable[[], Awaitable[bool]]:
    async def so() -> bool:
        status = (await kube.get(kind, namespace, name)).get("status") or {}
        return all(status.get(field) == value for field, value in fields.items())

    return so


async def test_services_do_their_work_with_users_of_their_own_also_after_nats_lost_its_store(
    installed: Installation, kube: KubeClient, namespace: str, ray: FakeRay
) -> None:
    spec = {"entrypoint": "x", "submissionMode": "HTTPMode", "rayClusterSpec": CLUSTER}
    await apply(kube, kinds.RAYJOB, namespace, "job", spec)
    await head_runs(kube, namespace)
    running = state_of(kube, kinds.RAYJOB, namespace, "job", jobDeploymentStatus="Running", jobStatus="RUNNING")
    await waiting.found(running, "the job runs")
    installed.nats.kill()
    shutil.rmtree(installed.nats.folder / "store")
    installed.nats.start()
    assert ray.default is not None
    for job in ray.default.jobs.values():
        job.become("SUCCEEDED")

    done = state_of(kube, kinds.RAYJOB, namespace, "job", jobDeploymentStatus="Complete")
    await waiting.found(done, "the job is complete", within_s=40)
    await apply(kube, kinds.RAYCLUSTER, namespace, "later", CLUSTER)
    selector = f"{labels.CLUSTER}=later"
    await waiting.found(lambda: kube.list_all(kinds.POD, namespace, label_selector=selector), "its head", within_s=40)
    for service in USERS:
        await installed.ready(service)

    assert installed.nats.violations() == []
    for service in USERS:
        assert "nats_refused" not in (installed.folder / f"{service}.log").read_text()


async def test_a_gateway_that_is_told_other_settings_serves_and_says_what_differs(installed: Installation) -> None:
    installed.stop("gateway")
    installed.start("gateway", "--history-bytes", str(1 << 22))
    await installed.ready("gateway")

    checks = (await installed.checks("gateway"))["checks"]
    said = checks["nats"]["detail"]
    assert said == "NATS refused to user gateway: publish to $JS.API.STREAM.UPDATE.RAYHIST"
    log = (installed.folder / "gateway.log").read_text()
    assert "stream RAYHIST has other settings (max_bytes)" in log
    assert "`raybus provision` brings it to them" in log

    again = installed.provision(installed.nats.port, "--history-bytes", str(1 << 22))
    await ended(again, installed.folder / "provision.log")
    installed.stop("gateway")
    installed.start("gateway", "--history-bytes", str(1 << 22))
    await installed.ready("gateway")
    assert (await installed.checks("gateway"))["checks"]["nats"]["detail"] == ""


async def test_provisioning_again_also_twice_and_killed_changes_nothing_and_shows_no_secret(
    installed: Installation, kube: KubeClient
) -> None:
    names = ["ca", "server", "provisioner", *USERS.values()]
    before = {name: await secret(kube, installed.release, f"{PREFIX}-{name}") for name in names}
    port = installed.nats.port
    killed = installed.provision(port)
    await asyncio.sleep(1.0)
    killed.send_signal(signal.SIGKILL)
    killed.wait(10)
    both = [installed.provision(port), installed.provision(port)]
    for process in both:
        await ended(process, installed.folder / "provision.log")

    after = {name: await secret(kube, installed.release, f"{PREFIX}-{name}") for name in names}
    assert after == before
    logs = "".join(path.read_text() for path in installed.folder.glob("*.log"))
    seeds = {data["seed"].decode() for data in before.values() if "seed" in data}
    assert not [seed for seed in seeds if seed in logs]
    assert not re.search("PRIVATE KEY|SU[A-Z2-7]{50}", logs)
    assert installed.nats.violations() == []
