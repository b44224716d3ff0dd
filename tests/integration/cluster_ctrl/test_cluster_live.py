"""RayClusters on an API server without nodes, through nats-server, gateway and cluster_ctrl as processes.

Nothing runs the pods: the tests say what becomes of them, as a kubelet would.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from raybus.domain import kinds, labels
from raybus.kube.client import KubeClient
from support import waiting
from support.kube import client_of
from support.operators import Operator, Standing

pytestmark = [pytest.mark.kube, pytest.mark.timeout(180)]

PATIENCE_S = 60.0
QUIET_S = 5.0
READY = [{"type": "Ready", "status": "True"}]


def manifest(replicas: int = 2, **spec: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "ray", "image": "example/ray:2.52.0"}]}}
    group = {"groupName": "w", "replicas": replicas, "minReplicas": 0, "maxReplicas": 50, "template": template}
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": "demo"},
        "spec": {"headGroupSpec": {"template": template}, "workerGroupSpecs": [group]} | spec,
    }


class Scene:
    """One namespace, seen and touched as a user and a kubelet would."""

    def __init__(self, kube: KubeClient, namespace: str, operator: Operator) -> None:
        self.kube, self.namespace, self.operator = kube, namespace, operator

    async def apply(self, body: dict[str, Any]) -> dict[str, Any]:
        metadata = {**body["metadata"], "namespace": self.namespace}
        return await self.kube.create(kinds.RAYCLUSTER, {**body, "metadata": metadata})

    async def cluster(self, name: str = "demo") -> dict[str, Any]:
        return await self.kube.get(kinds.RAYCLUSTER, self.namespace, name)

    async def status(self) -> dict[str, Any]:
        return (await self.cluster()).get("status", {})

    async def pods(self, node_type: str = "") -> list[dict[str, Any]]:
        selector = f"{labels.CLUSTER}=demo" + (f",{labels.NODE_TYPE}={node_type}" if node_type else "")
        return await self.kube.list_all(kinds.POD, self.namespace, label_selector=selector)

    async def events(self) -> list[dict[str, Any]]:
        """Those about RayClusters: Kubernetes' own controllers have others to tell."""
        found = await self.kube.list_all(kinds.EVENT, self.namespace)
        return [event for event in found if event["regarding"].get("kind") == "RayCluster"]

    async def patch_spec(self, spec: dict[str, Any]) -> None:
        cluster = await self.cluster()
        version = cluster["metadata"]["resourceVersion"]
        await self.kube.merge_patch(kinds.RAYCLUSTER, self.namespace, "demo", {"spec": spec}, resource_version=version)

    async def scale(self, replicas: int, to_delete: tuple[str, ...] = ()) -> None:
        group = (await self.cluster())["spec"]["workerGroupSpecs"][0]
        changed = {**group, "replicas": replicas, "scaleStrategy": {"workersToDelete": list(to_delete)}}
        await self.patch_spec({"workerGroupSpecs": [changed]})

    async def run_pods(self, **status: Any) -> None:
        """All pods become running and ready, or what `status` says."""
        for index, pod in enumerate(await self.pods()):
            body = {"phase": "Running", "podIP": f"10.9.0.{index + 1}", "conditions": READY} | status
            await self.set_status(pod, body)

    async def set_status(self, pod: dict[str, Any], status: dict[str, Any]) -> None:
        name = pod["metadata"]["name"]
        await self.kube.merge_patch(kinds.POD, self.namespace, name, {"status": status}, subresource="status")

    async def delete_pod(self, pod: dict[str, Any]) -> None:
        """At once, as where no kubelet has to agree."""
        metadata = pod["metadata"]
        await self.kube.delete(kinds.POD, self.namespace, metadata["name"], uid=metadata["uid"], grace_seconds=0)

    async def until(self, holds: Callable[[], Awaitable[Any]], what: str) -> Any:
        """Wait until the coroutine function's result is true, and return it."""
        return await waiting.found(holds, what, within_s=PATIENCE_S, told=self._told)

    async def _told(self) -> str:
        return f"status {await self.status()}\n{self.operator.log('cluster_ctrl')}"

    async def until_pods(self, count: int, node_type: str = "") -> list[dict[str, Any]]:
        async def there() -> list[dict[str, Any]] | None:
            pods = await self.pods(node_type)
            return pods if len(pods) == count else None

        return list(await self.until(there, f"{count} pods {node_type}"))

    async def until_ready(self) -> None:
        async def ready() -> bool:
            return (await self.status()).get("state") == "ready"

        await self.until(ready, "state ready")

    async def versions(self) -> dict[str, str]:
        """Kind and name -> resourceVersion of everything that we might write."""
        found = {"RayCluster": [await self.cluster()], "Pod": await self.pods(), "Event": await self.events()}
        found["Service"] = await self.kube.list_all(kinds.SERVICE, self.namespace)
        return {
            f"{kind}/{obj['metadata']['name']}": obj["metadata"]["resourceVersion"]
            for kind, objects in found.items()
            for obj in objects
        }


