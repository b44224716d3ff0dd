"""Orders of events that real processes show only now and then, against a node and an API server that do as told."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from raybus.kube import errors
from raybus_localkube.kubelet.context import Context
from raybus_localkube.kubelet.environment import Sources
from raybus_localkube.kubelet.launching import Place
from raybus_localkube.kubelet.lifecycle import PodView
from raybus_localkube.kubelet.podworker import PodWorker
from raybus_localkube.kubelet.resources import Machine
from raybus_localkube.node.protocol import ContainerRecord, ContainerSpec, container_id


class Node:
    """Starts containers at once; `ends_at_once` says the exit before the start is answered, as one read of the socket may."""

    def __init__(self) -> None:
        self.worker: PodWorker | None = None
        self.ends_at_once = False
        self.started: list[int] = []
        self.signals: list[int] = []

    async def request(self, op: str, _fields: Mapping[str, Any] | None = None) -> dict[str, Any]:
        return {"ip": "10.244.0.2"} if op == "pod-ensure" else {}

    async def start(self, spec: ContainerSpec) -> ContainerRecord:
        self.started.append(spec["attempt"])
        record = ContainerRecord(
            id=container_id(spec["pod"], spec["name"], spec["attempt"]), pod=spec["pod"], name=spec["name"],
            attempt=spec["attempt"], running=True, started=time.time(), finished=0.0, exit_code=0, signal=0, reason="", message="",
        )  # fmt: skip
        if self.ends_at_once:
            assert self.worker is not None
            self.worker.exited(record | {"running": False, "finished": time.time(), "exit_code": 4})
        return record

    async def signal(self, _container: str, number: int) -> None:
        self.signals.append(number)


class Api:
    """Notes patches; fails `failures` times first."""

    def __init__(self) -> None:
        self.status: dict[str, Any] = {}
        self.patches = 0
        self.failures = 0
        self.deleted = asyncio.Event()

    async def merge_patch(self, *_where: object, **_more: object) -> None:
        if self.failures:
            self.failures -= 1
            raise errors.NoAnswer("gone")
        self.patches += 1
        patch = _where[3]
        assert isinstance(patch, dict)
        self.status.update(patch["status"])

    async def delete(self, *_where: object, **_more: object) -> None:
        self.deleted.set()


class Quiet:
    """Events and volumes that nobody looks at here."""

    def record(self, *_what: object) -> None:
        pass

    def folder(self, _pod: object) -> Path:
        return Path("/none")

    async def fill(self, *_what: object) -> None:
        return None

    async def sources(self, *_what: object) -> Sources:
        return Sources()


def worker(node: Node, api: Api, tmp_path: Path, **spec: Any) -> PodWorker:
    pod = {
        "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
        "spec": {"containers": [{"name": "main", "command": ["x"]}], "restartPolicy": "Never", **spec},
    }
    parts: Any = (api, node, Quiet(), Quiet())
    context = Context(*parts, tmp_path, "local", Machine(1, 1 << 30), Place("/env", has_ray=True))
    made = PodWorker(context, pod, PodView())
    node.worker = made
    return made


async def until(holds: Any, what: str) -> None:
    for _ in range(500):
        if holds():
            return
        await asyncio.sleep(0.01)
    pytest.fail(what)


async def test_an_exit_that_is_told_before_the_start_is_answered(tmp_path: Path) -> None:
    node, api = Node(), Api()
    node.ends_at_once = True
    made = worker(node, api, tmp_path)
    task = asyncio.create_task(made.run())
    await until(lambda: api.status.get("phase") == "Failed", "the exit is seen")
    assert api.status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 4
    assert node.started == [0]
    made.gone()
    await asyncio.wait_for(task, 20)


async def test_a_status_that_could_not_be_written_is_written_later(tmp_path: Path) -> None:
    node, api = Node(), Api()
    api.failures = 2
    made = worker(node, api, tmp_path)
    task = asyncio.create_task(made.run())
    await until(lambda: api.status.get("phase") == "Running", "it is written in the end")
    assert node.started == [0]
    assert api.patches == 1
    made.gone()
    await asyncio.wait_for(task, 20)


async def test_a_deletion_whose_program_does_not_end_leaves_time_for_others(tmp_path: Path) -> None:
    node, api = Node(), Api()
    made = worker(node, api, tmp_path)
    task = asyncio.create_task(made.run())
    await until(lambda: api.status.get("phase") == "Running", "it runs")
    long_ago = {"deletionTimestamp": "2020-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0}
    made.update({**made.pod, "metadata": {**made.pod["metadata"], **long_ago}})
    await until(lambda: 9 in node.signals, "it is killed")
    await asyncio.sleep(0.2)
    assert len(node.signals) <= 3
    made.exited(
        ContainerRecord(
            id="u/main/0", pod="u", name="main", attempt=0, running=False, started=0.0, finished=1.0, exit_code=137, signal=9,
            reason="", message="",
        )
    )  # fmt: skip
    await asyncio.wait_for(task, 20)
    assert api.deleted.is_set()
