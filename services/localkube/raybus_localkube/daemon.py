"""The long-lived process of `localkube up`: API server, node and kubelet under one supervisor. What it starts dies with it."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raybus.cli.errors import EXIT_ENVIRONMENT, UserError
from raybus.cli.layout import free_ports, require_free, write_atomically
from raybus.cli.local import start_ticks
from raybus.runtime import child
from raybus.runtime.child import ProcessSpec
from raybus.runtime.supervisor import Supervisor, SupervisorError

READY_S = 60.0
PORT_NAMES = ("kube", "kubelet", "proxy")
MAX_DIR_LENGTH = 90  # a unix socket's path may have 107 bytes


@dataclass(frozen=True, slots=True)
class Folder:
    """Paths below `localkube up --dir`."""

    root: Path

    @property
    def kubeconfig(self) -> Path:
        return self.root / "kubeconfig"

    @property
    def record(self) -> Path:
        """What the running daemon says about itself."""
        return self.root / "localkube.json"

    @property
    def state(self) -> Path:
        """The supervisor's word about its processes."""
        return self.root / "processes.json"

    @property
    def ports(self) -> Path:
        return self.root / "ports.json"

    @property
    def logs(self) -> Path:
        return self.root / "logs"


def open_folder(root: Path) -> Folder:
    """Make the folder, private to the user. UserError if it cannot be used."""
    root = root.expanduser().absolute()
    if len(os.fsencode(root)) > MAX_DIR_LENGTH:
        raise UserError(
            f"the path of the folder is too long: {root}",
            f"choose one of at most {MAX_DIR_LENGTH} bytes",
            EXIT_ENVIRONMENT,
        )
    folder = Folder(root)
    try:
        folder.logs.mkdir(mode=0o700, parents=True, exist_ok=True)
        probe = root / ".writable"
        probe.write_text("")
        probe.unlink()
    except OSError as error:
        raise UserError(
            f"cannot use the folder {root}: {error.strerror}", "choose another with --dir", EXIT_ENVIRONMENT
        ) from None
    return folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Port 0 means the one this folder had before, else any free one."""

    port: int = 0
    kubelet: bool = True


def drawn_ports(folder: Folder, port: int) -> dict[str, int]:
    """The ports of this folder: kept over a restart, unless somebody else has one now. UserError if the named one is taken."""
    known: dict[str, int] = {}
    with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
        known = json.loads(folder.ports.read_text())
    if port:
        require_free(port, "--port")
        known["kube"] = port
    for name in PORT_NAMES:
        try:
            require_free(known[name], name)
        except (KeyError, UserError):
            known[name] = free_ports(1)[0]
    write_atomically(folder.ports, json.dumps(known))
    return known


def processes(folder: Folder, ports: dict[str, int], options: Options) -> list[ProcessSpec]:
    """What runs, in the order of needs."""
    root = str(folder.root)
    server = ProcessSpec(
        name="server",
        argv=child.python("raybus_localkube.server", "--dir", root, "--port", str(ports["kube"])),
        log_file=folder.logs / "server.log",
        ready_url=f"https://127.0.0.1:{ports['kube']}/readyz",
        ready_timeout_s=READY_S,
        ports={"api": ports["kube"]},
    )
    if not options.kubelet:
        return [server]
    node = ProcessSpec(
        name="node",
        argv=child.python("raybus_localkube.node", "--dir", root, "--proxy-port", str(ports["proxy"])),
        log_file=folder.logs / "node.log",
        ready_file=folder.root / "node.sock",
        ready_timeout_s=READY_S,
        ports={"proxy": ports["proxy"]},
    )
    arguments = ("--dir", root, "--kubeconfig", str(folder.kubeconfig), "--log-port", str(ports["kubelet"]))
    kubelet = ProcessSpec(
        name="kubelet",
        argv=child.python("raybus_localkube.kubelet", *arguments),
        log_file=folder.logs / "kubelet.log",
        ready_url=f"http://127.0.0.1:{ports['kubelet']}/healthz",
        ready_timeout_s=READY_S,
        depends_on=("server", "node"),
        ports={"logs": ports["kubelet"]},
    )
    return [server, node, kubelet]


class Daemon:
    """One localkube in one folder; `tell` is called once all is ready."""

    def __init__(self, folder: Folder, options: Options, tell: Callable[[], None] = lambda: None) -> None:
        self._folder, self._options, self._tell = folder, options, tell
        self._stop = asyncio.Event()

    async def run(self) -> None:
        """Until SIGTERM or SIGINT. What goes wrong at the start is recorded for who waits, and raised as UserError."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        with alone(self._folder):
            self._record("starting")
            try:
                await self._serve()
            except UserError as error:
                self._record("failed", {"message": error.message, "hint": error.hint, "code": error.code})
                raise
            self._folder.record.unlink(missing_ok=True)

    async def _serve(self) -> None:
        ports = drawn_ports(self._folder, self._options.port)
        supervisor = Supervisor(processes(self._folder, ports, self._options), self._folder.state)
        try:
            await self._unless_stopped(supervisor.start())
            if not self._stop.is_set():
                self._record("ready")
                self._tell()
            await self._stop.wait()
        except SupervisorError as error:
            raise UserError(str(error), "mend what it names; `localkube up` again", EXIT_ENVIRONMENT) from None
        finally:
            await supervisor.stop()

    async def _unless_stopped(self, work: Coroutine[Any, Any, None]) -> None:
        doing = asyncio.create_task(work, name="start")
        stopping = asyncio.create_task(self._stop.wait(), name="stop")
        try:
            await asyncio.wait({doing, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if doing.done():
                doing.result()
        finally:
            doing.cancel()
            stopping.cancel()
            await asyncio.gather(doing, stopping, return_exceptions=True)

    def _record(self, phase: str, error: dict[str, Any] | None = None) -> None:
        mine = {"pid": os.getpid(), "start_ticks": start_ticks(os.getpid())}
        write_atomically(self._folder.record, json.dumps(mine | {"phase": phase, "error": error}))


@contextlib.contextmanager
def alone(folder: Folder) -> Iterator[None]:
    """Hold the folder's lock; the kernel frees it when the process dies, however that went."""
    with (folder.root / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            hint = f"stop it with `localkube down --dir {folder.root}`, or choose another folder"
            raise UserError(f"another localkube runs in {folder.root}", hint, EXIT_ENVIRONMENT) from None
        yield


def main() -> int:
    """`python -m raybus_localkube.daemon OPTIONS`, OPTIONS being JSON: {"dir", "port", "kubelet"}."""
    given = json.loads(sys.argv[1])
    folder = Folder(Path(given.pop("dir")))
    try:
        asyncio.run(Daemon(folder, Options(**given)).run())
    except UserError as error:
        print(f"error: {error.message}\n       {error.hint}", file=sys.stderr)  # noqa: T201 -- its log
        return error.code
    return 0


if __name__ == "__main__":
    sys.exit(main())
