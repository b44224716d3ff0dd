"""The API server says no, or nothing at all: it is told, not hammered, and heals by itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from raybus.domain import kinds
from raybus.domain.kinds import Kind
from support.chaos import World, cluster, group, job, playing
from support.kube import RealKube

pytestmark = [pytest.mark.realkube, pytest.mark.timeout(300)]

QUOTA = Kind("", "v1", "ResourceQuota", "resourcequotas")


@pytest.fixture
async def world(realkube: RealKube, tmp_path: Path) -> AsyncIterator[World]:
    async with playing(realkube.kubeconfig, tmp_path, "cluster_ctrl", "job_ctrl") as (world, _):
        yield world


def requests(realkube: RealKube, namespace: str, resource: str) -> int:
    """How often our services tried to create something there, whatever became of it."""
    return sum(
        each["verb"] == "create"
        and each["stage"] == "ResponseComplete"
        and each.get("userAgent", "").startswith("raybus-")
        and each["objectRef"].get("namespace") == namespace
        and each["objectRef"]["resource"] == resource
        for each in realkube.audit()
    )


def condition(world: World, name: str, kind: str) -> dict[str, Any]:
    status = world.objects.get(("RayCluster", name), {}).get("status") or {}
    return next((each for each in status.get("conditions", ()) if each["type"] == kind), {})


def ready(world: World, name: str, pods: int) -> bool:
    status = world.objects.get(("RayCluster", name), {}).get("status") or {}
    return len(world.pods(name)) == pods and status.get("state") == "ready"


async def test_a_quota_is_told_and_not_hammered_and_heals(world: World, realkube: RealKube) -> None:
    quota = {"metadata": {"name": "few"}, "spec": {"hard": {"pods": "1"}}}
    await world.create(QUOTA, quota)

    async def counted() -> bool:
        (found,) = await world.kube.list_all(QUOTA, world.namespace)
        return "used" in found.get("status", {})

    await world.until_async(counted, "the quota to be counted")
    await world.create(kinds.RAYCLUSTER, cluster("demo", group(replicas=3)))
    failure = await world.until(lambda: condition(world, "demo", "ReplicaFailure"), "the failure in the status")
    assert "exceeded quota: few" in failure["message"]
    await asyncio.sleep(20)
    told = [e for e in world.of(kinds.EVENT) if "exceeded quota" in e.get("note", "")]
    assert told
    assert len(told) <= 4, [event["note"] for event in told]
    before = requests(realkube, world.namespace, "pods")
    await asyncio.sleep(20)
    assert requests(realkube, world.namespace, "pods") - before <= 6
    await world.kube.delete(QUOTA, world.namespace, "few")
    await world.until(lambda: ready(world, "demo", 4), "the cluster without the quota", within_s=90)
    await world.calm()
    assert not condition(world, "demo", "ReplicaFailure")
    await world.quiet_for(5)


async def test_an_api_server_that_is_away_for_half_a_minute(world: World, realkube: RealKube) -> None:
    await world.create(kinds.RAYCLUSTER, cluster("demo", group(replicas=2)))
    await world.create(kinds.RAYJOB, job("train", submissionMode="HTTPMode"))
    await world.until(lambda: ready(world, "demo", 3), "the cluster")
    await world.until(
        lambda: world.objects["RayJob", "train"].get("status", {}).get("jobStatus") == "RUNNING", "the job"
    )
    await world.calm()
    pods = {pod["metadata"]["uid"] for pod in world.of(kinds.POD)}
    away = asyncio.create_task(asyncio.to_thread(realkube.restart_apiserver, 30))
    await asyncio.sleep(10)
    assert await world.finish("train")  # news that nobody can write down for now
    await away
    await world.until(
        lambda: world.objects["RayJob", "train"]["status"].get("jobDeploymentStatus") == "Complete", "the job's end"
    )
    assert {pod["metadata"]["uid"] for pod in world.of(kinds.POD)} == pods
    await world.patch(kinds.RAYCLUSTER, "demo", {"spec": {"workerGroupSpecs": [group(replicas=1)]}})
    await world.until(lambda: ready(world, "demo", 2), "the cluster to shrink")
    await world.calm()
    await world.quiet_for(5)
    assert not world.wrongs
