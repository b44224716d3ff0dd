"""The node's own objects: a Node that says what the machine has, and a Lease that is renewed while the kubelet lives."""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from raybus.domain import kinds, times
from raybus.kube import errors
from raybus.kube.client import KubeClient
from raybus_localkube.kubelet.context import HOST_IP
from raybus_localkube.kubelet.resources import LEASE, LEASE_NAMESPACE, Machine

RENEW_S = 10.0
LEASE_S = 40
PODS_MAX = 250
VERSION = "v1.36.0"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def machine() -> Machine:
    memory = 0
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemTotal:"):
            memory = int(line.split()[1]) * 1024
    return Machine(len(os.sched_getaffinity(0)), memory)


def labels(name: str) -> dict[str, str]:
    architecture = _ARCHITECTURES.get(platform.machine(), platform.machine())
    return {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": architecture,
        "beta.kubernetes.io/os": "linux",
        "beta.kubernetes.io/arch": architecture,
        "raybus.io/local": "true",
    }


def node_status(name: str, size: Machine, log_port: int, stored: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """The Node's status. The conditions' times are kept where nothing changed, so that a restart writes nothing."""
    amounts = {"cpu": str(size.cpus), "memory": f"{size.memory >> 10}Ki", "pods": str(PODS_MAX)}
    old = {condition["type"]: condition for condition in stored.get("conditions") or ()}
    return {
        "capacity": amounts,
        "allocatable": amounts,
        "addresses": [{"type": "InternalIP", "address": HOST_IP}, {"type": "Hostname", "address": name}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": log_port}},
        "nodeInfo": _node_info(),
        "conditions": [
            _condition(old, "MemoryPressure", "False", "KubeletHasSufficientMemory", now),
            _condition(old, "DiskPressure", "False", "KubeletHasNoDiskPressure", now),
            _condition(old, "PIDPressure", "False", "KubeletHasSufficientPID", now),
            _condition(old, "Ready", "True", "KubeletReady", now),
        ],
    }


def _condition(
    old: Mapping[str, Mapping[str, Any]], kind: str, value: str, reason: str, now: datetime
) -> dict[str, Any]:
    before = old.get(kind, {})
    moment = times.rfc3339(now)
    since = before.get("lastTransitionTime") if before.get("status") == value else None
    message = "local pods are processes of this machine" if kind == "Ready" else ""
    return {"type": kind, "status": value, "reason": reason, "message": message,
            "lastHeartbeatTime": moment, "lastTransitionTime": since or moment}  # fmt: skip


def _node_info() -> dict[str, str]:
    def read(path: str) -> str:
        try:
            return Path(path).read_text().strip()
        except OSError:
            return ""

    return {
        "machineID": read("/etc/machine-id"), "systemUUID": read("/etc/machine-id"),
        "bootID": read("/proc/sys/kernel/random/boot_id"), "kernelVersion": platform.release(),
        "osImage": f"Python {platform.python_version()} at {sys.prefix}", "containerRuntimeVersion": "raybus://local",
        "kubeletVersion": VERSION, "kubeProxyVersion": "", "operatingSystem": "linux",
        "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
    }  # fmt: skip


async def register(client: KubeClient, name: str, size: Machine, log_port: int) -> None:
    """Create or correct the Node and its status. Raises KubeError."""
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels(name)}, "spec": {}}
    try:
        stored = await client.create(kinds.NODE, body)
    except errors.AlreadyExists:
        stored = await client.get(kinds.NODE, None, name)
        if any((stored["metadata"].get("labels") or {}).get(key) != value for key, value in labels(name).items()):
            await client.merge_patch(kinds.NODE, None, name, {"metadata": {"labels": labels(name)}})
    wanted = node_status(name, size, log_port, stored.get("status") or {}, datetime.now(UTC))
    await client.merge_patch(kinds.NODE, None, name, {"status": wanted}, subresource="status")


async def keep_lease(client: KubeClient, name: str) -> None:
    """Renew the Lease every ten seconds; a failure is tried again at the next turn."""
    while True:
        with contextlib.suppress(errors.KubeError):  # the API server is away; nothing else can be done about it here
            await _renew(client, name)
        await asyncio.sleep(RENEW_S)


async def _renew(client: KubeClient, name: str) -> None:
    moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": name, "leaseDurationSeconds": LEASE_S, "renewTime": moment}
    try:
        await client.merge_patch(LEASE, LEASE_NAMESPACE, name, {"spec": spec})
    except errors.NotFound:
        body = {"apiVersion": LEASE.api_version, "kind": LEASE.kind,
                "metadata": {"name": name, "namespace": LEASE_NAMESPACE}, "spec": spec}  # fmt: skip
        await client.create(LEASE, body)
