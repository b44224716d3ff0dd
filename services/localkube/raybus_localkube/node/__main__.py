"""`python -m raybus_localkube.node --dir D --proxy-port P`: the node of localkube, until SIGTERM."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import os
import signal
import sys
import uuid
from pathlib import Path

from raybus_localkube.node import host, network, resolver, sandbox, shims, syscalls
from raybus_localkube.node.dial import Dialer
from raybus_localkube.node.names import Names
from raybus_localkube.node.pods import Pods
from raybus_localkube.node.protocol import ContainerRecord
from raybus_localkube.node.proxy import Proxy
from raybus_localkube.node.rootfs import HostLayout
from raybus_localkube.node.server import Server
from raybus_localkube.node.virtual import VirtualAddresses

GRACE_S = 3.0


def main() -> int:
    options = _options()
    if options.die_with_parent:
        syscalls.die_with_parent(signal.SIGTERM)
    folder = Path(options.dir).absolute()
    problems = host.check_host()
    if problems:
        for problem in problems:
            print(problem, file=sys.stderr)  # noqa: T201 -- this is a command
        return 1
    try:
        folder.mkdir(parents=True, exist_ok=True)
        held = sandbox.lock(folder)
        sockets, channel = sandbox.open_sockets(folder, options.proxy_port)
    except (sandbox.NodeStartError, OSError) as error:
        print(f"node: {error}", file=sys.stderr)  # noqa: T201 -- this is a command
        return 1
    tools = folder / "node" / "bin"
    shims.install(tools)
    layout = host.layout(tools)
    inner = sandbox.fork_inside(lambda: _run(folder, layout, sockets, options.cluster_domain))
    port = sockets.proxy.getsockname()[1]
    for unused in (sockets.requests, sockets.proxy, sockets.dial):
        unused.close()
    print(f"node: pods in {folder}, HTTP proxy on http://127.0.0.1:{port}", flush=True)  # noqa: T201 -- this is a command
    try:
        return sandbox.stand_by(inner, channel)
    finally:
        with contextlib.suppress(OSError):
            (folder / "node.sock").unlink()
        os.close(held)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="raybus_localkube.node", description=__doc__)
    parser.add_argument("--dir", required=True, help="folder for sockets, pods and logs")
    parser.add_argument("--proxy-port", type=int, default=0, help="port of the HTTP proxy on 127.0.0.1; 0 chooses one")
    parser.add_argument("--cluster-domain", default="cluster.local")
    parser.add_argument(
        "--die-with-parent", action="store_true", help="stop when the process that started this one ends"
    )
    return parser.parse_args()


def _run(folder: Path, layout: HostLayout, sockets: sandbox.Sockets, domain: str) -> int:
    """In the sandbox, as its process 1."""
    syscalls.set_process_name("raybus-node")
    syscalls.mount("none", "/", flags=syscalls.MS_REC | syscalls.MS_PRIVATE)
    syscalls.mount("proc", "/proc", "proc", syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC)
    network.set_up_node()
    asyncio.run(_serve(folder, layout, sockets, domain))
    return 0


async def _serve(folder: Path, layout: HostLayout, sockets: sandbox.Sockets, domain: str) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    names = Names(domain)
    virtual = VirtualAddresses(names)

    def exited(record: ContainerRecord) -> None:
        server.exited(record)

    pods = Pods(folder, layout, exited)
    pods.watch_children()
    about = {"boot": uuid.uuid4().hex, "dns": network.GATEWAY, "proxy_port": sockets.proxy.getsockname()[1]}
    server = Server(pods, names, virtual, Dialer(sockets.dial).dial, about)
    await resolver.serve(names, network.GATEWAY)
    await Proxy(names).serve(sockets.proxy)
    gc.collect()
    gc.freeze()  # what exists now stays shared with the processes forked for containers
    await server.serve(sockets.requests)
    await stop.wait()
    await pods.stop_all(GRACE_S)


if __name__ == "__main__":
    sys.exit(main())
