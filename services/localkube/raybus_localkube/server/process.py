"""The server process: store, core, front and built-in controllers on one event loop."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import logging
import signal
import sys
from pathlib import Path

import uvloop

from raybus_localkube.server import bootstrap
from raybus_localkube.server.certificates import Authority, kubeconfig, write_private
from raybus_localkube.server.controllers import Controllers, UnknownController
from raybus_localkube.server.core import Core
from raybus_localkube.server.http import Front
from raybus_localkube.server.localclient import LocalClient
from raybus_localkube.server.messages import User
from raybus_localkube.server.nodes import Nodes
from raybus_localkube.server.tokens import Tokens
from raybus_localkube.store.journal import SqliteJournal, StoreInUse
from raybus_localkube.store.store import Store

log = logging.getLogger(__name__)
HOST = "127.0.0.1"
KUBELET_TOKEN = "kubelet-token"  # noqa: S105 -- name of a file
USAGE, PORT_IN_USE, STORE_IN_USE, STORE_FAILED = 2, 3, 5, 6
"""Exit codes. After USAGE a supervisor need not try again."""


class Server:
    """One API server over the state folder `folder`."""

    def __init__(self, folder: Path, controllers: tuple[str, ...] | None) -> None:
        self.folder = folder
        self.authority = Authority(folder / "pki")
        self.failed = asyncio.Event()
        self.store = Store(SqliteJournal(folder / "state.db"), self._store_failed)
        self.core = Core(self.store)
        self.tokens = Tokens(self.authority.secret("service-accounts").encode(), self._users(), self.store)
        self.nodes = Nodes(folder / KUBELET_TOKEN)
        self.core.subresources.tokens, self.core.subresources.nodes = self.tokens, self.nodes
        self.front = Front(self.core, self.tokens)
        self.client = LocalClient(self.core)
        self.controllers = Controllers(self.client, controllers, ca=self.authority.ca.certificate.read_text())
        self.core.ready = lambda: self.controllers.running

    def _users(self) -> dict[str, User]:
        everyone = "system:authenticated"
        return {
            self.authority.secret("admin-token"): User("admin", ("system:masters", everyone), "admin"),
            self.authority.secret("nobody-token"): User("nobody", (everyone,), "nobody"),
        }

    def _store_failed(self, error: BaseException) -> None:
        log.critical("the store cannot be written, the server ends: %s", error)
        self.failed.set()

    async def start(self, port: int) -> int:
        taken = await self.front.start(HOST, port, self.authority.server_context())
        self.core.address = f"{HOST}:{taken}"
        bootstrap.ensure(self.core, taken)
        await self.store.committed()
        await self.controllers.start()
        if not (self.folder / KUBELET_TOKEN).exists():
            write_private(self.folder / KUBELET_TOKEN, self.authority.secret("kubelet").encode())
        write_private(self.folder / "kubeconfig", kubeconfig(self.authority, f"https://{HOST}:{taken}"))
        return taken

    async def stop(self) -> None:
        await self.controllers.stop()
        self.store.close()
        await self.front.stop()
        await self.nodes.close()


def complain(text: str) -> None:
    """Told to the user, in place of a stack trace."""
    sys.stderr.write(f"{text}\n")


async def serve(folder: Path, port: int, controllers: tuple[str, ...] | None) -> int:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stopped.set)
    try:
        server = Server(folder, controllers)
    except StoreInUse:
        complain(f"another localkube serves {folder}; stop it with: localkube down --dir {folder}")
        return STORE_IN_USE
    except OSError as error:
        complain(f"{folder} cannot be used as state folder: {error.strerror or error}; choose another with --dir")
        return USAGE
    try:
        taken = await server.start(port)
    except OSError as error:
        complain(f"port {port} on {HOST} cannot be used: {error.strerror or error}; choose another with --port")
        return PORT_IN_USE
    log.info("serving on https://%s:%s", HOST, taken)
    # Everything loaded so far stays: full collections need not look at it again.
    gc.collect()
    gc.freeze()
    waits = [asyncio.ensure_future(event.wait()) for event in (stopped, server.failed)]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()
    if server.failed.is_set():
        return STORE_FAILED
    await server.stop()
    return 0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="raybus_localkube.server", description="The API server of localkube.")
    parser.add_argument("--dir", type=Path, required=True, help="folder for state, certificates and kubeconfig")
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1; 0 takes any free one")
    parser.add_argument(
        "--controllers", default=None, help="built-in controllers to run, comma-separated; default all, '' none"
    )
    parser.add_argument("--log-level", default="INFO")
    options = parser.parse_args(arguments)
    logging.basicConfig(
        level=options.log_level, format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stderr
    )
    names = None if options.controllers is None else tuple(filter(None, options.controllers.split(",")))
    gc.set_threshold(50_000, 20, 100)
    with contextlib.suppress(KeyboardInterrupt):
        try:
            return uvloop.run(serve(options.dir.absolute(), options.port, names))
        except UnknownController as error:
            complain(str(error))
            return USAGE
    return 0
