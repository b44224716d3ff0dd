"""What is legal but seldom: each odd object arrives, or is refused in clear words, and then nothing is written any more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from raybus.domain import kinds, labels
from raybus.domain.kinds import Kind
from support.chaos import World, cluster, group, job, playing, playing_on
from support.operators import Standing

pytestmark = [pytest.mark.kube, pytest.mark.timeout(180)]

SERVICES = ("cluster_ctrl", "job_ctrl")


@pytest.fixture
async def world(kubeconfig: str, standing: Standing) -> AsyncIterator[World]:
    async with playing_on(standing, kubeconfig, *SERVICES) as (world, _):
        yield world


def status(world: World, name: str, kind: str = "RayCluster") -> dict[str, Any]:
    return world.objects.get((kind, name), {}).get("status") or {}


def ready(world: World, name: str, pods: int) -> bool:
    return len(world.pods(name)) == pods and status(world, name).get("state") == "ready"


def events(world: World, name: str) -> dict[str, str]:
    return {
        event["reason"]: event.get("note", "") for event in world.of(kinds.EVENT) if event["regarding"]["name"] == name
    }


async def test_numbers_names_and_texts(world: World) -> None:
    await world.create(kinds.RAYCLUSTER, cluster("a" * 47, group("g" * 20, replicas=1)))
    await world.create(kinds.RAYCLUSTER, cluster("none"))
    await world.create(
        kinds.RAYCLUSTER, cluster("bounds", group(replicas=1, minReplicas=2), group("x", 5, maxReplicas=1))
    )
    await world.create(kinds.RAYCLUSTER, cluster("zero", group(replicas=0)))
    odd = cluster("text", group(replicas=1))
    odd["metadata"]["annotations"] = {"note": "żółć 🚀 \u202e \n\t"}
    odd["spec"]["headGroupSpec"]["rayStartParams"] = {"num-cpus": "1", "resources": "'{\"β\": 1}'"}
    await world.create(kinds.RAYCLUSTER, odd)
    await world.create(kinds.RAYCLUSTER, cluster("many", *(group(f"g{number}", replicas=1) for number in range(300))))
    for name, pods in (("a" * 47, 2), ("none", 1), ("bounds", 4), ("zero", 1), ("text", 2), ("many", 301)):
        await world.until(
            lambda name=name, pods=pods: ready(world, name, pods), f"{name} with {pods} pods", within_s=90
        )
    await world.calm()
    await world.quiet_for(3)
    assert not world.wrongs


@pytest.mark.parametrize(
    "name", [pytest.param("a" * 63, marks=pytest.mark.night), "with.dot", pytest.param("1st", marks=pytest.mark.night)]
)
async def test_names_that_cannot_be_are_refused_in_words(world: World, name: str) -> None:
    await world.create(kinds.RAYCLUSTER, cluster(name, group(replicas=1)))
    await world.until(lambda: events(world, name) or ready(world, name, 2), "an answer")
    await world.calm()
    assert "metadata.name" in events(world, name)["InvalidRayClusterMetadata"]
    assert not world.pods(name)
    await world.quiet_for(3)


async def test_created_again_at_once_under_its_name(world: World) -> None:
    await world.create(kinds.RAYCLUSTER, cluster("demo", group(replicas=2)))
    await world.until(lambda: ready(world, "demo", 3), "the first")
    for workers in (1, 3, 2):
        await world.delete(kinds.RAYCLUSTER, "demo")
        await world.create(kinds.RAYCLUSTER, cluster("demo", group(replicas=workers)))
    uid = (await world.kube.get(kinds.RAYCLUSTER, world.namespace, "demo"))["metadata"]["uid"]

    def arrived() -> bool:
        owners = {ref["uid"] for pod in world.pods("demo") for ref in pod["metadata"].get("ownerReferences", ())}
        return owners == {uid} and ready(world, "demo", 3)

    await world.until(arrived, "the last one alone")
    await world.calm()
    await world.quiet_for(3)
    assert not world.wrongs


@pytest.mark.night
async def test_jobs_created_again_at_once_under_their_name(world: World) -> None:
    ids = set()
    for _ in range(3):
        await world.create(kinds.RAYJOB, job("train", submissionMode="HTTPMode"))
        running = await world.until(
            lambda: status(world, "train", "RayJob").get("jobStatus") == "RUNNING" and status(world, "train", "RayJob"),
            "it to run",
        )
        ids.add(running["jobId"])
        await world.delete(kinds.RAYJOB, "train")
        await world.until_async(lambda: gone(world, kinds.RAYJOB, "train"), "its end")
    assert len(ids) == 3
    await world.until(lambda: not world.of(kinds.RAYCLUSTER) and not world.of(kinds.POD), "all to be gone")


async def gone(world: World, kind: Kind, name: str) -> bool:
    return name not in {obj["metadata"]["name"] for obj in await world.kube.list_all(kind, world.namespace)}


async def test_a_namespace_that_is_deleted_while_a_job_runs(world: World) -> None:
    await world.create(kinds.RAYJOB, job("train"))
    await world.create(kinds.RAYJOB, job("http", submissionMode="HTTPMode"))
    for name in ("train", "http"):
        await world.until(lambda name=name: status(world, name, "RayJob").get("jobStatus") == "RUNNING", "it to run")
    world.kubelet = False
    await world.kube.delete(kinds.NAMESPACE, None, world.namespace)

    async def away() -> bool:
        return world.namespace not in {ns["metadata"]["name"] for ns in await world.kube.list_all(kinds.NAMESPACE)}

    await world.until_async(away, "the namespace to be gone", within_s=60)


async def test_names_of_children_that_strangers_have(world: World) -> None:
    port = {"ports": [{"port": 80}]}
    await world.create(kinds.SERVICE, {"metadata": {"name": "demo-head-svc"}, "spec": port})
    await world.create(kinds.RAYCLUSTER, cluster("demo", group(replicas=1)))
    await world.until(lambda: events(world, "demo"), "a word about it")
    await asyncio.sleep(5)
    assert "exists already" in events(world, "demo")["FailedToCreateService"]
    assert not world.of(kinds.SERVICE)[0]["metadata"].get("ownerReferences")
    await world.delete(kinds.SERVICE, "demo-head-svc")
    await world.until(
        lambda: ready(world, "demo", 2) and status(world, "demo").get("head", {}).get("serviceName"),
        "recovery",
        within_s=90,
    )
    await world.calm()
    await world.quiet_for(3)


@pytest.mark.night
async def test_a_group_that_is_renamed_or_removed(world: World) -> None:
    await world.create(kinds.RAYCLUSTER, cluster("demo", group("a", replicas=1), group("b", replicas=1)))
    await world.until(lambda: ready(world, "demo", 3), "the cluster")
    await world.patch(kinds.RAYCLUSTER, "demo", {"spec": {"workerGroupSpecs": [group("c", replicas=1)]}})
    await asyncio.sleep(5)
    await world.calm()
    # As by the reference operator: a group that is not named any more is nobody's to scale; its pods stay.
    assert sorted(pod["metadata"]["labels"][labels.GROUP] for pod in world.pods("demo")) == ["a", "b", "c", "headgroup"]
    await world.quiet_for(3)


@pytest.mark.night
async def test_template_edits_while_running_touch_no_pod(world: World) -> None:
    await world.create(kinds.RAYCLUSTER, cluster("demo", group(replicas=1)))
    await world.until(lambda: ready(world, "demo", 2), "the cluster")
    await world.calm()
    before = {p["metadata"]["uid"] for p in world.pods("demo")}
    template = {"spec": {"containers": [{"name": "ray", "image": "example/ray:3"}]}}
    await world.patch(
        kinds.RAYCLUSTER,
        "demo",
        {"spec": {"headGroupSpec": {"template": template}, "workerGroupSpecs": [group(replicas=1, template=template)]}},
    )
    await asyncio.sleep(2)
    await world.calm()
    assert {p["metadata"]["uid"] for p in world.pods("demo")} == before
    await world.quiet_for(3)


async def test_objects_larger_than_a_message(kubeconfig: str, standing: Standing, tmp_path: Path) -> None:
    standing.stop()
    async with playing(kubeconfig, tmp_path, *SERVICES, max_payload=65536) as (world, _):
        large = cluster("large", group(replicas=2))
        large["metadata"]["annotations"] = {"big": "x" * 200_000}
        await world.create(kinds.RAYCLUSTER, large)
        await world.create(
            kinds.RAYJOB,
            job("train", runtimeEnvYAML="env_vars:\n" + "\n".join(f"  V{n}: {'y' * 100}" for n in range(900))),
        )
        await world.until(lambda: ready(world, "large", 3), "the large cluster")
        await world.until(lambda: status(world, "train", "RayJob").get("jobStatus") == "RUNNING", "the large job")
        await world.patch(kinds.RAYCLUSTER, "large", {"spec": {"workerGroupSpecs": [group(replicas=1)]}})
        await world.until(lambda: ready(world, "large", 2), "the large cluster to shrink")
        assert await world.finish("train")
        await world.until(lambda: status(world, "train", "RayJob").get("jobDeploymentStatus") == "Complete", "its end")
        await world.calm()
        await world.quiet_for(3)


async def test_objects_of_the_old_version(world: World) -> None:
    for body, kind in ((cluster("demo", group(replicas=1)), kinds.RAYCLUSTER), (job("train"), kinds.RAYJOB)):
        old = {**body, "apiVersion": "ray.io/v1alpha1"}
        spec = old["spec"].get("rayClusterSpec", old["spec"])
        for part in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
            part["rayStartParams"] = {}  # the old version requires it
        path = Kind("ray.io", "v1alpha1", kind.kind, kind.plural).path(world.namespace)
        await world.kube.request("POST", path, body=old, query={"fieldValidation": "Strict"})
    await world.until(lambda: ready(world, "demo", 2), "the cluster")
    await world.until(lambda: status(world, "train", "RayJob").get("jobStatus") == "RUNNING", "the job")
    assert await world.finish("train")
    await world.until(lambda: status(world, "train", "RayJob").get("jobDeploymentStatus") == "Complete", "its end")
    await world.calm()
    await world.quiet_for(3)


async def test_a_pod_whose_labels_were_taken_and_one_that_cannot_go(world: World) -> None:
    await world.create(kinds.RAYCLUSTER, cluster("demo", group(replicas=2)))
    await world.until(lambda: ready(world, "demo", 3), "the cluster")
    head, first, second = sorted(world.pods("demo"), key=lambda pod: pod["metadata"]["labels"][labels.NODE_TYPE])
    taken, stuck = first["metadata"]["name"], second["metadata"]["name"]
    await world.patch(kinds.POD, taken, {"metadata": {"labels": {labels.CLUSTER: None}}})
    await world.patch(kinds.POD, stuck, {"metadata": {"finalizers": ["test.example/stuck"]}})
    await world.delete(kinds.POD, stuck)
    # What Kubernetes says within 20 s of a pod that ends and has no node; said now, it is not written in the quiet time.
    await world.kube.merge_patch(
        kinds.POD, world.namespace, stuck, {"status": {"phase": "Failed"}}, subresource="status"
    )
    await asyncio.sleep(3)
    await world.calm()
    await world.quiet_for(3)
    await world.patch(kinds.POD, stuck, {"metadata": {"finalizers": None}})
    await world.until(lambda: ("Pod", stuck) not in world.objects, "the end of the stuck pod")
    await world.until(lambda: ready(world, "demo", 3), "the cluster, mended")
    assert ("Pod", taken) in world.objects
    assert ("Pod", head["metadata"]["name"]) in world.objects
    await world.calm()
    await world.quiet_for(3)


@pytest.mark.night
async def test_what_an_orphaning_deletion_left_is_named(world: World) -> None:
    """The children of before belong to nobody; a cluster of the same name says so and does not take them."""
    await world.create(kinds.RAYCLUSTER, cluster("demo", group(replicas=1)))
    await world.until(lambda: ready(world, "demo", 2), "the cluster")
    old = {pod["metadata"]["uid"] for pod in world.pods("demo")}
    path = kinds.RAYCLUSTER.path(world.namespace, "demo")
    await world.kube.request("DELETE", path, body={"propagationPolicy": "Orphan"})
    await world.until(lambda: ("RayCluster", "demo") not in world.objects, "its end")
    await world.create(kinds.RAYCLUSTER, cluster("demo", group(replicas=1)))
    await world.until(lambda: "has the labels of this cluster's head" in head_ready(world, "demo")["message"], "a word")
    left = [pod for pod in world.pods("demo") if pod["metadata"]["uid"] in old]
    assert len(left) == len(old)
    for pod in left:
        await world.delete(kinds.POD, pod["metadata"]["name"])
    await world.until(lambda: ready(world, "demo", 2), "the cluster, once nobody's pods are gone")
    await world.calm()
    await world.quiet_for(3)


def head_ready(world: World, name: str) -> dict[str, Any]:
    found = status(world, name).get("conditions", ())
    return next((each for each in found if each["type"] == "HeadPodReady"), {"message": ""})
