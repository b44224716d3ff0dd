"""Independent upgrades: one service is replaced by the next build and put back, while the others stay as they are.

The next build (tests/support/builds.py) adds a header, fields in its own records and a wider projection of Pods. Two replicas of the
service that moves, so that both builds work side by side in between.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import nats
import orjson
import pytest

from raybus.bus.streams import DEFAULT_PARTITIONS
from raybus.bus.subjects import object_subject, partition_of
from raybus.decide.tree import RootKey
from raybus.domain import kinds
from support.builds import HEADER, NOTE, VERSION, WIDER, Build, next_build
from support.chaos import TEMPLATE, World, cluster, group, job, playing
from support.kube import RealKube
from support.operators import Operator
from support.witness import done_twice, history, repeated

pytestmark = [pytest.mark.kube, pytest.mark.timeout(240)]

SERVICES = ("gateway-2", "cluster_ctrl", "cluster_ctrl-2", "job_ctrl")
OTHERS = ("b", "c")
LIMITS = {"limits": {"cpu": "1"}}


@pytest.fixture(scope="session")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Build:
    return next_build(tmp_path_factory.mktemp("next"))


def limited(replicas: int) -> dict[str, Any]:
    """A group of pods with limits: what the next build alone can see."""
    container = {**TEMPLATE["spec"]["containers"][0], "resources": LIMITS}
    return group(replicas=replicas, template={"spec": {"containers": [container]}})


def ready(world: World, name: str, workers: int) -> bool:
    status = world.objects.get(("RayCluster", name), {}).get("status") or {}
    return len(world.pods(name)) == workers + 1 and status.get("availableWorkerReplicas", 0) == workers


def job_status(world: World) -> dict[str, Any]:
    status: dict[str, Any] = world.objects.get(("RayJob", "train"), {}).get("status") or {}
    return status


class Scene:
    """Clusters a, b, c and a running RayJob; a is what people change. All else must keep its versions."""

    def __init__(self, world: World, operator: Operator, client: nats.NATS, newer: Build) -> None:
        self.world, self.operator, self._client, self._newer = world, operator, client, newer
        self.workers = 1
        self.kept: dict[str, str] = {}

    async def begin(self) -> None:
        for name in ("a", *OTHERS):
            await self.world.create(kinds.RAYCLUSTER, cluster(name, limited(replicas=1)))
        await self.world.create(kinds.RAYJOB, job("train"))
        await self.world.until(lambda: all(ready(self.world, name, 1) for name in ("a", *OTHERS)), "the clusters")
        await self.world.until(lambda: job_status(self.world).get("jobStatus") == "RUNNING", "the job to run")
        await self.world.calm()
        self.kept = self.versions()

    def versions(self) -> dict[str, str]:
        """Of everything but cluster a and its pods; events of others are among them."""
        return {
            f"{kind}/{name} {obj['metadata']['uid']}": obj["metadata"]["resourceVersion"]
            for (kind, name), obj in self.world.objects.items()
            if name != "a" and not name.startswith(("a-w-", "a.")) and (obj.get("regarding") or {}).get("name") != "a"
        }

    async def replace(self, name: str, *, by_next: bool) -> None:
        """One replica goes, the other build comes; meanwhile somebody scales cluster a, and that happens."""
        self.operator.signal(name, signal.SIGTERM)
        self.workers = 3 - self.workers
        await self.world.patch(kinds.RAYCLUSTER, "a", {"spec": {"workerGroupSpecs": [limited(replicas=self.workers)]}})
        await self.operator.died(name)
        self.operator.start(name, self._newer.env if by_next else None)
        await self.operator.ready(name)
        await self.world.until(lambda: ready(self.world, "a", self.workers), f"a with {self.workers} workers")
        assert (f'version="{VERSION}"' in await self.operator.metrics(name)) is by_next
        assert self.versions() == self.kept, f"{name} was replaced"

    async def message(self, cluster_name: str, kind: str, name: str) -> Any:
        """What the stream holds about an object in the tree of a RayCluster."""
        key = RootKey("RayCluster", self.world.namespace, cluster_name)
        subject = object_subject("raycluster", 1, partition_of(key, DEFAULT_PARTITIONS), key, kind, name)
        return await self._client.jetstream().get_last_msg("RAYCLUSTER", subject)

    async def until_wider(self) -> None:
        """What was there before, and has not changed, is told again with what the next build wants to see as well."""
        pods = [(name, pod["metadata"]["name"]) for name in OTHERS for pod in self.world.pods(name)]
        for name, pod in pods:

            async def wider(name: str = name, pod: str = pod) -> bool:
                message = await self.message(name, "Pod", pod)
                shown = set(unquote(message.headers["ray-projection"]).split("+"))
                containers = orjson.loads(message.data)["spec"]["containers"]
                return {WIDER, "pod.status"} <= shown and "resources" in containers[0]

            await self.world.until_async(wider, f"{pod} with its limits")

    async def noted(self) -> bool:
        """Whether a decision about cluster a rested on the limits of all its workers."""
        wanted = f"{self.workers} {NOTE}"
        notes = [
            note for _, body in await history(self._client) if body["what"] == "decision" for note in body["notes"]
        ]
        return any(wanted in note for note in notes)

    async def end(self, audit: Callable[[], list[dict[str, Any]]] | None) -> None:
        await self.world.calm()
        assert self.versions() == self.kept
        await self.world.finish("train")
        await self.world.until(
            lambda: job_status(self.world).get("jobDeploymentStatus") == "Complete", "the job to end"
        )
        await self.world.calm()
        assert not self.world.wrongs
        assert not self.world.made_twice(kinds.RAYCLUSTER, kinds.JOB, kinds.SERVICE)
        records = await history(self._client)
        assert done_twice(records, self.world.namespace, self.world.uids) == []
        builds = {body.get("build") for _, body in records if body["what"] != "decision"}
        assert builds == {None, "next"}, "both builds left records, and both were read"
        for name in ("gateway", *SERVICES):
            assert "Traceback" not in self.operator.log_file(name).read_text(), self.operator.log(name)
        if audit:
            assert repeated(audit(), self.world.namespace, self.world.uids) == []


async def controller(scene: Scene) -> None:
    """There: both replicas one after the other. And back."""
    await scene.replace("cluster_ctrl", by_next=True)
    await scene.until_wider()
    await scene.replace("cluster_ctrl-2", by_next=True)
    await scene.world.until_async(scene.noted, "a decision on what only the next build sees")
    for name in ("cluster_ctrl", "cluster_ctrl-2"):
        await scene.replace(name, by_next=False)


async def gateway(scene: Scene) -> None:
    for name in ("gateway", "gateway-2"):
        await scene.replace(name, by_next=True)
    assert (await scene.message("a", "RayCluster", "a")).headers[HEADER] == "next"
    for name in ("gateway", "gateway-2"):
        await scene.replace(name, by_next=False)


async def jobs(scene: Scene) -> None:
    await scene.replace("job_ctrl", by_next=True)
    await scene.replace("job_ctrl", by_next=False)


async def everything(scene: Scene) -> None:
    """Gateway and one controller of the next build, one replica of each left behind; then all back, in the other order."""
    for name in ("gateway", "cluster_ctrl", "gateway-2", "job_ctrl"):
        await scene.replace(name, by_next=True)
    await scene.until_wider()
    for name in ("cluster_ctrl", "job_ctrl", "gateway", "gateway-2"):
        await scene.replace(name, by_next=False)


async def play(
    kubeconfig: str,
    folder: Path,
    newer: Build,
    steps: tuple[Callable[[Scene], Any], ...],
    audit: Callable[[], list[dict[str, Any]]] | None = None,
) -> None:
    async with playing(kubeconfig, folder, *SERVICES) as (world, operator):
        client = await nats.connect(operator.nats.url)
        try:
            scene = Scene(world, operator, client, newer)
            await scene.begin()
            for step in steps:
                await step(scene)
            await scene.end(audit)
        finally:
            await client.close()


def night(*steps: Callable[[Scene], Any]) -> Any:
    return pytest.param(steps, marks=pytest.mark.night, id="-".join(step.__name__ for step in steps))


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param((controller,), id="controller"),
        pytest.param((gateway,), id="gateway"),
        night(controller, gateway),
        night(gateway, controller),
        night(jobs),
        night(everything),
    ],
)
async def test_there_and_back(kubeconfig: str, tmp_path: Path, newer: Build, steps: Any) -> None:
    await play(kubeconfig, tmp_path, newer, steps)


@pytest.mark.realkube
@pytest.mark.parametrize("steps", [pytest.param((controller,), id="controller"), night(gateway, controller)])
async def test_there_and_back_with_no_request_twice(
    realkube: RealKube, tmp_path: Path, newer: Build, steps: Any
) -> None:
    await play(realkube.kubeconfig, tmp_path, newer, steps, realkube.audit)


async def test_both_builds_are_what_they_say(newer: Build) -> None:
    """Else this file would test one build against itself."""
    program = "import raybus, importlib.metadata as m; print(raybus.__file__, m.version('raybus'))"
    for env, expected in ((newer.env, VERSION), ({}, "0.")):
        done = await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, env={**os.environ, **env}, stdout=asyncio.subprocess.PIPE
        )
        said = (await done.communicate())[0].decode()
        assert said.split()[1].startswith(expected)
        assert (str(newer.folder) in said) is (expected == VERSION)
