"""A namespace in which tests let things go wrong: what a kubelet and Ray would do there is played, and every change is noted.

`World.watching` is the witness: it sees each object version, so it can say afterwards what was created, written and when.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from raybus.domain import kinds, labels
from raybus.domain.kinds import Kind
from raybus.kube import errors
from raybus.kube.client import KubeClient
from raybus.kube.listwatch import Changed, Listed, ListWatch
from support.fake_ray import FakeHead, FakeJob, FakeRay
from support.kube import client_of, fresh_namespace
from support.operators import Operator, Standing

OURS = (kinds.RAYCLUSTER, kinds.RAYJOB, kinds.POD, kinds.SERVICE, kinds.JOB, kinds.EVENT)
WISH_S = 30.0  # how long an older wish may still be acted on
READY = [{"type": "Ready", "status": "True"}]
TEMPLATE = {"spec": {"containers": [{"name": "ray", "image": "example/ray:2.52.0"}]}}


def group(name: str = "w", replicas: int = 2, **more: Any) -> dict[str, Any]:
    return {"groupName": name, "replicas": replicas, "minReplicas": 0, "maxReplicas": 9, "template": TEMPLATE} | more


def cluster(name: str, *groups: dict[str, Any], **spec: Any) -> dict[str, Any]:
    body = {"headGroupSpec": {"template": TEMPLATE}, "workerGroupSpecs": list(groups)} | spec
    return {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": name}, "spec": body}


def job(name: str, **spec: Any) -> dict[str, Any]:
    body = {"entrypoint": "python train.py", "rayClusterSpec": cluster(name, group(replicas=1))["spec"]} | spec
    return {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": name}, "spec": body}


@dataclass(slots=True)
class World:
    """One namespace, seen and touched from outside. `uids` has, by kind and name, each uid that was ever seen under it."""

    kube: KubeClient
    namespace: str
    ray: FakeRay
    objects: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    uids: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    wrongs: list[str] = field(default_factory=list)
    last_change: float = 0.0
    changes: list[str] = field(default_factory=list)
    wishes: dict[str, list[tuple[float, int]]] = field(default_factory=dict)
    kubelet: bool = True

    # What tests do

    async def create(self, kind: Kind, body: dict[str, Any]) -> None:
        await self.kube.create(kind, {**body, "metadata": {**body["metadata"], "namespace": self.namespace}})

    async def patch(self, kind: Kind, name: str, patch: dict[str, Any]) -> None:
        await self.kube.merge_patch(kind, self.namespace, name, patch)

    async def delete(self, kind: Kind, name: str) -> None:
        await self.kube.delete(kind, self.namespace, name)

    def wish(self, cluster_name: str, workers: int) -> None:
        """From now on the cluster should have so many workers: never more than the largest wish of the last time."""
        self.wishes.setdefault(cluster_name, []).append((asyncio.get_running_loop().time(), workers))

    def of(self, kind: Kind) -> list[dict[str, Any]]:
        return [obj for (found, _), obj in sorted(self.objects.items()) if found == kind.kind]

    def pods(self, cluster_name: str) -> list[dict[str, Any]]:
        return [
            pod
            for pod in self.of(kinds.POD)
            if (pod["metadata"].get("labels") or {}).get(labels.CLUSTER) == cluster_name
        ]

    async def until(self, holds: Callable[[], Any], what: str, within_s: float = 60.0) -> Any:
        """Wait until it holds of what has been seen."""
        ends = asyncio.get_running_loop().time() + within_s
        while not (found := holds()):
            assert asyncio.get_running_loop().time() < ends, f"not within {within_s:g} s: {what}\n{self.told()}"
            await asyncio.sleep(0.1)
        return found

    async def until_async(self, holds: Callable[[], Awaitable[Any]], what: str, within_s: float = 60.0) -> Any:
        ends = asyncio.get_running_loop().time() + within_s
        while not (found := await holds()):
            assert asyncio.get_running_loop().time() < ends, f"not within {within_s:g} s: {what}\n{self.told()}"
            await asyncio.sleep(0.2)
        return found

    async def calm(self, within_s: float = 60.0, for_s: float = 3.0) -> None:
        """Wait until nothing has been written for a while."""
        clock = asyncio.get_running_loop().time
        await self.until(lambda: clock() - self.last_change > for_s, f"{for_s:g} s without a change", within_s)

    async def quiet_for(self, seconds: float) -> None:
        """Nothing is written for this long, by anybody."""
        before, seen = self.last_change, len(self.changes)
        await asyncio.sleep(seconds)
        assert self.last_change == before, f"written in a quiet world: {self.changes[seen:][:20]}"

    def told(self) -> str:
        lines = [
            f"{kind}/{name}: {_short(obj)}" for (kind, name), obj in sorted(self.objects.items()) if kind != "Event"
        ]
        return "\n".join([*lines, *(f"WRONG {wrong}" for wrong in self.wrongs)])

    # What the world does by itself

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncIterator[World]:
        tasks = [asyncio.create_task(self._follow(kind), name=f"follow {kind.kind}") for kind in OURS]
        try:
            yield self
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self, kind: Kind) -> None:
        async for each in ListWatch(self.kube, kind, namespace=self.namespace):
            if isinstance(each, Listed):
                for obj in each.items:
                    await self._seen(kind, "LISTED", obj)
            elif isinstance(each, Changed):
                await self._seen(kind, each.type, each.obj)

    async def _seen(self, kind: Kind, how: str, obj: dict[str, Any]) -> None:
        meta = obj["metadata"]
        key = (kind.kind, meta["name"])
        known = self.objects.get(key)
        if known and known["metadata"]["resourceVersion"] == meta["resourceVersion"] and how != "DELETED":
            return
        self.last_change = asyncio.get_running_loop().time()
        self.changes.append(f"{how} {kind.kind}/{meta['name']} {_short(obj)}")
        self.uids.setdefault(key, set()).add(meta["uid"])
        if how == "DELETED":
            self.objects.pop(key, None)
        else:
            self.objects[key] = obj
        if kind is kinds.POD:
            self._check_numbers((meta.get("labels") or {}).get(labels.CLUSTER) or "")
        if self.kubelet and how != "DELETED" and "deletionTimestamp" not in meta:
            with contextlib.suppress(errors.NotFound, errors.Conflict, errors.NoAnswer):
                await self._live(kind, obj)

    def _check_numbers(self, name: str) -> None:
        """Of one cluster uid there is never a second head, and never a worker more than was wished for."""
        live = Counter(
            (owner["uid"], pod["metadata"]["labels"].get(labels.NODE_TYPE))
            for pod in self.pods(name)
            for owner in pod["metadata"].get("ownerReferences") or ()
            if "deletionTimestamp" not in pod["metadata"]
        )
        since = asyncio.get_running_loop().time() - WISH_S
        wishes = self.wishes.get(name, [])
        recent = [count for at, count in wishes if at > since] + [count for _, count in wishes[-1:]]
        for (uid, node_type), count in live.items():
            if node_type == "head" and count > 1:
                self.wrongs.append(f"{count} heads of {name} ({uid})")
            if node_type == "worker" and recent and count > max(recent):
                self.wrongs.append(f"{count} workers of {name} ({uid}), wished for were {recent}")

    async def _live(self, kind: Kind, obj: dict[str, Any]) -> None:
        """Pods run at once; a head brings its Ray; a submitter's pod submits."""
        if kind is not kinds.POD or (obj.get("status") or {}).get("phase", "Pending") != "Pending":
            return
        name, marks = obj["metadata"]["name"], obj["metadata"].get("labels") or {}
        if marks.get(labels.NODE_TYPE) == "head":
            host = f"{marks[labels.CLUSTER]}-head-svc.{self.namespace}.svc.cluster.local"
            self.ray.heads[host] = FakeHead(on_submit="RUNNING")
        status = {"phase": "Running", "conditions": READY}
        await self.kube.merge_patch(kinds.POD, self.namespace, name, {"status": status}, subresource="status")
        if submitter := marks.get("job-name"):
            self._submit(submitter)

    def _submit(self, rayjob: str) -> None:
        status = self.objects["RayJob", rayjob]["status"]
        head = self.ray.heads[f"{status['rayClusterName']}-head-svc.{self.namespace}.svc.cluster.local"]
        given = FakeJob({"entrypoint": "python train.py", "submission_id": status["jobId"]})
        head.jobs.setdefault(status["jobId"], given).become("RUNNING")

    async def finish(self, name: str) -> bool:
        """The job's own end, and its submitter's, if it runs already."""
        status = self.objects["RayJob", name].get("status") or {}
        head = self.ray.heads.get(f"{status.get('rayClusterName')}-head-svc.{self.namespace}.svc.cluster.local")
        found = head.jobs.get(status.get("jobId", "")) if head else None
        if found is None:
            return False
        found.become("SUCCEEDED")
        for pod in self.of(kinds.POD):
            if (pod["metadata"].get("labels") or {}).get("job-name") == name:
                body = {"status": {"phase": "Succeeded"}}
                await self.kube.merge_patch(
                    kinds.POD, self.namespace, pod["metadata"]["name"], body, subresource="status"
                )
        return True

    def made_twice(self, *kind: Kind) -> list[str]:
        """Names under which more than one object was seen. A pod that was deleted may come again under its old name."""
        among = {each.kind for each in kind}
        return [f"{kind}/{name}" for (kind, name), uids in sorted(self.uids.items()) if len(uids) > 1 and kind in among]