@pytest.fixture
async def scene(kubeconfig: str, standing: Standing) -> AsyncIterator[Scene]:
    async with client_of(kubeconfig) as kube, standing.serving(kube, "cluster_ctrl") as (operator, _, namespace):
        yield Scene(kube, namespace, operator)


async def test_a_cluster_from_birth_through_scaling_to_its_end(scene: Scene) -> None:
    await scene.apply(manifest(replicas=2))
    await scene.until_pods(3)
    await scene.run_pods()
    await scene.until_ready()
    status = await scene.status()
    assert status["desiredWorkerReplicas"] == status["readyWorkerReplicas"] == 2
    assert status["head"]["serviceName"] == "demo-head-svc"
    assert status["head"]["serviceIP"] == status["head"]["podIP"]

    before = {pod["metadata"]["uid"] for pod in await scene.pods("worker")}
    await scene.scale(4)
    grown = await scene.until_pods(4, "worker")
    assert before < {pod["metadata"]["uid"] for pod in grown}

    named = [pod["metadata"]["name"] for pod in grown[:2]]
    await scene.scale(2, tuple(named))
    await scene.until_pods(2, "worker")
    assert not set(named) & {pod["metadata"]["name"] for pod in await scene.pods()}

    await scene.kube.delete(kinds.RAYCLUSTER, scene.namespace, "demo")

    async def all_gone() -> bool:
        services = await scene.kube.list_all(kinds.SERVICE, scene.namespace, label_selector=f"{labels.CLUSTER}=demo")
        return not services and all("deletionTimestamp" in pod["metadata"] for pod in await scene.pods())

    await scene.until(all_gone, "what the cluster owned is collected")


async def test_a_settled_cluster_is_quiet(scene: Scene) -> None:
    await scene.apply(manifest())
    await scene.until_pods(3)
    await scene.run_pods()
    await scene.until_ready()
    await asyncio.sleep(2)
    before = await scene.versions()
    await asyncio.sleep(QUIET_S)
    assert await scene.versions() == before


async def test_metrics_that_dashboards_for_kuberay_read(scene: Scene) -> None:
    meta = (await scene.apply(manifest(replicas=0)))["metadata"]
    identity = f'name="demo",namespace="{scene.namespace}",uid="{meta["uid"]}"'
    await scene.until_pods(1)
    assert f'kuberay_cluster_info{{{identity},owner_kind="None"}} 1.0' in await scene.operator.metrics("cluster_ctrl")
    await scene.run_pods()

    async def shown() -> bool:
        text = await scene.operator.metrics("cluster_ctrl")
        provisioned = f'kuberay_cluster_condition_provisioned{{{identity},condition="true"}} 1.0'
        return provisioned in text and f"kuberay_cluster_provisioned_duration_seconds{{{identity}}}" in text

    await scene.until(shown, "the provisioned cluster in the metrics")
    await scene.kube.delete(kinds.RAYCLUSTER, scene.namespace, "demo")

    async def forgotten() -> bool:
        return identity not in await scene.operator.metrics("cluster_ctrl")

    await scene.until(forgotten, "a deleted cluster in no metric")


async def test_a_lost_head_is_replaced_once(scene: Scene) -> None:
    await scene.apply(manifest(replicas=0))
    (head,) = await scene.until_pods(1)
    await scene.run_pods()
    await scene.until_ready()
    await scene.set_status(head, {"phase": "Failed", "reason": "Evicted", "message": "no memory"})

    async def another() -> bool:
        heads = await scene.pods("head")
        assert len(heads) <= 1
        return bool(heads) and heads[0]["metadata"]["uid"] != head["metadata"]["uid"]

    await scene.until(another, "another head pod")
    notes = [event["note"] for event in await scene.events() if event["reason"] == "DeletedHeadPod"]
    assert any("Evicted" in note for note in notes)


