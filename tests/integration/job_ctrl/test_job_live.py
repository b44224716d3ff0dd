"""RayJobs on an API server without nodes, through nats-server, gateway, cluster_ctrl and job_ctrl as processes.

Nothing runs the pods, and Ray is a fake one behind HTTP_PROXY: the tests say what becomes of both.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from raybus.domain import kinds, labels
from raybus.domain.kinds import Kind
from raybus.kube.client import KubeClient
from raybus.kube.errors import NotFound
from support import waiting
from support.fake_ray import FakeHead, FakeRay
from support.kube import client_of, fresh_namespace, install_crds
from support.operators import Operator, Standing

pytestmark = [pytest.mark.kube, pytest.mark.timeout(180)]

PATIENCE_S = 60.0
QUIET_S = 5.0
READY = [{"type": "Ready", "status": "True"}]
TEMPLATE = {"spec": {"containers": [{"name": "ray", "image": "example/ray:2.52.0"}]}}
SERVICES = ("cluster_ctrl", "job_ctrl")


def manifest(name: str = "train", **spec: Any) -> dict[str, Any]:
    whole = {"entrypoint": "python train.py", "rayClusterSpec": {"headGroupSpec": {"template": TEMPLATE}}, **spec}
    return {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": name}, "spec": whole}


class Scene:
    """One namespace and the Ray behind it, seen and touched as a user, a kubelet and Ray would."""

    def __init__(self, kube: KubeClient, namespace: str, operator: Operator, ray: FakeRay) -> None:
        self.kube, self.namespace, self.operator, self.ray = kube, namespace, operator, ray

    async def apply(self, body: dict[str, Any], kind: Kind = kinds.RAYJOB) -> None:
        await self.kube.create(kind, {**body, "metadata": {**body["metadata"], "namespace": self.namespace}})

    async def job(self) -> dict[str, Any]:
        return await self.kube.get(kinds.RAYJOB, self.namespace, "train")

    async def status(self) -> dict[str, Any]:
        return (await self.job()).get("status") or {}

    async def list(self, kind: Kind, selector: str = "") -> list[dict[str, Any]]:
        return await self.kube.list_all(kind, self.namespace, label_selector=selector)

    async def cluster(self) -> dict[str, Any]:
        (cluster,) = await self.list(kinds.RAYCLUSTER)
        return cluster

    async def events(self) -> dict[str, dict[str, Any]]:
        """Those about RayJobs and their relatives, by reason."""
        found = [
            e for e in await self.list(kinds.EVENT) if e["regarding"]["kind"] in ("RayJob", "RayService", "RayCronJob")
        ]
        return {event["reason"]: event for event in found}

    async def until(self, holds: Callable[[], Awaitable[Any]], what: str) -> Any:
        return await waiting.found(holds, what, within_s=PATIENCE_S, told=self._told)

    async def _told(self) -> str:
        asked = {host: head.requests[-5:] for host, head in self.ray.heads.items()}
        return f"{await self.status()}\n{asked}\n{self.operator.log('job_ctrl')}"

    async def until_status(self, **fields: str) -> dict[str, Any]:
        async def so() -> dict[str, Any] | None:
            status = await self.status()
            return status if all(status.get(field) == value for field, value in fields.items()) else None

        found: dict[str, Any] = await self.until(so, str(fields))
        return found

    async def run_pods(self, selector: str, **status: Any) -> None:
        """These pods become running and ready, or what `status` says."""

        async def there() -> list[dict[str, Any]]:
            return [pod for pod in await self.list(kinds.POD, selector) if "deletionTimestamp" not in pod["metadata"]]

        for index, pod in enumerate(await self.until(there, f"pods {selector}")):
            body = {"phase": "Running", "podIP": f"10.9.0.{index + 1}", "conditions": READY} | status
            name = pod["metadata"]["name"]
            await self.kube.merge_patch(kinds.POD, self.namespace, name, {"status": body}, subresource="status")

    async def until_running(self, **head: Any) -> FakeHead:
        """The cluster's head runs and Ray is up on it; the RayJob goes on to Running."""
        await self.until_status(jobDeploymentStatus="Initializing")
        name = (await self.status())["rayClusterName"]
        behind = FakeHead(**head)
        self.ray.heads[f"{name}-head-svc.{self.namespace}.svc.cluster.local"] = behind
        await self.run_pods(f"{labels.CLUSTER}={name}")
        await self.until_status(jobDeploymentStatus="Running")
        return behind

    async def submitter_submits(self, head: FakeHead) -> None:
        """What the script in the submitter's pod would do."""
        await self.run_pods("job-name=train")
        job_id = (await self.status())["jobId"]
        import aiohttp

        url = f"http://{self.ray.address}/api/jobs/"
        host = next(name for name, one in self.ray.heads.items() if one is head)
        async with aiohttp.ClientSession() as session:
            body = {"entrypoint": "python train.py", "submission_id": job_id}
            async with session.post(url, json=body, headers={"Host": host}) as response:
                assert response.status == 200, await response.text()
        head.jobs[job_id].become("RUNNING", "at work")

    async def versions(self) -> dict[str, str]:
        """Kind and name -> resourceVersion of everything that we might write."""
        watched = (kinds.RAYJOB, kinds.RAYCLUSTER, kinds.JOB, kinds.SERVICE, kinds.POD, kinds.EVENT)
        return {
            f"{kind.kind}/{obj['metadata']['name']}": obj["metadata"]["resourceVersion"]
            for kind in watched
            for obj in await self.list(kind)
        }


