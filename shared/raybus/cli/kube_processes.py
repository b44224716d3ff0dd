"""The processes of the local Kubernetes, as both `localkube up` and `raybus up` start them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from raybus.runtime import child
from raybus.runtime.child import ProcessSpec

READY_S = 60.0
PORT_NAMES = ("kube", "kubelet", "proxy")


def processes(folder: Path, logs: Path, ports: Mapping[str, int], *, node: bool) -> list[ProcessSpec]:
    """The API server, and with `node` what runs pods; in the order of their needs."""
    server = ProcessSpec(
        name="localkube",
        argv=child.python("raybus_localkube.server", "--dir", str(folder), "--port", str(ports["kube"])),
        log_file=logs / "localkube.log",
        ready_url=f"https://127.0.0.1:{ports['kube']}/readyz",
        ready_timeout_s=READY_S,
        ports={"api": ports["kube"]},
    )
    return [server, _node(folder, logs, ports), _kubelet(folder, logs, ports)] if node else [server]


def _node(folder: Path, logs: Path, ports: Mapping[str, int]) -> ProcessSpec:
    return ProcessSpec(
        name="node",
        argv=child.python("raybus_localkube.node", "--dir", str(folder), "--proxy-port", str(ports["proxy"])),
        log_file=logs / "node.log",
        ready_file=folder / "node.sock",
        ready_timeout_s=READY_S,
        ports={"proxy": ports["proxy"]},
    )


def _kubelet(folder: Path, logs: Path, ports: Mapping[str, int]) -> ProcessSpec:
    arguments = ("--dir", str(folder), "--kubeconfig", str(folder / "kubeconfig"), "--log-port", str(ports["kubelet"]))
    return ProcessSpec(
        name="kubelet",
        argv=child.python("raybus_localkube.kubelet", *arguments),
        log_file=logs / "kubelet.log",
        ready_url=f"http://127.0.0.1:{ports['kubelet']}/healthz",
        ready_timeout_s=READY_S,
        depends_on=("localkube", "node"),
        ports={"logs": ports["kubelet"]},
    )
