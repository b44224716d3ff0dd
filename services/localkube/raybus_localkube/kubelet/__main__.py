"""`python -m raybus_localkube.kubelet --kubeconfig K --dir D`: the kubelet of localkube, until SIGTERM. Pods outlive it."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import os
import signal
import socket
import sys
from pathlib import Path
from urllib.parse import urlsplit

from raybus.domain import kinds
from raybus.kube import config, errors
from raybus.kube.client import KubeClient
from raybus.kube.events import EventRecorder
from raybus.observe.logging import configure, get_logger
from raybus_localkube.kubelet import logserver, registration
from raybus_localkube.kubelet.context import Context, retry_delay_s
from raybus_localkube.kubelet.launching import Place
from raybus_localkube.kubelet.manager import Manager
from raybus_localkube.kubelet.materials import Materials
from raybus_localkube.kubelet.node_client import NodeClient
from raybus_localkube.kubelet.podworker import PodWorker
from raybus_localkube.kubelet.services import Services, api_address
from raybus_localkube.node import sandbox, shims, syscalls
from raybus_localkube.node.protocol import ContainerRecord, NodeError

_log = get_logger(component="kubelet")


def main() -> int:
    options = _options()
    if options.die_with_parent:
        syscalls.die_with_parent(signal.SIGTERM)
    configure(service="kubelet", replica=options.node_name, log_format=options.log_format, level=options.log_level)
    try:
        settings = config.load(options.kubeconfig)
    except config.ConfigError as error:
        print(f"kubelet: {error}", file=sys.stderr)  # noqa: T201 -- this is a command
        return 1
    folder = Path(options.dir).absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        held = sandbox.lock(folder, "kubelet")
    except (sandbox.NodeStartError, OSError) as error:
        print(f"kubelet: {error}", file=sys.stderr)  # noqa: T201 -- this is a command
        return 1
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(options, settings, folder))
    os.close(held)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="raybus_localkube.kubelet", description=__doc__)
    parser.add_argument("--kubeconfig", help="how to reach the API server; KUBECONFIG if not given")
    parser.add_argument("--dir", required=True, help="the node's folder")
    parser.add_argument("--node-name", default="local")
    parser.add_argument(
        "--log-port", type=int, default=0, help="port on 127.0.0.1 that serves containers' logs; 0 chooses one"
    )
    parser.add_argument("--cluster-domain", default="cluster.local")
    parser.add_argument("--log-format", choices=("json", "console"), default="json")
    parser.add_argument("--log-level", default="info")
    parser.add_argument(
        "--die-with-parent", action="store_true", help="stop when the process that started this one ends"
    )
    return parser.parse_args()


async def _serve(options: argparse.Namespace, settings: config.KubeConfig, folder: Path) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    work = loop.create_task(_work(options, settings, folder))
    stopping = loop.create_task(stop.wait())
    await asyncio.wait((work, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not work.done():
        work.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await work


async def _work(options: argparse.Namespace, settings: config.KubeConfig, folder: Path) -> None:
    managers: list[Manager] = []

    def exited(record: ContainerRecord) -> None:
        for manager in managers:
            manager.exited(record)

    node = NodeClient(folder / "node.sock", exited)
    await _connect(node)
    async with KubeClient(settings, user_agent="raybus-kubelet") as client:
        recorder = EventRecorder(client, "kubelet", options.node_name)
        async with recorder as events:
            place = await _place(client, options.cluster_domain)
            machine = registration.machine()
            context = Context(
                client, node, events, Materials(client, folder), folder, options.node_name, machine, place
            )
            manager = Manager(context)
            managers.append(manager)
            token = logserver.write_token(folder / "kubelet-token")
            logs = logserver.LogServer(manager.find, _log_path(context), token)
            port = await logs.start(options.log_port)
            await _register(client, options.node_name, port)
            logs.ready = True
            services = Services(client, node, _address(settings.server))
            manager.on_node_back = services.forget_pushed
            _log.info("kubelet runs", node=options.node_name, log_port=port, cpus=machine.cpus, memory=machine.memory)
            gc.collect()
            gc.freeze()
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(manager.run())
                    group.create_task(services.run())
                    group.create_task(registration.keep_lease(client, options.node_name))
            finally:
                await logs.stop()
                await node.close()


async def _connect(node: NodeClient) -> None:
    for attempt in range(1_000_000):
        try:
            await node.connect()
            return
        except NodeError as error:
            if attempt % 20 == 0:
                _log.warning("waiting for the node", error=str(error))
            await asyncio.sleep(min(0.1 * 2 ** min(attempt, 5), retry_delay_s(attempt)))


async def _place(client: KubeClient, domain: str) -> Place:
    """What pods are told of their surroundings. Waits until the API server answers."""
    for attempt in range(1_000_000):
        try:
            try:
                service = await client.get(kinds.SERVICE, "default", "kubernetes")
            except errors.NotFound:
                service = None
            return Place(sys.prefix, shims.find_ray() is not None, domain, api_address(service))
        except errors.KubeError as error:
            if attempt % 20 == 0:
                _log.warning("waiting for the API server", error=str(error))
            await asyncio.sleep(min(0.1 * 2 ** min(attempt, 5), retry_delay_s(attempt)))
    raise AssertionError("unreachable")


async def _register(client: KubeClient, name: str, port: int) -> None:
    for attempt in range(1_000_000):
        try:
            await registration.register(client, name, registration.machine(), port)
            return
        except errors.KubeError as error:
            _log.warning("the node cannot be registered yet", error=str(error))
            await asyncio.sleep(retry_delay_s(attempt))


def _log_path(context: Context) -> logserver.LogPath:
    def path(worker: PodWorker, container: str, attempt: int) -> Path:
        return context.log_path(worker.pod, container, attempt)

    return path


def _address(server: str) -> tuple[str, int]:
    """The API server as an address, since the sandbox has no resolver for the host's names."""
    parts = urlsplit(server)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    found = socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)
    ipv4 = [entry for entry in found if entry[0] == socket.AF_INET]
    return str((ipv4 or found)[0][4][0]), port


if __name__ == "__main__":
    sys.exit(main())