async def test_a_head_under_a_finalizer_is_waited_for(scene: Scene) -> None:
    template = {
        "metadata": {"finalizers": ["example.com/hold"]},
        "spec": {"containers": [{"name": "ray", "image": "example/ray:2.52.0"}]},
    }
    await scene.apply(manifest(replicas=0, headGroupSpec={"template": template}))
    (head,) = await scene.until_pods(1)
    await scene.delete_pod(head)
    await asyncio.sleep(3)
    assert len(await scene.pods("head")) == 1
    name = head["metadata"]["name"]
    await scene.kube.merge_patch(kinds.POD, scene.namespace, name, {"metadata": {"finalizers": None}})

    async def another() -> bool:
        heads = await scene.pods("head")
        return [pod["metadata"]["uid"] for pod in heads] not in ([], [head["metadata"]["uid"]])

    (again,) = await scene.until(another, "another head pod") and await scene.pods("head")
    await scene.kube.merge_patch(
        kinds.POD, scene.namespace, again["metadata"]["name"], {"metadata": {"finalizers": None}}
    )


async def test_what_cannot_work_is_said_once_and_not_touched(scene: Scene) -> None:
    spec = manifest()["spec"]
    await scene.apply(manifest(workerGroupSpecs=spec["workerGroupSpecs"] * 2))

    async def told() -> list[dict[str, Any]]:
        return [event for event in await scene.events() if event["reason"] == "InvalidRayClusterSpec"]

    (event,) = await scene.until(told, "a Warning event")
    assert event["type"] == "Warning"
    assert "'w'" in event["note"]
    assert await scene.pods() == []
    assert "status" not in await scene.cluster()
    await scene.patch_spec({"workerGroupSpecs": spec["workerGroupSpecs"]})
    await scene.until_pods(3)


async def test_a_cluster_that_another_operator_manages_is_not_touched(scene: Scene) -> None:
    await scene.apply(manifest(managedBy="kueue.x-k8s.io/multikueue"))
    await asyncio.sleep(3)
    assert await scene.pods() == []
    assert await scene.events() == []
    assert "status" not in await scene.cluster()


@pytest.mark.parametrize(
    "point",
    [
        "before:CreatePod:2",
        "after:CreatePod:1",
        "after:CreatePod:4",
        "after:CreateService",
        "after:PatchRayClusterStatus",
    ],
)
async def test_kill_9_at_any_step_makes_no_pod_twice(scene: Scene, tmp_path: Any, point: str) -> None:
    once = tmp_path / "killed"
    await scene.operator.restart("cluster_ctrl", {"RAYBUS_FAULTPOINT": point, "RAYBUS_FAULTPOINT_ONCE": str(once)})
    await scene.apply(manifest(replicas=3))
    await scene.operator.died("cluster_ctrl")
    assert once.exists()
    scene.operator.start("cluster_ctrl")
    await scene.until_pods(4)
    await scene.run_pods()
    await scene.until_ready()
    pods = await scene.pods()
    slots = [(pod["metadata"]["labels"][labels.GROUP], pod["metadata"]["annotations"][labels.SLOT]) for pod in pods]
    assert sorted(slots) == [("headgroup", "0"), ("w", "0"), ("w", "1"), ("w", "2")]
    assert all(pod["metadata"].get("deletionTimestamp") is None for pod in pods)
    services = await scene.kube.list_all(kinds.SERVICE, scene.namespace, label_selector=f"{labels.CLUSTER}=demo")
    assert len(services) == 1


async def test_deletions_while_nobody_looks_are_noticed(scene: Scene) -> None:
    await scene.apply(manifest(replicas=2))
    pods = await scene.until_pods(3)
    scene.operator.kill("cluster_ctrl")
    for pod in pods:
        await scene.delete_pod(pod)
    scene.operator.start("cluster_ctrl")
    await scene.until_pods(3)


async def test_an_autoscaling_cluster_with_a_token_has_what_its_head_needs(scene: Scene) -> None:
    await scene.apply(manifest(rayVersion="2.52.0", enableInTreeAutoscaling=True, authOptions={"mode": "token"}))
    await scene.until_pods(3)
    for kind in (kinds.SERVICE_ACCOUNT, kinds.ROLE, kinds.ROLE_BINDING):
        assert (await scene.kube.get(kind, scene.namespace, "demo"))["metadata"]["ownerReferences"][0]["name"] == "demo"
    secret = await scene.kube.get(kinds.SECRET, scene.namespace, "demo")
    token = secret["data"]["auth_token"]
    (head,) = await scene.pods("head")
    await scene.delete_pod(head)

    async def another() -> bool:
        heads = await scene.pods("head")
        return [pod["metadata"]["uid"] for pod in heads] not in ([], [head["metadata"]["uid"]])

    await scene.until(another, "another head pod")
    assert (await scene.kube.get(kinds.SECRET, scene.namespace, "demo"))["data"]["auth_token"] == token
    assert token not in scene.operator.log_file("cluster_ctrl").read_text()