class Fire:
    """Kills, freezes, ends and starts services of an operator at random until told to stop; then all run again."""

    def __init__(self, operator: Operator, names: tuple[str, ...], chance: random.Random, *, freeze_s: float) -> None:
        self._operator, self._names, self._chance, self._freeze_s = operator, names, chance, freeze_s
        self.done: Counter[str] = Counter()

    @contextlib.asynccontextmanager
    async def burning(self, every_s: float) -> AsyncIterator[None]:
        task = asyncio.create_task(self._burn(every_s), name="fire")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        for name in self._names:
            await self._operator.ready(name)

    async def _burn(self, every_s: float) -> None:
        while True:
            await asyncio.sleep(self._chance.uniform(0.3, 1.7) * every_s)
            name, how = self._chance.choice(self._names), self._chance.choice(("kill", "freeze", "end"))
            self.done[f"{how} {name}"] += 1
            await asyncio.shield(asyncio.create_task(self._worst(name, how)))

    async def _worst(self, name: str, how: str) -> None:
        if how == "freeze":
            self._operator.signal(name, signal.SIGSTOP)
            await asyncio.sleep(self._freeze_s)
            self._operator.signal(name, signal.SIGCONT)
            return
        if how == "end":
            self._operator.signal(name, signal.SIGTERM)
            await self._operator.died(name)
        else:
            self._operator.kill(name)
        self._operator.start(name)


