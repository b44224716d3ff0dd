"""Clusters and jobs that the reference operator made are taken over as they run: no pod is started, ended or written to.

The objects are recordings of what that operator made (tests/support/recorded.py); Raybus starts when they are all there.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from raybus.domain import kinds, labels
from raybus.domain.kinds import Kind
from raybus.kube.client import KubeClient
from support.chaos import World
from support.fake_ray import FakeHead, FakeJob, FakeRay
from support.kube import client_of, fresh_namespace
from support.operators import Operator
from support.recorded import CASES, Recorded, run
from support.waiting import found

pytestmark = [
    pytest.mark.kube,
    pytest.mark.timeout(180),
    pytest.mark.skipif(
        not CASES.exists(), reason="needs ../shared/golden, what the reference operator made, beside the repository"
    ),
]

SETTLED_S = 3.0
CONTROLLERS = ("cluster_ctrl", "job_ctrl")
# Everything that Raybus or the recordings could hold; of RayClusters and RayJobs only the status may change.
KEPT = (
    kinds.POD, kinds.SERVICE, kinds.JOB, kinds.SECRET, kinds.SERVICE_ACCOUNT, kinds.ROLE, kinds.ROLE_BINDING,
    kinds.INGRESS,
)  # fmt: skip
CLUSTERS = {
    "001-head-only": "pods run",
    "003-autoscaler-v2": "an autoscaler asks for three",
    "005-autoscaler-own-command": "replicas lowered by hand",
    "013-suspend-one-group": "pods run",
    "015-accelerators": "pods run",
    "017-group-resources-and-labels": "pods run",
    "019-overwrite-command": "pods run",
    "021-sidecars-and-init": "pods run",
    "023-multi-host": "pods run",
    "025-ingress": "pods run",
    "027-load-balancer": "pods run",
    "029-longest-name": "pods run",
    "031-token-auth": "pods run",
    "033-cluster-token-auth": "pods run",
    "035-recreate-upgrade": "pods run",
    "039-yunikorn-gang": "pods run",
    "043-clamped-replicas": "pods run",
    "053-operator-defaults": "pods run",
    "055-workers-to-delete": "scaled up with stale names",
}
# Of features that are not there yet: the object is named in an event and left alone.
NOT_YET = {"013-suspend-one-group", "023-multi-host", "035-recreate-upgrade"}


async def versions(kube: KubeClient, namespace: str, *of: Kind) -> dict[str, str]:
    """Kind and name of what is there -> uid and resourceVersion."""
    return {
        f"{kind.kind}/{obj['metadata']['name']}": f"{obj['metadata']['uid']} {obj['metadata']['resourceVersion']}"
        for kind in of
        for obj in await kube.list_all(kind, namespace)
    }


async def warnings(kube: KubeClient, namespace: str) -> set[str]:
    """Reasons of what Raybus complained about."""
    return {
        event["reason"]
        for event in await kube.list_all(kinds.EVENT, namespace)
        if event["type"] == "Warning" and event["regarding"]["kind"].startswith("Ray")
    }


async def test_no_running_cluster_of_any_kind_is_touched(kubeconfig: str, tmp_path: Path) -> None:
    async with contextlib.AsyncExitStack() as stack:
        kube = await stack.enter_async_context(client_of(kubeconfig))
        before: dict[str, tuple[Recorded, dict[str, str]]] = {}
        for case, after in CLUSTERS.items():
            namespace = await stack.enter_async_context(fresh_namespace(kube))
            recorded = Recorded(case, after, namespace)
            await recorded.put(kube)
            await run(kube, namespace)
            before[case] = recorded, await versions(kube, namespace, *KEPT)
        await stack.enter_async_context(Operator(tmp_path, kubeconfig, "cluster_ctrl"))
        await asyncio.sleep(8)
        for case, (recorded, kept) in before.items():
            cluster = await kube.get(kinds.RAYCLUSTER, recorded.namespace, recorded.name)
            recorded_cluster = recorded.objects["RayCluster", recorded.name]
            assert await versions(kube, recorded.namespace, *KEPT) == kept, case
            assert cluster["status"]["state"] == "ready", case
            assert cluster["spec"] == recorded_cluster["spec"], case
            assert since(cluster) == since(recorded_cluster), case
            complained = await warnings(kube, recorded.namespace)
            assert complained == ({"NotSupported"} if case in NOT_YET else set()), case


def since(cluster: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """The conditions, and since when."""
    found = cluster["status"]["conditions"]
    return {each["type"]: (each["status"], each["lastTransitionTime"]) for each in found}


# One at a time, watched


@contextlib.asynccontextmanager
async def adopted(
    kubeconfig: str, folder: Path, case: str, after: str, head: FakeHead | None = None, *, ended: bool = False
) -> AsyncIterator[tuple[World, Recorded, dict[str, str]]]:
    """The objects of a snapshot run, Raybus has started after them, and nothing is on its way any more.

    With the versions of all objects from before that start. `head` is the Ray behind the head Service; `ended`: the submitter has.
    """
    async with (
        client_of(kubeconfig, "adoption") as kube,
        FakeRay().serving() as ray,
        fresh_namespace(kube) as namespace,
        World(kube, namespace, ray).watching() as world,
    ):
        recorded = Recorded(case, after, namespace)
        await recorded.put(kube)
        await world.until(lambda: all(phase(pod) != "Pending" for pod in world.of(kinds.POD)), "the pods to run")
        if ended:
            await submitter_ends(world, recorded.name)
        await world.calm(for_s=2)
        if head is not None:
            cluster = next(name for kind, name in recorded.objects if kind == "RayCluster")
            ray.heads[f"{cluster}-head-svc.{namespace}.svc.cluster.local"] = head
            head.jobs.setdefault(recorded.job_id, running(recorded.job_id))
        before = await versions(kube, namespace, *KEPT, kinds.RAYJOB)
        async with Operator(folder, kubeconfig, *CONTROLLERS, proxy=f"http://{ray.address}"):
            await asyncio.sleep(SETTLED_S)
            await world.calm()
            yield world, recorded, before
        assert not world.wrongs


def running(job_id: str) -> FakeJob:
    job = FakeJob({"entrypoint": "python x.py", "submission_id": job_id})
    job.become("RUNNING", "ray: at work")
    return job


async def submitter_ends(world: World, name: str) -> None:
    (pod,) = await world.kube.list_all(kinds.POD, world.namespace, label_selector=f"job-name={name}")
    body = {"status": {"phase": "Succeeded"}}
    await world.kube.merge_patch(kinds.POD, world.namespace, pod["metadata"]["name"], body, subresource="status")


def phase(obj: dict[str, Any]) -> str:
    return str((obj.get("status") or {}).get("phase", "Pending"))


def status(world: World, kind: str, name: str) -> dict[str, Any]:
    return world.objects.get((kind, name), {}).get("status") or {}


def uids(pods: list[dict[str, Any]]) -> set[str]:
    return {pod["metadata"]["uid"] for pod in pods}


async def scale(world: World, name: str, replicas: int) -> None:
    groups = world.objects["RayCluster", name]["spec"]["workerGroupSpecs"]
    changed = [{**groups[0], "replicas": replicas, "scaleStrategy": {}}, *groups[1:]]
    await world.patch(kinds.RAYCLUSTER, name, {"spec": {"workerGroupSpecs": changed}})

    def scaled() -> bool:
        live = [pod for pod in world.pods(name) if "deletionTimestamp" not in pod["metadata"]]
        return len(live) == replicas + 1 and status(world, "RayCluster", name).get("readyWorkerReplicas", 0) == replicas

    await world.until(scaled, f"{replicas} workers")


async def test_an_adopted_cluster_is_scaled_and_repaired_from_there(kubeconfig: str, tmp_path: Path) -> None:
    async with adopted(kubeconfig, tmp_path, "055-workers-to-delete", "pods run") as (world, recorded, before):
        assert await versions(world.kube, world.namespace, *KEPT) == before
        first = uids(world.pods(recorded.name))
        await scale(world, recorded.name, 4)
        assert first < uids(world.pods(recorded.name))

        await scale(world, recorded.name, 3)
        assert uids(world.pods(recorded.name)) == first  # those that came last went first

        worker = next(
            pod for pod in world.pods(recorded.name) if pod["metadata"]["labels"][labels.NODE_TYPE] == "worker"
        )
        await world.kube.delete(kinds.POD, world.namespace, worker["metadata"]["name"], grace_seconds=0)

        def replaced() -> bool:
            pods = uids(world.pods(recorded.name))
            return len(pods) == 4 and len(pods & first) == 3

        await world.until(replaced, "the lost worker to be replaced")
        await world.calm()
        assert before["Service/chosen-head-svc"] == (await versions(world.kube, world.namespace, kinds.SERVICE)).get(
            "Service/chosen-head-svc"
        )


@pytest.mark.parametrize(
    ("end", "deployment"), [("SUCCEEDED", "Complete"), pytest.param("FAILED", "Failed", marks=pytest.mark.night)]
)
async def test_a_job_in_mid_run_ends_with_its_own_verdict(
    kubeconfig: str, tmp_path: Path, end: str, deployment: str
) -> None:
    head = FakeHead()
    async with adopted(kubeconfig, tmp_path, "100-job-default", "job runs", head) as (world, recorded, before):
        after = await versions(world.kube, world.namespace, *KEPT)
        assert after == {name: version for name, version in before.items() if not name.startswith("RayJob")}
        assert status(world, "RayJob", "count")["jobDeploymentStatus"] == "Running"
        assert status(world, "RayJob", "count")["jobStatus"] == "RUNNING"
        assert labels.HEAD_SESSION in world.objects["RayJob", "count"]["metadata"]["annotations"]

        head.jobs[recorded.job_id].become(end)
        await submitter_ends(world, "count")
        await world.until(
            lambda: status(world, "RayJob", "count").get("jobDeploymentStatus") == deployment, f"the job {deployment}"
        )
        assert status(world, "RayJob", "count")["jobStatus"] == end
        await world.calm()
        assert not [request for request in head.requests if request[0] != "GET"], "Ray was told to do something"
        assert not world.made_twice(kinds.JOB, kinds.RAYCLUSTER, kinds.SERVICE)


@pytest.mark.night
async def test_a_job_by_http_is_not_sent_again(kubeconfig: str, tmp_path: Path) -> None:
    head = FakeHead()
    async with adopted(kubeconfig, tmp_path, "122-job-deleted-while-running", "job runs", head) as (
        world,
        recorded,
        before,
    ):
        name = recorded.name
        assert status(world, "RayJob", name)["jobDeploymentStatus"] == "Running"
        head.jobs[recorded.job_id].become("SUCCEEDED")
        await world.until(
            lambda: status(world, "RayJob", name).get("jobDeploymentStatus") == "Complete", "the job's end"
        )
        assert not [request for request in head.requests if request[0] != "GET"]
        pods = {kind: version for kind, version in before.items() if kind.startswith("Pod/")}
        assert await versions(world.kube, world.namespace, kinds.POD) == pods


@pytest.mark.parametrize("case", ["100-job-default", pytest.param("118-job-failed", marks=pytest.mark.night)])
async def test_a_job_that_has_ended_is_not_touched(kubeconfig: str, tmp_path: Path, case: str) -> None:
    async with adopted(kubeconfig, tmp_path, case, "submitter ended", FakeHead(), ended=True) as (world, _, before):
        assert await versions(world.kube, world.namespace, *KEPT, kinds.RAYJOB) == before
        assert not await warnings(world.kube, world.namespace)


@pytest.mark.night
async def test_the_time_to_live_of_a_job_that_has_ended_goes_on(kubeconfig: str, tmp_path: Path) -> None:
    head = FakeHead()
    async with adopted(kubeconfig, tmp_path, "110-job-shutdown", "job succeeded", head, ended=True) as (
        world,
        _,
        _before,
    ):

        async def gone() -> bool:
            return not await world.kube.list_all(kinds.RAYCLUSTER, world.namespace)

        await found(gone, "the cluster to be deleted")
        await world.calm()
        assert status(world, "RayJob", "tidy")["jobDeploymentStatus"] == "Complete"
        assert not world.made_twice(kinds.JOB, kinds.RAYCLUSTER, kinds.SERVICE)
