"""Scenes that together need every right that the services have: played for the comparison of used with granted rights.

Nothing runs the pods; `Scenes` says what becomes of them, as a kubelet would. What each scene is for stands beside it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

from raybus.domain import kinds, labels
from raybus.domain.kinds import Kind
from raybus.kube.client import KubeClient
from raybus.kube.errors import Conflict, NotFound
from support import waiting
from support.fake_ray import FakeHead, FakeJob, FakeRay

PATIENCE_S = 60.0
READY = [{"type": "Ready", "status": "True"}]
LARGE = {"example.com/note": "x" * 70_000}  # more than a message of the tests' NATS may have
TEMPLATE = {"spec": {"containers": [{"name": "ray", "image": "example/ray:2.52.0"}]}}
LARGE_TEMPLATE = {**TEMPLATE, "metadata": {"annotations": LARGE}}


def cluster(workers: int = 0, head: dict[str, Any] = TEMPLATE, **more: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {"rayVersion": "2.52.0", "headGroupSpec": {"template": head, **more.pop("head_group", {})}}
    if workers:
        group = {"groupName": "w", "replicas": workers, "minReplicas": 0, "maxReplicas": 9, "template": TEMPLATE}
        spec["workerGroupSpecs"] = [group]
    return spec | more


def job(**more: Any) -> dict[str, Any]:
    return {"entrypoint": "python x.py", "rayClusterSpec": cluster(), **more}


class Scenes:
    def __init__(self, kube: KubeClient, namespace: str, ray: FakeRay) -> None:
        self.kube, self.namespace, self.ray = kube, namespace, ray

    async def play_all(self) -> None:
        kubelet = asyncio.create_task(self._kubelet())
        try:
            async with asyncio.TaskGroup() as group:
                for scene in (
                    self._autoscaled, self._scaled_down, self._name_taken, self._large_cluster, self._job_by_submitter,
                    self._job_by_http, self._job_whose_address_is_taken, self._large_job, self._large_others,
                ):  # fmt: skip
                    group.create_task(scene())
        finally:
            kubelet.cancel()
            await asyncio.gather(kubelet, return_exceptions=True)

    async def play_with_other_settings(self) -> None:
        """job_ctrl takes RayJobs away itself, and reaches Ray through the API server, where no endpoint answers here."""
        spec = {"spec": {"ttlSecondsAfterFinished": 0}}
        await self.kube.merge_patch(kinds.RAYJOB, self.namespace, "kept", spec)
        await self._gone(kinds.RAYJOB, "kept")
        await self.apply(kinds.RAYJOB, "proxied", job(submissionMode="HTTPMode"))
        kubelet = asyncio.create_task(self._kubelet())
        try:
            await self._until_status(kinds.RAYJOB, "proxied", jobDeploymentStatus="Running")
            await self.kube.delete(kinds.RAYJOB, self.namespace, "proxied")
            await asyncio.sleep(4)  # Ray is asked about the job and asked to stop it, in vain
        finally:
            kubelet.cancel()
            await asyncio.gather(kubelet, return_exceptions=True)

    # Clusters

    async def _autoscaled(self) -> None:
        """Account, Role, binding, token and Ingress; and once more, with a new head, where all of that is there already."""
        spec = cluster(
            2,
            enableInTreeAutoscaling=True,
            authOptions={"mode": "token"},
            head_group={"enableIngress": True},
        )
        await self.apply(kinds.RAYCLUSTER, "scaling", spec)
        await self._until_status(kinds.RAYCLUSTER, "scaling", state="ready")
        (head,) = await self._pods("scaling", "head")
        await self.kube.delete(kinds.POD, self.namespace, head["metadata"]["name"], grace_seconds=0)

        async def another() -> bool:
            uids = {pod["metadata"]["uid"] for pod in await self._pods("scaling", "head")}
            return bool(uids) and head["metadata"]["uid"] not in uids

        await self.until(another, "another head")

    async def _scaled_down(self) -> None:
        """Pods are deleted, after a fresh look."""
        await self.apply(kinds.RAYCLUSTER, "shrinking", cluster(2))
        await self._until_status(kinds.RAYCLUSTER, "shrinking", state="ready")
        found = await self.kube.get(kinds.RAYCLUSTER, self.namespace, "shrinking")
        group = {**found["spec"]["workerGroupSpecs"][0], "replicas": 1}
        patch = {"spec": {"workerGroupSpecs": [group]}}
        await self.kube.merge_patch(kinds.RAYCLUSTER, self.namespace, "shrinking", patch)

        async def one_less() -> bool:
            pods = await self._pods("shrinking", "worker")
            return len([pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]) == 1

        await self.until(one_less, "a worker less")

    async def _name_taken(self) -> None:
        """What stands under the name of a Service that cannot be created?"""
        await self._foreign_service("taken-head-svc")
        await self.apply(kinds.RAYCLUSTER, "taken", cluster())

        async def told() -> bool:
            return await self._event("taken", "FailedToCreateService")

        await self.until(told, "the event about the Service")

    async def _large_cluster(self) -> None:
        """RayCluster and pod do not fit into a message."""
        await self.apply(kinds.RAYCLUSTER, "large", cluster(head=LARGE_TEMPLATE))
        await self._until_status(kinds.RAYCLUSTER, "large", state="ready")

    # Jobs

    async def _job_by_submitter(self) -> None:
        """The head is lost while a submitter is at work: it is suspended. The cluster asks for a token."""
        spec = job(rayClusterSpec=cluster(authOptions={"mode": "token"}))
        await self.apply(kinds.RAYJOB, "submitted", spec)
        await self._until_status(kinds.RAYJOB, "submitted", jobDeploymentStatus="Initializing")
        status = await self._status(kinds.RAYJOB, "submitted")
        name = status["rayClusterName"]
        head = FakeHead()
        self.ray.heads[f"{name}-head-svc.{self.namespace}.svc.cluster.local"] = head
        await self._until_status(kinds.RAYJOB, "submitted", jobDeploymentStatus="Running")
        await self.until(lambda: self._exists(kinds.JOB, "submitted"), "the submitter")
        head.jobs[status["jobId"]] = FakeJob(request={"entrypoint": "python x.py"})
        head.jobs[status["jobId"]].become("RUNNING")
        await self._until_status(kinds.RAYJOB, "submitted", jobStatus="RUNNING")

        async def remembered() -> bool:
            found = await self.kube.get(kinds.RAYJOB, self.namespace, "submitted")
            return "raybus.io/head-session" in (found["metadata"].get("annotations") or {})

        await self.until(remembered, "the head is remembered")
        (pod,) = await self._pods(name, "head")
        head.restart()
        head.up = False
        await self.kube.delete(kinds.POD, self.namespace, pod["metadata"]["name"], grace_seconds=0)
        await self._until_status(kinds.RAYJOB, "submitted", jobDeploymentStatus="Failed")

        async def suspended() -> bool:
            found = await self.kube.get(kinds.JOB, self.namespace, "submitted")
            return bool(found["spec"].get("suspend"))

        await self.until(suspended, "the submitter is suspended")

    async def _job_by_http(self) -> None:
        """Its own Service led elsewhere; its cluster goes at the end. The other one waits for its end."""
        ends = {"submissionMode": "HTTPMode", "shutdownAfterJobFinishes": True}
        await self.apply(kinds.RAYJOB, "sent", job(**ends))
        await self.apply(kinds.RAYJOB, "kept", job(**ends, ttlSecondsAfterFinished=3600))
        for name in ("sent", "kept"):
            await self._until_status(kinds.RAYJOB, name, jobStatus="RUNNING")
        service = "sent-head-svc"
        await self.until(lambda: self._exists(kinds.SERVICE, service), "the job's Service")
        elsewhere = {"spec": {"selector": {labels.CLUSTER: "elsewhere"}}}
        await self.kube.merge_patch(kinds.SERVICE, self.namespace, service, elsewhere)

        async def led_back() -> bool:
            found = await self.kube.get(kinds.SERVICE, self.namespace, service)
            return bool(found["spec"]["selector"][labels.CLUSTER] != "elsewhere")

        await self.until(led_back, "the Service leads back")
        for name in ("sent", "kept"):
            assert self.ray.default is not None
            self.ray.default.jobs[(await self._status(kinds.RAYJOB, name))["jobId"]].become("SUCCEEDED")
            await self._until_status(kinds.RAYJOB, name, jobDeploymentStatus="Complete")
        await self._gone(kinds.RAYCLUSTER, (await self._status(kinds.RAYJOB, "sent"))["rayClusterName"])

    async def _job_whose_address_is_taken(self) -> None:
        await self._foreign_service("unlucky-head-svc")
        await self.apply(kinds.RAYJOB, "unlucky", job(submissionMode="HTTPMode"))

        async def told() -> bool:
            return await self._event("unlucky", "FailedToCreateService")

        await self.until(told, "the event about the Service")

    async def _large_job(self) -> None:
        """RayJob, RayCluster and pod do not fit into a message. Then it is deleted while it runs."""
        spec = job(submissionMode="HTTPMode", rayClusterSpec=cluster(head=LARGE_TEMPLATE))
        await self.apply(kinds.RAYJOB, "large", spec, LARGE)
        await self._until_status(kinds.RAYJOB, "large", jobStatus="RUNNING")
        await self.kube.delete(kinds.RAYJOB, self.namespace, "large")
        await self._gone(kinds.RAYJOB, "large")

    async def _large_others(self) -> None:
        """Kinds of which only is said that they are not supported yet."""
        for kind, spec in (
            (kinds.RAYSERVICE, {"rayClusterConfig": cluster()}),
            (kinds.RAYCRONJOB, {"schedule": "* * * * *", "jobTemplate": job()}),
        ):
            name = f"large-{kind.kind.lower()}"
            await self.apply(kind, name, spec, LARGE)
            await self.until(lambda name=name: self._event(name, "NotSupported"), f"the event about {name}")

    # What scenes are made of

    async def apply(
        self, kind: Kind, name: str, spec: dict[str, Any], annotations: dict[str, str] | None = None
    ) -> None:
        metadata = {"name": name, "namespace": self.namespace, "annotations": annotations or {}}
        body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}
        await self.kube.create(kind, body)

    async def until(self, holds: Callable[[], Awaitable[Any]], what: str) -> None:
        await waiting.found(holds, what, within_s=PATIENCE_S)

    async def _status(self, kind: Kind, name: str) -> dict[str, Any]:
        return (await self.kube.get(kind, self.namespace, name)).get("status") or {}

    async def _until_status(self, kind: Kind, name: str, **fields: str) -> None:
        seen: dict[str, Any] = {}

        async def so() -> bool:
            nonlocal seen
            seen = await self._status(kind, name)
            return all(seen.get(field) == value for field, value in fields.items())

        async def told() -> str:
            return f"{kind.kind} {name} is {seen}"

        await waiting.found(so, f"{kind.kind} {name}: {fields}", within_s=PATIENCE_S, told=told)

    async def _exists(self, kind: Kind, name: str) -> bool:
        with contextlib.suppress(NotFound):
            await self.kube.get(kind, self.namespace, name)
            return True
        return False

    async def _gone(self, kind: Kind, name: str) -> None:
        async def gone() -> bool:
            return not await self._exists(kind, name)

        await self.until(gone, f"{kind.kind} {name} is gone")

    async def _pods(self, name: str, node_type: str) -> list[dict[str, Any]]:
        selector = f"{labels.CLUSTER}={name},{labels.NODE_TYPE}={node_type}"
        return await self.kube.list_all(kinds.POD, self.namespace, label_selector=selector)

    async def _event(self, name: str, reason: str) -> bool:
        found = await self.kube.list_all(kinds.EVENT, self.namespace)
        return any(event["regarding"]["name"] == name and event["reason"] == reason for event in found)

    async def _foreign_service(self, name: str) -> None:
        """Somebody else's, under a name that Raybus will want."""
        spec = {"selector": {"app": "other"}, "ports": [{"port": 80}]}
        await self.kube.create(kinds.SERVICE, {"metadata": {"name": name, "namespace": self.namespace}, "spec": spec})

    async def _kubelet(self) -> None:
        """Pods run and are ready as soon as they are there, and are gone as soon as they are deleted."""
        while True:
            for index, pod in enumerate(await self.kube.list_all(kinds.POD, self.namespace)):
                with contextlib.suppress(NotFound, Conflict):
                    await self._kept(pod, index)
            await asyncio.sleep(0.2)

    async def _kept(self, pod: dict[str, Any], index: int) -> None:
        name = pod["metadata"]["name"]
        if "deletionTimestamp" in pod["metadata"]:
            await self.kube.delete(kinds.POD, self.namespace, name, grace_seconds=0)
        elif not (pod.get("status") or {}).get("podIP"):
            status = {"phase": "Running", "podIP": f"10.9.0.{index + 1}", "conditions": READY}
            await self.kube.merge_patch(kinds.POD, self.namespace, name, {"status": status}, subresource="status")
