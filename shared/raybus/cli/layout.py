"""The folder of a local Raybus: where state, logs and sockets of its processes live, and which ports they were given.

Ports are drawn once and kept in `ports.json`, so that a kubeconfig stays valid over a restart.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from raybus.cli.errors import EXIT_ENVIRONMENT, UserError

# A unix socket's path may have 107 bytes; the longest one below the folder needs this many.
MAX_DIR_LENGTH = 80
PORT_NAMES = ("nats", "nats_monitor", "kube", "kubelet", "proxy", "gateway", "cluster_ctrl", "job_ctrl")


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
    def daemon(self) -> Path:
        return self.root / "daemon.json"

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
    root = (directory or default_dir()).expanduser().absolute()
    if len(os.fsencode(root)) > MAX_DIR_LENGTH:
        raise UserError(
            f"the path of the folder is too long for unix sockets: {root}",
            f"choose one of at most {MAX_DIR_LENGTH} bytes with --dir",
            EXIT_ENVIRONMENT,
        )
    layout = Layout(root)
    try:
        for path in (root, layout.logs, layout.nats, layout.kube):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        probe = root / ".writable"
        probe.write_text("")
        probe.unlink()
    except OSError as error:
        raise UserError(
            f"cannot use the folder {root}: {error.strerror}", "choose another with --dir", EXIT_ENVIRONMENT
        ) from None
    return layout


def ports(layout: Layout, names: Iterable[str] = PORT_NAMES) -> dict[str, int]:
    """The port of each process, drawn once for this folder."""
    known: dict[str, int] = {}
    if layout.ports.exists():
        known = {str(name): int(port) for name, port in json.loads(layout.ports.read_text()).items()}
    missing = [name for name in names if name not in known]
    if missing:
        known |= dict(zip(missing, free_ports(len(missing)), strict=True))
        write_atomically(layout.ports, json.dumps(known))
    return known


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that were free a moment ago, all different."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for sock in sockets:
            sock.bind(("127.0.0.1", 0))
        return [int(sock.getsockname()[1]) for sock in sockets]
    finally:
        for sock in sockets:
            sock.close()


def require_free(port: int, what: str) -> None:
    """UserError if something listens on 127.0.0.1:port already."""
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", port))
        except OSError:
            raise UserError(
                f"port {port} ({what}) is in use", "choose another one, or stop what uses it", EXIT_ENVIRONMENT
            ) from None


def write_atomically(path: Path, text: str, mode: int = 0o600) -> None:
    """Replace the file in one step, so that a kill leaves the old or the new text."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    temporary.replace(path)
