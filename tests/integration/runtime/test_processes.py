"""Controller processes as an administrator meets them: how they start, why they do not, how they end, who follows them."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from raybus.domain import kinds
from raybus.kube.client import KubeClient
from support.kube import client_of
from support.nats import NatsServer, free_port
from support.operators import Operator, Standing

PATIENCE_S = 40.0


class Process:
    """One cluster_ctrl beside those of an Operator."""

    def __init__(self, folder: Path, nats_url: str, kubeconfig: str, replica: str, *flags: str, **env: str) -> None:
        self.health = f"http://127.0.0.1:{(port := free_port())}"
        self._log = folder / f"{replica}.log"
        arguments = ["--nats-url", nats_url, "--kubeconfig", kubeconfig, "--replica-id", replica]
        arguments += ["--health-port", str(port), "--lease-ttl-s", "3", *flags]
        with self._log.open("wb") as log:
            self.popen = subprocess.Popen(
                [sys.executable, "-m", "raybus_cluster_ctrl", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={key: value for key, value in os.environ.items() if not key.startswith("RAYBUS_")} | env,
            )

    def log(self) -> str:
        return self._log.read_text()

    async def checks(self) -> dict[str, Any]:
        try:
            async with aiohttp.ClientSession() as session, session.get(f"{self.health}/readyz") as response:
                body: dict[str, Any] = await response.json()
                return body
        except aiohttp.ClientError:
            return {"ready": False, "checks": {}}

    async def metrics(self) -> str:
        async with aiohttp.ClientSession() as session, session.get(f"{self.health}/metrics") as response:
            return await response.text()

    async def owned(self) -> str:
        found = (await self.checks())["checks"].get("partitions", {})
        return str(found.get("detail", ""))

    async def until_ready(self, owning: str = "") -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not ((await self.checks())["ready"] and owning in await self.owned()):
                assert self.popen.poll() is None, self.log()
                await asyncio.sleep(0.05)

    async def ended(self, within_s: float) -> int:
        return await asyncio.wait_for(asyncio.to_thread(self.popen.wait), within_s)

    def kill(self) -> None:
        self.popen.kill()
        self.popen.wait(10)


def manifest(name: str, namespace: str) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "ray", "image": "example/ray:2.52.0"}]}}
    group = {"groupName": "w", "replicas": 2, "minReplicas": 0, "maxReplicas": 9, "template": template}
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"headGroupSpec": {"template": template}, "workerGroupSpecs": [group]},
    }


class Scene:
    def __init__(self, folder: Path, kubeconfig: str, kube: KubeClient, namespace: str, operator: Operator) -> None:
        self.folder, self.kubeconfig = folder, kubeconfig
        self.kube, self.namespace, self.operator = kube, namespace, operator
        self.processes: list[Process] = []

    async def begin(self, replica: str, **env: str) -> Process:
        process = Process(self.folder, self.operator.nats.url, self.kubeconfig, replica, **env)
        self.processes.append(process)
        return process

    async def clusters(self, *names: str) -> None:
        for name in names:
            await self.kube.create(kinds.RAYCLUSTER, manifest(name, self.namespace))

    async def pods(self) -> list[str]:
        return sorted(pod["metadata"]["name"] for pod in await self.kube.list_all(kinds.POD, self.namespace))

    async def until_pods(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while len(await self.pods()) < count:  # noqa: ASYNC110 - other processes make them
                await asyncio.sleep(0.1)
        await asyncio.sleep(1)  # a pod too many would come now
        assert len(await self.pods()) == count

    async def versions(self) -> dict[str, str]:
        """The version of everything in the namespace that Raybus writes: equal ones mean that nothing was written."""
        found = [
            obj
            for kind in (kinds.RAYCLUSTER, kinds.POD, kinds.SERVICE, kinds.EVENT)
            for obj in await self.kube.list_all(kind, self.namespace)
        ]
        return {obj["metadata"]["uid"]: obj["metadata"]["resourceVersion"] for obj in found}


@pytest.fixture
async def scene(kubeconfig: str, standing: Standing, tmp_path: Path) -> AsyncIterator[Scene]:
    async with client_of(kubeconfig) as kube, standing.serving(kube, "cluster_ctrl") as (operator, _, namespace):
        scene = Scene(tmp_path, kubeconfig, kube, namespace, operator)
        yield scene
        for process in scene.processes:
            process.kill()


@pytest.mark.kube
@pytest.mark.timeout(180)
class TestReplicas:
    async def test_sigterm_hands_over_and_ends_with_0(self, scene: Scene) -> None:
        second = await scene.begin("second")
        await second.until_ready(owning="owned [")
        await scene.clusters("a", "b", "c")
        second.popen.send_signal(signal.SIGTERM)

        assert await second.ended(15) == 0, second.log()
        await scene.until_pods(9)
        assert '"stopped"' in second.log()
        assert "Traceback" not in second.log()

    async def test_one_killed_between_an_action_and_its_record_is_followed(self, scene: Scene) -> None:
        second = await scene.begin("second", RAYBUS_FAULTPOINT="after:CreatePod:2")
        await second.until_ready(owning="owned [")
        names = [f"c{number}" for number in range(12)]  # so many that both replicas have some
        await scene.clusters(*names)

        assert await second.ended(PATIENCE_S) == -signal.SIGKILL
        await scene.until_pods(3 * len(names))

    async def test_idle_processes_write_nothing_and_say_how_things_stand(self, scene: Scene) -> None:
        second = await scene.begin("second")
        await scene.clusters("a", "b")
        await scene.until_pods(6)
        await second.until_ready()
        await asyncio.sleep(2)
        before = await scene.versions()

        await asyncio.sleep(8)

        assert await scene.versions() == before
        metrics = await second.metrics()
        assert "raybus_nats_connected 1.0" in metrics
        assert 'raybus_marker_age_seconds{kind="Pod"}' in metrics
        assert "raybus_history_dropped_total 0.0" in metrics


def run(*flags: str, **env: str) -> subprocess.CompletedProcess[str]:
    own = {key: value for key, value in os.environ.items() if not key.startswith("RAYBUS_")}
    command = [sys.executable, "-m", "raybus_cluster_ctrl", "--health-port", "0", *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=own | env, check=False)


class TestWhatCannotStart:
    """One line on standard error that names what is missing, and an exit code."""

    def test_no_nats_server(self) -> None:
        done = run("--nats-url", f"nats://127.0.0.1:{free_port()}", "--nats-wait-s", "0.5")

        assert done.returncode == 1
        last = done.stderr.splitlines()[-1]
        assert last.startswith("raybus-cluster-ctrl: ")
        assert "is nats-server running?" in last
        assert "Traceback" not in done.stderr

    def test_no_kubeconfig(self, nats_server: NatsServer) -> None:
        done = run("--nats-url", nats_server.url, "--kubeconfig", "/does/not/exist")

        assert done.returncode == 1
        assert "/does/not/exist" in done.stderr.splitlines()[-1]
        assert "Traceback" not in done.stderr

    def test_a_port_that_is_in_use(self, nats_server: NatsServer) -> None:
        done = run("--nats-url", nats_server.url, "--health-port", str(nats_server.port))

        assert done.returncode == 1
        assert "--health-port" in done.stderr.splitlines()[-1]

    def test_a_wrong_flag(self) -> None:
        done = run("--worker", "3")

        assert done.returncode == 2
        assert done.stderr.count("\n") == 1
        assert "did you mean --workers?" in done.stderr

    @pytest.mark.kube
    def test_no_gateway(self, nats_server: NatsServer, kubeconfig: str) -> None:
        done = run("--nats-url", nats_server.url, "--kubeconfig", kubeconfig, "--nats-wait-s", "1")

        assert done.returncode == 1
        assert "is the gateway running?" in done.stderr.splitlines()[-1]
