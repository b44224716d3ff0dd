"""A rolling update: replicas of one service end by SIGTERM and come again one after the other, while RayClusters and RayJobs of
all ages are in motion and the other services work. What runs is left alone, nothing is missed, nothing is done twice, and
partitions move at once, not after a lease's time.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import nats
import pytest

from raybus.domain import kinds
from support.chaos import World, cluster, group, job, playing
from support.kube import RealKube
from support.operators import Operator
from support.witness import Handovers, done_twice, history, repeated

pytestmark = [pytest.mark.kube, pytest.mark.timeout(240)]

SERVICES = ("gateway-2", "cluster_ctrl", "cluster_ctrl-2", "job_ctrl", "job_ctrl-2")
OWNERS = {"gateway": "gateway", "cluster_ctrl": "raycluster", "job_ctrl": "rayjob"}
LEASE_TTL_S = 12  # who does not hand over is followed only after this long
GAP_S = 3.0
STILL = ("still-1", "still-2")
MOVING = ("moving-1", "moving-2", "moving-3")


def settled(world: World, name: str, workers: int) -> bool:
    status = world.objects.get(("RayCluster", name), {}).get("status") or {}
    return (
        len(world.pods(name)) == workers + 1
        and status.get("state") == "ready"
        and status.get("availableWorkerReplicas", 0) == workers
    )


def job_status(world: World, name: str) -> dict[str, Any]:
    status: dict[str, Any] = world.objects.get(("RayJob", name), {}).get("status") or {}
    return status


def versions(world: World, *clusters: str) -> dict[str, str]:
    """Pods and Services of these clusters, and the clusters."""
    found = [pod for name in clusters for pod in world.pods(name)]
    found += [world.objects[kind, name] for name in clusters for kind in ("RayCluster",)]
    found += [world.objects["Service", f"{name}-head-svc"] for name in clusters]
    return {
        f"{obj['kind']}/{obj['metadata']['name']} {obj['metadata']['uid']}": obj["metadata"]["resourceVersion"]
        for obj in found
    }


class Motion:
    """People at work: clusters are scaled, jobs are sent, without pause. `wanted` is where each cluster should end."""

    def __init__(self, world: World, chance: random.Random) -> None:
        self._world, self._chance = world, chance
        self.wanted = dict.fromkeys(MOVING, 1)
        self.jobs: list[str] = []

    @contextlib.asynccontextmanager
    async def going(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self._go(), name="motion")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _go(self) -> None:
        while True:
            await asyncio.sleep(self._chance.uniform(0.2, 0.6))
            if len(self.jobs) < 4 and self._chance.random() < 0.3:
                name = f"job-{len(self.jobs) + 1}"
                self.jobs.append(name)
                mode = self._chance.choice(("HTTPMode", "K8sJobMode"))
                await self._world.create(kinds.RAYJOB, job(name, submissionMode=mode))
                continue
            name, workers = self._chance.choice(MOVING), self._chance.randrange(4)
            self._world.wish(name, workers)
            await self._world.patch(kinds.RAYCLUSTER, name, {"spec": {"workerGroupSpecs": [group(replicas=workers)]}})
            self.wanted[name] = workers


async def replaced(operator: Operator, name: str) -> None:
    operator.signal(name, signal.SIGTERM)
    await operator.died(name)
    operator.start(name)
    await operator.ready(name)


async def rolled(
    world: World, operator: Operator, service: str, audit: Callable[[], list[dict[str, Any]]] | None
) -> None:
    chance = random.Random(seed := random.SystemRandom().randrange(1 << 32))
    for name in (*STILL, *MOVING):
        await world.create(kinds.RAYCLUSTER, cluster(name, group(replicas=1)))
    await world.create(kinds.RAYJOB, job("long"))
    await world.until(lambda: all(settled(world, name, 1) for name in (*STILL, *MOVING)), "the clusters to be ready")
    await world.until(lambda: job_status(world, "long").get("jobStatus") == "RUNNING", "the long job to run")
    await world.calm()
    still = versions(world, *STILL, job_status(world, "long")["rayClusterName"])
    handovers = Handovers(OWNERS[service])
    motion = Motion(world, chance)
    client = await nats.connect(operator.nats.url)
    try:
        await handovers.follow(client)
        async with motion.going():
            await asyncio.sleep(2)
            for name in (service, f"{service}-2"):
                await replaced(operator, name)
            await asyncio.sleep(2)
        told = f"seed {seed}"
        assert handovers.gaps, "nothing was handed over"
        assert max(handovers.gaps) < GAP_S, told
        await arrives(world, motion, told)
        assert versions(world, *STILL, job_status(world, "long")["rayClusterName"]) == still, told
        assert not world.wrongs, told
        assert not world.made_twice(kinds.RAYCLUSTER, kinds.JOB, kinds.SERVICE), told
        assert done_twice(await history(client), world.namespace, world.uids) == [], told
        if audit:
            assert repeated(audit(), world.namespace, world.uids) == [], told
    finally:
        await client.close()


async def arrives(world: World, motion: Motion, told: str) -> None:
    """Whatever was asked for during the update happens after all, and then nothing more."""
    await world.until(
        lambda: all(settled(world, name, workers) for name, workers in motion.wanted.items()),
        f"{told}: the clusters to be as wanted: {motion.wanted}",
    )
    for name in ("long", *motion.jobs):
        await world.until_async(lambda name=name: world.finish(name), f"{told}: {name} to run")
        await world.until(
            lambda name=name: job_status(world, name).get("jobDeploymentStatus") == "Complete", f"{told}: {name} to end"
        )
    await world.calm()
    await world.quiet_for(3)


@pytest.mark.parametrize("service", ["cluster_ctrl", "gateway", pytest.param("job_ctrl", marks=pytest.mark.night)])
async def test_one_service_is_rolled_while_the_others_work(kubeconfig: str, tmp_path: Path, service: str) -> None:
    async with playing(kubeconfig, tmp_path, *SERVICES, lease_ttl_s=LEASE_TTL_S) as (world, operator):
        await rolled(world, operator, service, None)


@pytest.mark.realkube
@pytest.mark.parametrize(
    "service", ["cluster_ctrl", pytest.param("job_ctrl", marks=pytest.mark.night), pytest.param("gateway", marks=pytest.mark.night)]
)  # fmt: skip
async def test_the_api_server_saw_no_request_twice(realkube: RealKube, tmp_path: Path, service: str) -> None:
    async with playing(realkube.kubeconfig, tmp_path, *SERVICES, lease_ttl_s=LEASE_TTL_S) as (world, operator):
        await rolled(world, operator, service, realkube.audit)
