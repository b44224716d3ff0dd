"""The foreground of `raybus up`: start the processes in order, install the definitions, say when all is ready, stay.

Everything started here dies with this process, also when it is killed.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from raybus.cli import local
from raybus.cli.background import Foreground
from raybus.cli.errors import EXIT_ENVIRONMENT, UserError
from raybus.cli.folder import drawn_ports, write_atomically
from raybus.cli.health import serve_ready
from raybus.cli.layout import PORT_NAMES, Layout
from raybus.cli.local import UpOptions
from raybus.runtime.supervisor import Supervisor, SupervisorError

PREPARE_S = 90.0


class Daemon:
    """What one `raybus up` serves in one folder."""

    def __init__(self, layout: Layout, options: UpOptions) -> None:
        self._layout = layout
        self._options = options
        self._ready = False

    def facts(self) -> dict[str, Any]:
        """What others may want to know of the running process."""
        return {
            "kubeconfig": self._options.kubeconfig or str(self._layout.kubeconfig),
            "local": not self._options.kubeconfig,
            "health_port": self._options.health_port,
        }

    async def serve(self, process: Foreground) -> None:
        """Start all in order, say when they are ready, and stay until the process is told to end."""
        if not self._options.kubeconfig:
            await _require_host()
        named = {"kube": self._options.port} if self._options.port else {}
        known = drawn_ports(self._layout.ports, PORT_NAMES, named)
        write_atomically(self._layout.nats_config, local.nats_config(self._layout, known))
        base = Supervisor(local.base_processes(self._layout, known, self._options), self._layout.base_state)
        services = Supervisor(local.services(self._layout, known, self._options), self._layout.state)
        async with serve_ready(self._options.health_port, (base, services), lambda: self._ready):
            try:
                await process.unless_stopped(base.start())
                await process.unless_stopped(_prepare(local.prepare_command(self._layout, known, self._options)))
                await process.unless_stopped(services.start())
                self._ready = not process.stopping.is_set()
                if self._ready:
                    process.ready()
                    say("all services are ready")
                await process.stopping.wait()
            except SupervisorError as error:
                raise UserError(str(error), "mend what it names; `raybus up` again", EXIT_ENVIRONMENT) from None
            finally:
                self._ready = False
                await services.stop()
                await base.stop()


async def _require_host() -> None:
    """Refuse with the node's own words where pods cannot run on this machine."""
    process = await asyncio.create_subprocess_exec(
        *local.check_command(), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await process.communicate()
    if process.returncode:
        problem, _, remedy = output.decode(errors="replace").strip().partition("\n")
        raise UserError(problem, remedy.strip(), EXIT_ENVIRONMENT)


async def _prepare(command: Sequence[str]) -> None:
    """Install missing definitions and free the leases. Raises UserError with the words of raybus.cli.prepare."""
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(PREPARE_S):
            output, errors = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        raise UserError(
            f"not prepared after {PREPARE_S:.0f} s", "is the machine busy? try again", EXIT_ENVIRONMENT
        ) from None
    if process.returncode == EXIT_ENVIRONMENT:
        problem = json.loads(errors.splitlines()[-1])
        raise UserError(problem["message"], problem["hint"], EXIT_ENVIRONMENT)
    if process.returncode:
        raise UserError(errors.decode(errors="replace").strip(), "this is a bug; please report it", EXIT_ENVIRONMENT)
    if installed := output.decode().split():
        say(f"installed the definitions {', '.join(installed)}")


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> int:
    """`python -m raybus.cli.daemon OPTIONS`, OPTIONS being JSON: {"dir", "options"}. Small, for it lives as long as the services."""
    given = json.loads(sys.argv[1])
    layout = Layout(Path(given["dir"]))
    daemon = Daemon(layout, UpOptions(**given["options"]))
    try:
        asyncio.run(Foreground(layout.place, daemon.facts()).run(daemon.serve))
    except UserError as error:
        say(f"error: {error.message}\n       {error.hint}")
        return error.code
    return 0


if __name__ == "__main__":
    sys.exit(main())
