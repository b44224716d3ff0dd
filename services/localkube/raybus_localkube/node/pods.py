"""The node's pods: their network, shared files and containers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from raybus_localkube.node import init, network, rootfs, syscalls
from raybus_localkube.node.container import Container
from raybus_localkube.node.protocol import ContainerRecord, ContainerSpec, NodeError, container_id

END_TIMEOUT_S = 5.0


@dataclass(slots=True)
class Pod:
    """A pod's place on the node."""

    uid: str
    name: str
    namespace: str
    folder: Path
    net: network.PodNetwork
    files: rootfs.PodFiles
    memory_folders: list[str] = field(default_factory=list)


class Pods:
    """All calls are made by one event loop. `on_exit` is told the record of every container that ends."""

    def __init__(self, folder: Path, host: rootfs.HostLayout, on_exit: Callable[[ContainerRecord], None]) -> None:
        self._folder = folder / "pods"
        self._host = host
        self._on_exit = on_exit
        self._pods: dict[str, Pod] = {}
        self._containers: dict[str, Container] = {}
        self._last_ip = ""
        self._folder.mkdir(parents=True, exist_ok=True)

    def watch_children(self) -> None:
        """Collect ended child processes; as process 1 of the sandbox the node also inherits orphans.

        That a container has ended is seen at its control socket, so the process ids do not matter here.
        """
        asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, self._reap)

    def _reap(self) -> None:
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return

    def ensure(self, request: Mapping[str, Any]) -> str:
        """The pod's address; makes what is missing. Raises NodeError."""
        uid = _safe(request["uid"])
        if uid in self._pods:
            return self._pods[uid].net.ip
        taken = {pod.net.ip for pod in self._pods.values()}
        try:
            ip = network.next_address(taken, self._last_ip)
            net = network.create(ip, request["hostname"])
        except (OSError, network.NoAddress) as error:
            raise NodeError(f"network of pod {request['name']}: {error}") from error
        self._last_ip = ip
        folder = self._folder / uid
        pod = Pod(uid, request["name"], request["namespace"], folder, net, _write_files(folder, ip, request))
        self._pods[uid] = pod
        try:
            self._add_memory_folders(pod, request.get("tmpfs", ()))
        except OSError as error:
            self._forget_pod(pod)
            raise NodeError(f"memory volumes of pod {pod.name}: {error}") from error
        return ip

    def _add_memory_folders(self, pod: Pod, wanted: Any) -> None:
        for item in wanted:
            target = str(pod.folder / "volumes" / _safe(item["name"]))
            Path(target).mkdir(parents=True, exist_ok=True)
            size = f",size={int(item['size'])}" if item.get("size") else ""
            syscalls.mount("tmpfs", target, "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, f"mode=1777{size}")
            pod.memory_folders.append(target)

    async def start(self, spec: ContainerSpec) -> ContainerRecord:
        """Start a container, or give the record of the one that was started before. Raises NodeError."""
        known = self._containers.get(container_id(spec["pod"], spec["name"], spec["attempt"]))
        if known is not None:
            return known.record
        pod = self._pods.get(spec["pod"])
        if pod is None:
            raise NodeError(f"no pod {spec['pod']} on this node")
        root = self._root(spec)
        _remove_root(root)
        root.mkdir(parents=True)
        _make_sub_paths(pod, spec)
        sizing = rootfs.Sizing(spec["cpu"], spec["memory"])
        steps = rootfs.plan(self._host, pod.files, sizing, spec["mounts"], spec["message_path"])
        container = Container(spec, self._ended)
        self._containers[container.id] = container

        def launch(control: socket.socket, stdout: int, stderr: int) -> init.Launch:
            return init.Launch(
                spec["argv"], spec["env"], spec["cwd"], str(root), steps, control, stdout, stderr, pod.net.namespaces,
                spec["message_path"],
            )  # fmt: skip

        with contextlib.suppress(NodeError):  # the record says it, as for every other end
            await container.start(launch)
        return container.record

    def _root(self, spec: ContainerSpec) -> Path:
        return self._folder / _safe(spec["pod"]) / "roots" / f"{_safe(spec['name'])}-{spec['attempt']}"

    def _ended(self, container: Container) -> None:
        self._on_exit(container.record)

    def signal(self, wanted: str, number: int) -> None:
        container = self._containers.get(wanted)
        if container is not None:
            container.kill(number)

    async def exec(self, wanted: str, argv: list[str], timeout_s: float) -> dict[str, Any]:
        container = self._containers.get(wanted)
        if container is None:
            raise NodeError(f"no container {wanted}")
        return await container.exec(argv, timeout_s)

    def forget(self, wanted: str) -> None:
        """Remove a container that has ended, with its files."""
        container = self._containers.get(wanted)
        if container is None:
            return
        if container.running:
            raise NodeError(f"container {wanted} still runs")
        del self._containers[wanted]
        _remove_root(self._root(container.spec))

    async def remove(self, uid: str) -> None:
        """End what still runs in the pod, then remove its network and files. A pod that is not there is fine."""
        mine = [container for container in self._containers.values() if container.spec["pod"] == uid]
        await self._end_all(mine)
        for container in mine:
            self._containers.pop(container.id, None)
        pod = self._pods.get(uid)
        if pod is not None:
            self._forget_pod(pod)
        shutil.rmtree(self._folder / _safe(uid), ignore_errors=True)

    def _forget_pod(self, pod: Pod) -> None:
        for target in pod.memory_folders:
            with contextlib.suppress(OSError):
                syscalls.umount(target)
        with contextlib.suppress(OSError):
            network.destroy(pod.net)
        self._pods.pop(pod.uid, None)

    @staticmethod
    async def _end_all(containers: list[Container]) -> None:
        for container in containers:
            container.kill(signal.SIGKILL)
        await _ended(containers, END_TIMEOUT_S)

    async def stop_all(self, grace_s: float) -> None:
        """SIGTERM to everything, SIGKILL after `grace_s`."""
        running = [container for container in self._containers.values() if container.running]
        for container in running:
            container.kill(signal.SIGTERM)
        await _ended(running, grace_s)
        await self._end_all(running)

    def listing(self) -> dict[str, Any]:
        pods = [{"uid": p.uid, "name": p.name, "namespace": p.namespace, "ip": p.net.ip} for p in self._pods.values()]
        return {"pods": pods, "containers": [container.record for container in self._containers.values()]}


async def _ended(containers: list[Container], within_s: float) -> None:
    """Wait until all have ended, or for so long."""
    waiting = [asyncio.ensure_future(container.ended.wait()) for container in containers]
    if waiting:
        _, late = await asyncio.wait(waiting, timeout=within_s)
        for task in late:
            task.cancel()


def _safe(name: str) -> str:
    """A name used in a path; object names and uids never have a slash."""
    if not name or "/" in name or name in (".", ".."):
        raise NodeError(f"not a name: {name!r}")
    return name


def _remove_root(root: Path) -> None:
    shutil.rmtree(root, ignore_errors=True)
    shutil.rmtree(f"{root}.places", ignore_errors=True)


def _make_sub_paths(pod: Pod, spec: ContainerSpec) -> None:
    """A subPath of a volume that is not there yet becomes a folder."""
    for mount in spec["mounts"]:
        if mount["source"].startswith(f"{pod.folder}/volumes/") and not os.path.lexists(mount["source"]):
            Path(mount["source"]).mkdir(parents=True)


def _write_files(folder: Path, ip: str, request: Mapping[str, Any]) -> rootfs.PodFiles:
    files = folder / "etc"
    files.mkdir(parents=True, exist_ok=True)
    aliases = [(str(alias["ip"]), list(alias["names"])) for alias in request.get("host_aliases", ())]
    texts = {
        "hosts": rootfs.hosts_file(request["hostname"], ip, aliases),
        "hostname": request["hostname"] + "\n",
        "resolv.conf": rootfs.resolv_conf(network.GATEWAY, request.get("search", ()), request.get("options", ())),
    }
    for name, text in texts.items():
        (files / name).write_text(text)
    return rootfs.PodFiles(*(str(files / name) for name in texts))
