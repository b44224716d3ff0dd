"""Two replicas of every service under random kills, freezes and restarts while objects come, change and go.

Asserted of what a witness saw: no name stands for two objects, no cluster has two heads, strangers are left alone, everything
arrives where its spec says, and then nothing is written any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from pathlib import Path
from typing import Any

import pytest

from raybus.domain import kinds, labels
from raybus.kube import errors
from support.chaos import Fire, World, cluster, group, job, playing
from support.kube import RealKube
from support.operators import Operator

pytestmark = [pytest.mark.kube, pytest.mark.timeout(900)]

SERVICES = ("gateway-2", "cluster_ctrl", "cluster_ctrl-2", "job_ctrl", "job_ctrl-2")
STRANGER = "stranger"


class Users:
    """What people do to their objects, at random; `wanted` is how many workers each cluster should end with."""

    def __init__(self, world: World, chance: random.Random, count: int) -> None:
        self.world, self._chance = world, chance
        self.wanted: dict[str, int | None] = {}
        self.jobs: set[str] = set()
        self.recreated: set[str] = set()
        self._clusters = [f"c{number}" for number in range(count)]
        self._jobs = [f"j{number}" for number in range(count // 3)]

    async def stranger(self) -> None:
        """A pod with our labels that nobody of us created."""
        marks = {labels.CLUSTER: "c0", labels.NODE_TYPE: "worker", labels.GROUP: "w"}
        body = {"metadata": {"name": STRANGER, "labels": marks}, "spec": {"containers": [{"name": "a", "image": "b"}]}}
        await self.world.create(kinds.POD, body)

    async def act(self) -> None:
        # An API server that is away answers nobody; the user tries something else next time.
        with contextlib.suppress(errors.NotFound, errors.AlreadyExists, errors.Conflict):
            await self._chance.choice(
                (self._create, self._create, self._scale, self._scale, self._delete, self._kill_pod, self._run_job)
            )()

    async def _create(self) -> None:
        name = self._chance.choice(self._clusters)
        number = self._chance.randrange(4)
        self.world.wish(name, number)
        await self.world.create(kinds.RAYCLUSTER, cluster(name, group(replicas=number)))
        if name in self.wanted:
            self.recreated.add(name)
        self.wanted[name] = number

    async def _scale(self) -> None:
        if name := self._one():
            number = self._chance.randrange(4)
            self.world.wish(name, number)
            await self.world.patch(kinds.RAYCLUSTER, name, {"spec": {"workerGroupSpecs": [group(replicas=number)]}})
            self.wanted[name] = number

    async def _delete(self) -> None:
        if name := self._one():
            self.wanted[name] = None
            await self.world.delete(kinds.RAYCLUSTER, name)

    async def _kill_pod(self) -> None:
        if (name := self._one()) and (pods := [p for p in self.world.pods(name) if p["metadata"]["name"] != STRANGER]):
            await self.world.delete(kinds.POD, self._chance.choice(pods)["metadata"]["name"])

    async def _run_job(self) -> None:
        if left := [name for name in self._jobs if name not in self.jobs]:
            name = self._chance.choice(left)
            mode = self._chance.choice(("HTTPMode", "K8sJobMode"))
            self.jobs.add(name)
            await self.world.create(kinds.RAYJOB, job(name, submissionMode=mode))

    def _one(self) -> str:
        alive = sorted(name for name, number in self.wanted.items() if number is not None)
        return self._chance.choice(alive) if alive else ""


def arrived(users: Users) -> bool:
    """Every object is where its spec says."""
    world = users.world
    jobs = {obj["metadata"]["name"]: (obj.get("status") or {}) for obj in world.of(kinds.RAYJOB)}
    return all(_cluster_arrived(world, name, number) for name, number in users.wanted.items()) and all(
        jobs.get(name, {}).get("jobDeploymentStatus") == "Complete" for name in users.jobs
    )


def _cluster_arrived(world: World, name: str, number: int | None) -> bool:
    pods = [pod for pod in world.pods(name) if pod["metadata"]["name"] != STRANGER]
    if number is None:
        return not pods and ("RayCluster", name) not in world.objects
    status = world.objects.get(("RayCluster", name), {}).get("status") or {}
    return (
        len(pods) == number + 1
        and status.get("state") == "ready"
        and status.get("availableWorkerReplicas", 0) == number
    )


async def chaos(world: World, operator: Operator, *, seed: int, count: int, seconds: float, quiet_s: float) -> None:
    chance = random.Random(seed)
    users = Users(world, chance, count)
    await users.stranger()
    fire = Fire(operator, ("gateway", *SERVICES, "nats"), chance, freeze_s=5.0)
    ends = asyncio.get_running_loop().time() + seconds
    async with fire.burning(every_s=1.0):
        while asyncio.get_running_loop().time() < ends:
            await users.act()
            await asyncio.sleep(chance.uniform(0.05, 0.5))
    told = f"seed {seed}, {dict(fire.done)}"
    for name in sorted(users.jobs):
        await world.until_async(lambda name=name: world.finish(name), f"{told}: {name} to run", within_s=120)
    await world.until(lambda: arrived(users), f"{told}: all to arrive at {users.wanted}", within_s=120)
    # The last events and status writes are on their way; after that nothing may be written.
    await asyncio.sleep(10)
    await world.quiet_for(quiet_s)
    assert not world.wrongs, told
    replaced = {f"RayCluster/{name}" for name in users.recreated} | {
        f"Service/{name}-head-svc" for name in users.recreated
    }
    assert not set(world.made_twice(kinds.RAYCLUSTER, kinds.JOB, kinds.SERVICE)) - replaced, told
    assert ("Pod", STRANGER) in world.objects, told
    assert world.objects["Pod", STRANGER]["metadata"]["labels"][labels.CLUSTER] == "c0", told


async def test_random_failures_of_two_replicas_each(kubeconfig: str, tmp_path: Path) -> None:
    async with playing(kubeconfig, tmp_path, *SERVICES) as (world, operator):
        seed = random.SystemRandom().randrange(1 << 32)
        await chaos(world, operator, seed=seed, count=9, seconds=25, quiet_s=10)


@pytest.mark.night
@pytest.mark.parametrize("number", range(5))
async def test_random_failures_for_longer(realkube: RealKube, tmp_path: Path, number: int) -> None:
    """On a real API server, with more objects; its audit log shows that nobody asked for anything in the end, not even in vain."""
    async with playing(realkube.kubeconfig, tmp_path, *SERVICES) as (world, operator):
        seed = random.SystemRandom().randrange(1 << 32)
        await chaos(world, operator, seed=seed, count=30, seconds=120, quiet_s=60)
        asked = writes(realkube.audit())
        await asyncio.sleep(60)
        assert writes(realkube.audit()) == asked, f"seed {seed}, run {number}"


def writes(audit: list[dict[str, Any]]) -> int:
    """How many requests of our services would have changed something, whatever became of them."""
    ours = [
        each
        for each in audit
        if each.get("userAgent", "").startswith("raybus-") and each["stage"] == "ResponseComplete"
    ]
    return sum(each["verb"] not in ("get", "list", "watch") for each in ours)