def _short(obj: dict[str, Any]) -> str:
    status = obj.get("status") or {}
    if obj.get("kind") == "Event" or "reportingController" in obj:
        return f"{obj.get('reason')} {obj.get('note')}"
    shown = {
        field: status[field]
        for field in ("state", "reason", "phase", "jobDeploymentStatus", "jobStatus")
        if field in status
    }
    gone = " (terminating)" if "deletionTimestamp" in obj["metadata"] else ""
    return f"rv {obj['metadata']['resourceVersion']} {shown}{gone}"


@contextlib.asynccontextmanager
async def playing(
    kubeconfig: str, folder: Path, *services: str, max_payload: int = 8 << 20, lease_ttl_s: int = 3
) -> AsyncIterator[tuple[World, Operator]]:
    """Services, a Ray and a namespace to play in, all of one test."""
    async with (
        client_of(kubeconfig, "chaos") as kube,
        FakeRay().serving() as ray,
        Operator(
            folder,
            kubeconfig,
            *services,
            lease_ttl_s=lease_ttl_s,
            max_payload=max_payload,
            proxy=f"http://{ray.address}",
        ) as operator,
        fresh_namespace(kube) as namespace,
        World(kube, namespace, ray).watching() as world,
    ):
        yield world, operator


@contextlib.asynccontextmanager
async def playing_on(standing: Standing, kubeconfig: str, *services: str) -> AsyncIterator[tuple[World, Operator]]:
    """A Ray and a namespace to play in, beside services that other tests had before."""
    async with (
        client_of(kubeconfig, "chaos") as kube,
        standing.serving(kube, *services) as (operator, ray, namespace),
        World(kube, namespace, ray).watching() as world,
    ):
        yield world, operator
