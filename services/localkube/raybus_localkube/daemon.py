"""The long-lived process of `localkube up`: API server, node and kubelet under one supervisor. What it starts dies with it."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from raybus.cli import kube_processes
from raybus.cli.background import Foreground, Place
from raybus.cli.errors import EXIT_ENVIRONMENT, UserError
from raybus.cli.folder import drawn_ports, make_private
from raybus.runtime.supervisor import Supervisor, SupervisorError

MAX_DIR_LENGTH = 90


@dataclass(frozen=True, slots=True)
class Folder:
    """Paths below `localkube up --dir`."""

    root: Path

    @property
    def kubeconfig(self) -> Path:
        return self.root / "kubeconfig"

    @property
    def place(self) -> Place:
        log = self.logs / "localkube-up.log"
        return Place(command="localkube", root=self.root, record=self.root / "localkube.json", log=log)

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
    folder = Folder(root.expanduser().absolute())
    make_private(folder.root, (folder.logs,), MAX_DIR_LENGTH)
    return folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Port 0 means the one this folder had before, else any free one."""

    port: int = 0
    kubelet: bool = True


class Daemon:
    """One localkube in one folder; `tell` is called once all is ready."""

    def __init__(self, folder: Folder, options: Options, tell: Callable[[], None] = lambda: None) -> None:
        self._folder, self._options, self._tell = folder, options, tell

    async def run(self) -> None:
        """Until SIGTERM or SIGINT. Raises UserError."""
        await Foreground(self._folder.place).run(self._serve)

    async def _serve(self, process: Foreground) -> None:
        folder, options = self._folder, self._options
        named = {"kube": options.port} if options.port else {}
        ports = drawn_ports(folder.ports, kube_processes.PORT_NAMES, named)
        specs = kube_processes.processes(folder.root, folder.logs, ports, node=options.kubelet)
        supervisor = Supervisor(specs, folder.state)
        try:
            await process.unless_stopped(supervisor.start())
            if not process.stopping.is_set():
                process.ready()
                self._tell()
            await process.stopping.wait()
        except SupervisorError as error:
            raise UserError(str(error), "mend what it names; `localkube up` again", EXIT_ENVIRONMENT) from None
        finally:
            await supervisor.stop()


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
