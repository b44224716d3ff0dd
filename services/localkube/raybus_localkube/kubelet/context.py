"""What every pod worker shares, and where things of a pod lie on disk."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from raybus.kube.client import KubeClient
from raybus.kube.events import EventRecorder
from raybus_localkube.kubelet.launching import Place
from raybus_localkube.kubelet.materials import Materials
from raybus_localkube.kubelet.node_client import NodeClient
from raybus_localkube.kubelet.podspec import Pod
from raybus_localkube.kubelet.resources import Machine

HOST_IP = "127.0.0.1"


@dataclass(slots=True)
class Context:
    client: KubeClient
    node: NodeClient
    events: EventRecorder
    materials: Materials
    folder: Path
    node_name: str
    machine: Machine
    place: Place

    def log_folder(self, pod: Pod) -> Path:
        meta = pod["metadata"]
        return self.folder / "logs" / "pods" / f"{meta['namespace']}_{meta['name']}_{meta['uid']}"

    def log_path(self, pod: Pod, container: str, attempt: int) -> Path:
        return self.log_folder(pod) / container / f"{attempt}.log"

    def remove_logs(self, pod: Pod) -> None:
        shutil.rmtree(self.log_folder(pod), ignore_errors=True)

    def event(self, pod: Pod, kind: Literal["Normal", "Warning"], reason: str, action: str, note: str) -> None:
        regarding: Mapping[str, Any] = {"apiVersion": "v1", "kind": "Pod", "metadata": pod["metadata"]}
        self.events.record(regarding, kind, reason, action, note)


def retry_delay_s(attempts: int) -> float:
    """0.5 s, doubling to 30 s."""
    return min(0.5 * 2.0 ** min(attempts, 6), 30.0)