@contextlib.asynccontextmanager
async def unserved(kube: KubeClient, kind: Kind) -> AsyncIterator[None]:
    """An API server that does not know the kind, for a while."""
    await kube.delete(kinds.CRD, None, f"{kind.plural}.{kind.group}")
    for _ in range(100):
        try:
            await kube.request("GET", kind.path(), query={"limit": 1})
        except NotFound:
            break
        await asyncio.sleep(0.1)
    else:
        raise AssertionError(f"{kind.plural} are still served 10 s after their definition was deleted")
    try:
        yield
    finally:
        await install_crds(kube)


@pytest.fixture
async def scene(kubeconfig: str, standing: Standing) -> AsyncIterator[Scene]:
    async with client_of(kubeconfig) as kube, standing.serving(kube, *SERVICES) as (operator, ray, namespace):
        yield Scene(kube, namespace, operator, ray)


async def test_a_job_from_birth_to_the_end_of_its_cluster(scene: Scene) -> None:
    await scene.apply(manifest(shutdownAfterJobFinishes=True, ttlSecondsAfterFinished=3))
    head = await scene.until_running()
    status = await scene.status()
    assert "jobStatus" not in status
    assert status["dashboardURL"] == f"{status['rayClusterName']}-head-svc.{scene.namespace}.svc.cluster.local:8265"

    await scene.submitter_submits(head)
    status = await scene.until_status(jobStatus="RUNNING", message="at work")
    assert (await scene.job())["metadata"]["annotations"]["raybus.io/head-session"] == head.session

    head.jobs[status["jobId"]].become("SUCCEEDED", "done")
    await scene.until_status(jobStatus="SUCCEEDED", jobDeploymentStatus="Running")
    await scene.run_pods("job-name=train", phase="Succeeded", conditions=[])
    status = await scene.until_status(jobDeploymentStatus="Complete", jobStatus="SUCCEEDED")
    assert (status["succeeded"], status["failed"], status["message"]) == (1, 0, "done")

    async def cluster_gone() -> bool:
        return not await scene.list(kinds.RAYCLUSTER)

    # Nothing runs the head pod, so nothing but this ends it once its deletion is asked for.
    async def head_goes() -> bool:
        going = [pod for pod in await scene.list(kinds.POD, labels.NODE_TYPE) if "deletionTimestamp" in pod["metadata"]]
        for pod in going:
            with contextlib.suppress(NotFound):
                await scene.kube.delete(kinds.POD, scene.namespace, pod["metadata"]["name"], grace_seconds=0)
        return await cluster_gone()

    await scene.until(head_goes, "the cluster is gone")
    assert {job["metadata"]["name"] for job in await scene.list(kinds.JOB)} == {"train"}
    told = await scene.events()
    assert {"CreatedRayCluster", "CreatedRayJobSubmitter", "CreatedService", "DeletedRayCluster"} == set(told)
    assert all(event["type"] == "Normal" for event in told.values())
    assert told["CreatedRayCluster"]["reportingController"] == "rayjob-controller"

    await asyncio.sleep(1.5)
    before = await scene.versions()
    await asyncio.sleep(QUIET_S)
    assert await scene.versions() == before, "steady state is zero writes"


