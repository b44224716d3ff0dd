"""The node and the kubelet of localkube as processes that a test can start, kill and look into."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from raybus.domain import kinds
from raybus.kube import errors
from raybus.kube.client import KubeClient

MARKER = "RAYBUS_TEST_MARKER"
NODE_NAME = "local"
PATIENCE_S = 30.0


class LocalNode:
    """`start_node`, `start_kubelet`; `marker` stands in the environment of every pod made by `pod`."""

    def __init__(self, folder: Path, kubeconfig: str, python: str) -> None:
        self.folder = folder
        self.kubeconfig = kubeconfig
        self.marker = secrets.token_hex(8)
        self._python = python
        self.node: subprocess.Popen[bytes] | None = None
        self.kubelet: subprocess.Popen[bytes] | None = None
        self.proxy_port = 0

    def start_node(self) -> None:
        port = self.proxy_port or free_port()
        self.node = self._spawn("raybus_localkube.node", "--proxy-port", str(port))
        self.proxy_port = port
        wait_until(
            lambda: answers(self.folder), "the node answers", self.node, self.folder / "raybus_localkube.node.log"
        )

    def start_kubelet(self) -> None:
        port = free_port()
        self.kubelet = self._spawn(
            "raybus_localkube.kubelet", "--kubeconfig", self.kubeconfig, "--node-name", NODE_NAME, "--log-port", str(port)
        )  # fmt: skip
        log = self.folder / "raybus_localkube.kubelet.log"
        wait_until(lambda: healthy(port), "the kubelet is registered", self.kubelet, log)

    def _spawn(self, module: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [self._python, "-m", module, "--dir", str(self.folder), *arguments]
        with (self.folder / f"{module}.log").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def kill_kubelet(self) -> None:
        assert self.kubelet is not None
        self.kubelet.kill()
        self.kubelet.wait(10)

    def inner_pid(self) -> int:
        """Process 1 of the sandbox."""
        assert self.node is not None
        return int(Path(f"/proc/{self.node.pid}/task/{self.node.pid}/children").read_text().split()[0])

    def stop(self) -> None:
        for process in (self.kubelet, self.node):
            if process is None or process.poll() is not None:
                continue
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)
                pytest.fail(f"{process.args}: did not stop at SIGTERM")

    def logs(self) -> str:
        return "\n".join(path.read_text() for path in self.folder.glob("*.log"))

    def marked_processes(self) -> list[int]:
        """Processes of this machine, wherever they hang, that began in one of our pods."""
        return processes_with(f"{MARKER}={self.marker}")

    def marks(self, namespace: str, name: str) -> list[dict[str, str]]:
        """Environment by which a pod's processes are found."""
        return [{"name": MARKER, "value": self.marker}, {"name": f"{MARKER}_POD", "value": f"{namespace}/{name}"}]

    def processes_of(self, namespace: str, name: str) -> list[int]:
        return processes_with(f"{MARKER}_POD={namespace}/{name}")

    def pod(self, namespace: str, name: str, command: list[str], **spec: Any) -> dict[str, Any]:
        """A pod of one container `main`; `container` adds to it."""
        extra = spec.pop("container", {})
        env = [*self.marks(namespace, name), *extra.pop("env", ())]
        container = {"name": "main", "image": "unused", "command": command, "env": env, **extra}
        spec = {"nodeName": NODE_NAME, "terminationGracePeriodSeconds": 5, "containers": [container], **spec}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace, "labels": {"app": name}},
            "spec": spec,
        }


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def processes_with(text: str) -> list[int]:
    found = []
    for path in Path("/proc").iterdir():
        if not path.name.isdigit():
            continue
        try:
            if text.encode() in (path / "environ").read_bytes().split(b"\0"):
                found.append(int(path.name))
        except OSError:
            continue
    return found


def answers(folder: Path) -> bool:
    try:
        return "boot" in ask(folder, "hello")
    except OSError:
        return False


def ask(folder: Path, op: str, **fields: Any) -> dict[str, Any]:
    """One request to the node."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(30)
        connection.connect(str(folder / "node.sock"))
        with connection.makefile("rwb") as stream:
            stream.write(json.dumps({"v": 1, "id": 1, "op": op, **fields}).encode() + b"\n")
            stream.flush()
            answer: dict[str, Any] = json.loads(stream.readline())
            return answer


def healthy(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def wait_until(
    holds: Callable[[], object], what: str, process: subprocess.Popen[bytes] | None = None, log: Path | None = None
) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        ended = process is not None and process.poll() is not None
        if ended or time.monotonic() > deadline:
            pytest.fail(f"did not happen: {what}\n{log.read_text() if log else ''}")
        time.sleep(0.02)


async def until(
    kube: KubeClient,
    namespace: str,
    name: str,
    holds: Callable[[Mapping[str, Any]], object],
    what: str,
    *,
    within_s: float = PATIENCE_S,
) -> dict[str, Any]:
    """The pod as soon as `holds(pod)`; fails with its status after `within_s`."""
    pod: dict[str, Any] = {}
    for _ in range(int(within_s / 0.05)):
        pod = await kube.get(kinds.POD, namespace, name)
        if holds(pod):
            return pod
        await asyncio.sleep(0.05)
    pytest.fail(f"{what}: did not happen in {within_s} s; status: {json.dumps(pod.get('status'), indent=1)}")


async def until_gone(kube: KubeClient, namespace: str, name: str, *, within_s: float = PATIENCE_S) -> None:
    for _ in range(int(within_s / 0.05)):
        try:
            await kube.get(kinds.POD, namespace, name)
        except errors.NotFound:
            return
        await asyncio.sleep(0.05)
    pytest.fail(f"pod {name} is still there after {within_s} s")


def phase(pod: Mapping[str, Any]) -> str:
    return str((pod.get("status") or {}).get("phase"))


def ready(pod: Mapping[str, Any]) -> bool:
    return condition(pod, "Ready").get("status") == "True"


def condition(pod: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    return next((c for c in (pod.get("status") or {}).get("conditions") or () if c["type"] == kind), {})


def main_status(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ({},)
    status: Mapping[str, Any] = statuses[0]
    return status


def log_text(node: LocalNode, pod: Mapping[str, Any], container: str = "main", attempt: int = 0) -> str:
    """The container's output, without the times."""
    meta = pod["metadata"]
    path = (
        node.folder
        / "logs"
        / "pods"
        / f"{meta['namespace']}_{meta['name']}_{meta['uid']}"
        / container
        / f"{attempt}.log"
    )
    return "\n".join(line.split(" ", 3)[3] for line in path.read_text().splitlines())


async def events_of(kube: KubeClient, namespace: str, name: str) -> AsyncIterator[dict[str, Any]]:
    for event in await kube.list_all(kinds.EVENT, namespace):
        if (event.get("regarding") or {}).get("name") == name:
            yield event


async def event_with(kube: KubeClient, namespace: str, name: str, reason: str) -> dict[str, Any]:
    for _ in range(200):
        async for event in events_of(kube, namespace, name):
            if event["reason"] == reason:
                return event
        await asyncio.sleep(0.05)
    pytest.fail(f"no event {reason} on pod {name}")


def kill(process: int) -> None:
    os.kill(process, signal.SIGKILL)
