"""The folder of a local Raybus: where state, logs and sockets of its processes live, and which ports they were given.

Ports are drawn once and kept in `ports.json`, so that a kubeconfig stays valid over a restart.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from raybus.cli import kube_processes
from raybus.cli.background import Place
from raybus.cli.folder import make_private

# A unix socket's path may have 107 bytes; the longest one below the folder needs this many.
MAX_DIR_LENGTH = 80
PORT_NAMES = ("nats", "nats_monitor", *kube_processes.PORT_NAMES, "gateway", "cluster_ctrl", "job_ctrl")


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths below the folder `root` of `raybus up --dir`."""

    root: Path

    @property
    def base_state(self) -> Path:
        """The supervisor's word about NATS and the local Kubernetes."""
        return self.root / "base.json"

    @property
    def state(self) -> Path:
        """The supervisor's word about gateway and controllers."""
        return self.root / "services.json"

    @property
    def place(self) -> Place:
        """Of the long-lived process of `raybus up`."""
        return Place(
            command="raybus", root=self.root, record=self.root / "daemon.json", log=self.root / "logs" / "raybus.log"
        )

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def nats(self) -> Path:
        return self.root / "nats"

    @property
    def nats_config(self) -> Path:
        return self.nats / "nats.conf"

    @property
    def kube(self) -> Path:
        return self.root / "kube"

    @property
    def kubeconfig(self) -> Path:
        return self.kube / "kubeconfig"

    @property
    def ports(self) -> Path:
        return self.root / "ports.json"


def default_dir() -> Path:
    """`RAYBUS_DIR`, else `raybus` below the user's state folder."""
    if named := os.environ.get("RAYBUS_DIR"):
        return Path(named)
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base) / "raybus"


def open_layout(directory: Path | None) -> Layout:
    """Make the folder, private to the user. UserError if it cannot be used."""
    layout = Layout((directory or default_dir()).expanduser().absolute())
    make_private(layout.root, (layout.logs, layout.nats, layout.kube), MAX_DIR_LENGTH)
    return layout