async def test_by_http_the_job_is_sent_once_and_stopped_when_the_rayjob_is_deleted(scene: Scene) -> None:
    await scene.apply(manifest(submissionMode="HTTPMode", entrypoint="echo a && echo $b"))
    head = await scene.until_running(on_submit="RUNNING")
    status = await scene.until_status(jobStatus="RUNNING")
    posts = [body for method, path, body in head.requests if (method, path) == ("POST", "/api/jobs/")]
    assert posts == [{"entrypoint": "echo a && echo $b", "submission_id": status["jobId"]}]
    assert not await scene.list(kinds.JOB)

    await scene.kube.delete(kinds.RAYJOB, scene.namespace, "train")

    async def gone() -> bool:
        with contextlib.suppress(NotFound):
            await scene.job()
            return False
        return True

    await scene.until(gone, "the RayJob is gone")
    assert head.jobs[status["jobId"]].status == "STOPPED"


async def test_a_dead_dashboard_does_not_keep_a_rayjob_from_being_deleted(scene: Scene) -> None:
    await scene.apply(manifest(submissionMode="HTTPMode"))
    head = await scene.until_running(on_submit="RUNNING")
    await scene.until_status(jobStatus="RUNNING")
    head.hang = True
    (pod,) = await scene.list(kinds.POD, f"{labels.NODE_TYPE}=head")
    await scene.kube.merge_patch(
        kinds.POD, scene.namespace, pod["metadata"]["name"], {"status": {"phase": "Failed"}}, subresource="status"
    )
    await scene.kube.delete(kinds.RAYJOB, scene.namespace, "train")

    async def gone() -> bool:
        with contextlib.suppress(NotFound):
            return "finalizers" not in (await scene.job())["metadata"]
        return True

    await scene.until(gone, "the RayJob is let go")


async def test_a_lost_head_fails_the_job_and_the_submitter_does_not_start_it_again(scene: Scene) -> None:
    await scene.apply(manifest())
    head = await scene.until_running()
    await scene.submitter_submits(head)
    await scene.until_status(jobStatus="RUNNING")
    (pod,) = await scene.list(kinds.POD, f"{labels.NODE_TYPE}=head")
    head.restart()
    head.up = False
    await scene.kube.delete(kinds.POD, scene.namespace, pod["metadata"]["name"], grace_seconds=0)
    status = await scene.until_status(jobDeploymentStatus="Failed")
    assert (status["reason"], status["jobStatus"], status["failed"]) == ("AppFailed", "FAILED", 1)
    assert "head lost" in status["message"]

    async def held() -> bool:
        (job,) = await scene.list(kinds.JOB)
        return bool(job["spec"].get("suspend"))

    await scene.until(held, "the submitter is suspended")


async def test_a_dead_submitter_does_not_end_a_live_job(scene: Scene) -> None:
    await scene.apply(manifest(submitterConfig={"backoffLimit": 0}))
    head = await scene.until_running()
    await scene.submitter_submits(head)
    status = await scene.until_status(jobStatus="RUNNING")
    await scene.run_pods("job-name=train", phase="Failed", conditions=[])

    async def failed() -> bool:
        (job,) = await scene.list(kinds.JOB)
        conditions = (job.get("status") or {}).get("conditions") or []
        return any(condition["type"] == "Failed" for condition in conditions)

    await scene.until(failed, "the Job has failed")
    await asyncio.sleep(3)
    assert (await scene.status())["jobDeploymentStatus"] == "Running"
    head.jobs[status["jobId"]].become("SUCCEEDED")
    await scene.until_status(jobDeploymentStatus="Complete", jobStatus="SUCCEEDED")


