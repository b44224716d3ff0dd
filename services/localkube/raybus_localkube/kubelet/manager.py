"""The kubelet as a whole: watches Pods, gives each of its own a worker, binds those that wait for a node, follows the node process."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from raybus.domain import kinds, times
from raybus.kube import errors
from raybus.kube.listwatch import Changed, ListBegun, ListComplete, Listed, ListWatch
from raybus.observe.logging import get_logger
from raybus_localkube.kubelet import adoption, podspec, registration, scheduling
from raybus_localkube.kubelet.context import Context, retry_delay_s
from raybus_localkube.kubelet.podspec import Pod
from raybus_localkube.kubelet.podworker import PodWorker
from raybus_localkube.node.protocol import ContainerRecord, NodeError

_log = get_logger(component="kubelet")
REVIVE_S = 5.0


class Manager:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._workers: dict[str, PodWorker] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._waiting: dict[str, Pod] = {}
        self._refused: dict[str, str] = {}
        self._records: list[ContainerRecord] = []
        self._ips: dict[str, str] = {}
        self._schedule = asyncio.Event()
        self._failed = asyncio.Event()
        self.on_node_back: Callable[[], None] = lambda: None

    def find(self, namespace: str, name: str) -> PodWorker | None:
        """The worker of a pod by name; of two with one name (one is going) the newer."""
        key = f"{namespace}/{name}"
        return next((worker for worker in reversed(self._workers.values()) if podspec.key(worker.pod) == key), None)

    def exited(self, record: ContainerRecord) -> None:
        # Workers that begin later are told by the list, so that has to know too.
        self._records = [record if known["id"] == record["id"] else known for known in self._records]
        worker = self._workers.get(record["pod"])
        if worker is not None:
            worker.exited(record)

    async def run(self) -> None:
        """Until cancelled. The node must be connected."""
        await self._learn_node()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch_pods())
            group.create_task(self._follow_node())
            group.create_task(self._bind_all())
            group.create_task(self._revive())

    # The node

    async def _learn_node(self) -> None:
        listing = await self._context.node.request("list")
        self._records = listing["containers"]
        self._ips = {pod["uid"]: pod["ip"] for pod in listing["pods"]}

    async def _follow_node(self) -> None:
        """Connect again whenever the connection is lost; every worker then learns what is left of its pod."""
        while True:
            await self._context.node.closed.wait()
            _log.warning("the connection to the node was lost")
            for attempt in range(1_000_000):
                try:
                    await self._context.node.connect()
                    await self._learn_node()
                    break
                except NodeError as error:
                    if attempt == 0:
                        _log.warning("the node does not answer", error=str(error))
                    await asyncio.sleep(retry_delay_s(attempt))
            _log.info("connected to the node", containers=len(self._records))
            self.on_node_back()
            for uid, worker in self._workers.items():
                worker.node_is_back(
                    [record for record in self._records if record["pod"] == uid], self._ips.get(uid, "")
                )

    # Pods

    async def _watch_pods(self) -> None:
        seen: set[str] = set()
        async with contextlib.aclosing(aiter(ListWatch(self._context.client, kinds.POD))) as events:
            async for event in events:
                match event:
                    case ListBegun():
                        seen = set()
                    case Listed(items):
                        for pod in items:
                            seen.add(podspec.uid(pod))
                            self._seen(pod)
                    case ListComplete():
                        self._only(seen)
                        await self._clean_up(seen)
                    case Changed("DELETED", obj):
                        self._gone(podspec.uid(obj))
                    case Changed(_, obj):
                        self._seen(obj)

    def _seen(self, pod: Pod) -> None:
        uid = podspec.uid(pod)
        if scheduling.wants_node(pod):
            self._waiting[uid] = pod
            self._schedule.set()
        elif pod["spec"].get("nodeName") == self._context.node_name:
            self._waiting.pop(uid, None)
            if uid in self._workers or not self._failed.is_set():
                self._own(uid, pod)
        else:
            self._waiting.pop(uid, None)

    def _own(self, uid: str, pod: Pod) -> None:
        worker = self._workers.get(uid)
        if worker is not None:
            worker.update(pod)
            return
        records = [record for record in self._records if record["pod"] == uid]
        view = adoption.adopt(pod, records, self._ips.get(uid, ""), datetime.now(UTC))
        worker = PodWorker(self._context, pod, view)
        self._workers[uid] = worker
        task = asyncio.get_running_loop().create_task(worker.run(), name=f"pod {podspec.key(pod)}")
        self._tasks[uid] = task
        task.add_done_callback(lambda done: self._ended(uid, done))

    def _ended(self, uid: str, task: asyncio.Task[None]) -> None:
        self._workers.pop(uid, None)
        self._tasks.pop(uid, None)
        self._schedule.set()  # what it held is free
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a pod's worker failed", pod=task.get_name(), exc_info=error)
            self._failed.set()

    async def _revive(self) -> None:
        """Workers that failed begin anew, with what the node and the API server know."""
        while True:
            await self._failed.wait()
            await asyncio.sleep(REVIVE_S)
            with contextlib.suppress(NodeError, errors.KubeError):
                field = f"spec.nodeName={self._context.node_name}"
                pods = await self._context.client.list_all(kinds.POD, field_selector=field)
                await self._learn_node()
                self._failed.clear()
                for pod in pods:
                    if podspec.uid(pod) not in self._workers:
                        self._seen(pod)

    def _gone(self, uid: str) -> None:
        self._waiting.pop(uid, None)
        self._refused.pop(uid, None)
        worker = self._workers.get(uid)
        if worker is not None:
            worker.gone()

    def _only(self, seen: set[str]) -> None:
        for uid in [*self._workers, *self._waiting]:
            if uid not in seen:
                self._gone(uid)

    async def _clean_up(self, seen: set[str]) -> None:
        """What the node and the disk hold of pods that are no more."""
        folder = self._context.folder / "pods"
        on_disk = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
        for uid in (self._ips.keys() | on_disk) - seen:
            with contextlib.suppress(NodeError):
                await self._context.node.request("pod-remove", {"uid": uid})
        logs = self._context.folder / "logs" / "pods"
        for path in logs.iterdir() if logs.is_dir() else ():
            if path.name.rpartition("_")[2] not in seen:
                shutil.rmtree(path, ignore_errors=True)

    # Pods that wait for a node

    async def _bind_all(self) -> None:
        failures = 0
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(retry_delay_s(failures) if failures else None):
                    await self._schedule.wait()
            self._schedule.clear()
            try:
                for uid, pod in sorted(self._waiting.items(), key=lambda item: _age(item[1])):
                    await self._bind(uid, pod)
                failures = 0
            except errors.KubeError as error:
                failures += 1
                _log.warning("binding failed, will be tried again", error=str(error))

    async def _bind(self, uid: str, pod: Pod) -> None:
        others = [worker.pod for worker in self._workers.values()]
        labels = registration.labels(self._context.node_name)
        refusal = scheduling.refusal(pod, others, self._context.machine, labels)
        if refusal:
            await self._refuse(uid, pod, refusal)
            return
        meta, node = pod["metadata"], self._context.node_name
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"apiVersion": "v1", "kind": "Binding",
                "metadata": {"name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"]}, "target": target}  # fmt: skip
        with contextlib.suppress(errors.NotFound, errors.Conflict):
            await self._context.client.request(
                "POST", kinds.POD.path(meta["namespace"], meta["name"], "binding"), body=body
            )
            self._context.event(
                pod, "Normal", "Scheduled", "Binding", f"Successfully assigned {podspec.key(pod)} to {node}"
            )
        self._waiting.pop(uid, None)
        self._refused.pop(uid, None)

    async def _refuse(self, uid: str, pod: Pod, why: str) -> None:
        if self._refused.get(uid) == why:
            return
        self._refused[uid] = why
        self._context.event(pod, "Warning", "FailedScheduling", "Scheduling", why)
        meta = pod["metadata"]
        stored = (pod.get("status") or {}).get("conditions") or ()
        condition: Mapping[str, Any] = {
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why,
            "lastProbeTime": None, "lastTransitionTime": times.rfc3339(datetime.now(UTC)),
        }  # fmt: skip
        conditions = [*(other for other in stored if other["type"] != "PodScheduled"), condition]
        with contextlib.suppress(errors.NotFound, errors.Conflict):
            await self._context.client.merge_patch(
                kinds.POD,
                meta["namespace"],
                meta["name"],
                {"status": {"conditions": conditions}},
                uid=uid,
                subresource="status",
            )


def _age(pod: Pod) -> str:
    return str(pod["metadata"].get("creationTimestamp") or "")
