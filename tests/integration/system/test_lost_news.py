"""NATS loses what it held, in every way it can: Kubernetes is the truth, so nothing that runs is touched and all goes on."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from typing import Any

import nats
import pytest

from raybus.domain import kinds
from support.chaos import World, cluster, group, playing_on
from support.operators import Operator, Standing

pytestmark = [pytest.mark.kube, pytest.mark.timeout(180)]

SERVICES = ("cluster_ctrl", "job_ctrl")


def night(stream: str) -> Any:
    return pytest.param(stream, marks=pytest.mark.night)


@pytest.fixture
async def settled(kubeconfig: str, standing: Standing) -> AsyncIterator[tuple[World, Operator]]:
    """A cluster that is ready and a world in which nothing happens."""
    async with playing_on(standing, kubeconfig, *SERVICES) as (world, operator):
        await world.create(kinds.RAYCLUSTER, cluster("demo", group(replicas=2)))
        await world.until(lambda: ready(world, 2), "the cluster to be ready")
        await world.calm()
        yield world, operator


def ready(world: World, workers: int) -> bool:
    status = world.objects.get(("RayCluster", "demo"), {}).get("status") or {}
    return len(world.pods("demo")) == workers + 1 and status.get("availableWorkerReplicas", 0) == workers


async def goes_on(world: World) -> None:
    """What ran was not touched, and what is wanted next happens."""
    before = {key: obj["metadata"]["resourceVersion"] for key, obj in world.objects.items() if key[0] != "Event"}
    await world.patch(kinds.RAYCLUSTER, "demo", {"spec": {"workerGroupSpecs": [group(replicas=3)]}})
    await world.until(lambda: ready(world, 3), "the cluster to be scaled")
    pods = {key: rv for key, rv in before.items() if key[0] in ("Pod", "Service")}
    assert {key: world.objects[key]["metadata"]["resourceVersion"] for key in pods} == pods


async def test_an_empty_store(settled: tuple[World, Operator]) -> None:
    world, operator = settled
    operator.kill("nats")
    shutil.rmtree(operator.nats.folder / "store")
    operator.start("nats")
    await world.quiet_for(3)
    await goes_on(world)


@pytest.mark.parametrize(
    "stream",
    [night("RAYCLUSTER"), night("RAYHIST"), night("KV_lease-raycluster"), "KV_lease-gateway"],
)
async def test_a_stream_that_was_deleted_by_hand(settled: tuple[World, Operator], stream: str) -> None:
    world, operator = settled
    client = await nats.connect(operator.nats.url)
    try:
        await client.jetstream().delete_stream(stream)
        await world.quiet_for(3)
        await goes_on(world)
        await world.until_async(lambda: has(client, stream), f"{stream} to be made again")
    finally:
        await client.close()


async def has(client: nats.NATS, stream: str) -> bool:
    return stream in {info.config.name for info in await client.jetstream().streams_info()}


@pytest.mark.night
async def test_a_store_of_another_cluster(settled: tuple[World, Operator]) -> None:
    """As after a restore: the streams say that they belong to somebody else, and hold what never was here."""
    world, operator = settled
    client = await nats.connect(operator.nats.url)
    try:
        stream = client.jetstream()
        config = (await stream.stream_info("RAYCLUSTER")).config
        config.metadata = {**(config.metadata or {}), "raybus.cluster": "another"}
        await stream.update_stream(config)
    finally:
        await client.close()
    for name in ("gateway", *SERVICES):
        operator.kill(name)
    for name in ("gateway", *SERVICES):
        operator.start(name)
    for name in ("gateway", *SERVICES):
        await operator.ready(name)
    await world.quiet_for(3)
    await goes_on(world)