async def test_a_refused_job_is_told_once_and_begins_when_it_is_mended(scene: Scene) -> None:
    await scene.apply(manifest(entrypoint=""))
    status = await scene.until_status(jobDeploymentStatus="ValidationFailed", reason="ValidationFailed")
    assert "spec.entrypoint" in status["message"]

    async def told() -> dict[str, Any] | None:
        return (await scene.events()).get("InvalidRayJobSpec")

    event = await scene.until(told, "the event")
    assert event["type"] == "Warning"
    assert "spec.entrypoint" in event["note"]
    assert not await scene.list(kinds.RAYCLUSTER)
    await scene.kube.merge_patch(kinds.RAYJOB, scene.namespace, "train", {"spec": {"entrypoint": "python x.py"}})
    await scene.until_status(jobDeploymentStatus="Initializing")


async def test_what_is_not_supported_yet_is_named_and_left_alone(scene: Scene) -> None:
    await scene.apply(manifest(backoffLimit=2))

    async def told() -> dict[str, Any] | None:
        return (await scene.events()).get("NotSupported")

    event = await scene.until(told, "the event")
    assert "spec.backoffLimit" in event["note"]
    assert "finalizers" not in (await scene.job())["metadata"]
    assert await scene.status() == {}


@pytest.mark.parametrize("kind", [kinds.RAYSERVICE, kinds.RAYCRONJOB])
async def test_kinds_that_are_not_supported_yet_are_named_too(scene: Scene, kind: Kind) -> None:
    cluster = {"headGroupSpec": {"template": TEMPLATE}}
    job = {"entrypoint": "x", "rayClusterSpec": cluster}
    spec = {"rayClusterConfig": cluster} if kind is kinds.RAYSERVICE else {"schedule": "* * * * *", "jobTemplate": job}
    await scene.apply({"apiVersion": "ray.io/v1", "kind": kind.kind, "metadata": {"name": "other"}, "spec": spec}, kind)

    async def told() -> bool:
        return "NotSupported" in await scene.events()

    await scene.until(told, "the event")
    assert not await scene.list(kinds.RAYCLUSTER)


async def test_a_kind_that_is_not_installed_holds_up_no_rayjob(
    kubeconfig: str, standing: Standing, tmp_path: Path
) -> None:
    """Older sets of KubeRay's definitions have no RayCronJob."""
    standing.stop()
    async with (
        client_of(kubeconfig) as kube,
        unserved(kube, kinds.RAYCRONJOB),
        FakeRay().serving() as ray,
        Operator(tmp_path, kubeconfig, *SERVICES, proxy=f"http://{ray.address}") as operator,
        fresh_namespace(kube) as namespace,
    ):
        scene = Scene(kube, namespace, operator, ray)
        await scene.apply(manifest())
        await scene.until_status(jobDeploymentStatus="Initializing")
        await scene.until(lambda: scene.list(kinds.RAYCLUSTER), "the cluster")


KILLS = [
    "before:CreateRayCluster",
    "after:CreateRayCluster",
    "after:PatchRayJobStatus:1",
    "before:SubmitRayJob",
    "after:SubmitRayJob",
]


@pytest.mark.parametrize("point", KILLS)
async def test_killed_between_intent_and_effect_there_is_one_of_everything(
    scene: Scene, tmp_path: Path, point: str
) -> None:
    once = tmp_path / "killed"
    await scene.operator.restart("job_ctrl", {"RAYBUS_FAULTPOINT": point, "RAYBUS_FAULTPOINT_ONCE": str(once)})

    async def restarts() -> None:
        await scene.operator.died("job_ctrl", PATIENCE_S)
        scene.operator.start("job_ctrl")

    restarting = asyncio.create_task(restarts())
    await scene.apply(manifest(submissionMode="HTTPMode"))
    head = await scene.until_running(on_submit="RUNNING")
    status = await scene.until_status(jobStatus="RUNNING")
    await restarting
    assert once.exists()
    head.jobs[status["jobId"]].become("SUCCEEDED")
    await scene.until_status(jobDeploymentStatus="Complete", jobStatus="SUCCEEDED")
    assert len(head.jobs) == 1
    assert len(await scene.list(kinds.RAYCLUSTER)) == 1
    taken = [path for method, path, _ in head.requests if (method, path) == ("POST", "/api/jobs/")]
    assert 1 <= len(taken) <= 2, "a second one meets the first"
