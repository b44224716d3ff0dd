"""The foreground of `raybus up`: start the processes in order, install the definitions, say when all is ready, stay.

Everything started here dies with this process, also when it is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import signal
import sys
from collections.abc import Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any

from raybus.cli import local
from raybus.cli.errors import EXIT_ENVIRONMENT, UserError
from raybus.cli.health import serve_ready
from raybus.cli.layout import Layout, free_ports, ports, require_free, write_atomically
from raybus.cli.local import UpOptions
from raybus.runtime.supervisor import Supervisor, SupervisorError

PREPARE_S = 90.0


class Daemon:
    """One `raybus up` in one folder."""

    def __init__(self, layout: Layout, options: UpOptions) -> None:
        self._layout = layout
        self._options = options
        self._stop = asyncio.Event()

    async def run(self) -> int:
        """Until SIGTERM or SIGINT; the exit code. What goes wrong at the start is told here and to who waits for it."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        with _alone(self._layout):
            self._record("starting")
            try:
                await self._serve()
            except UserError as error:
                self._record("failed", {"message": error.message, "hint": error.hint, "code": error.code})
                raise
            self._layout.daemon.unlink(missing_ok=True)
        return 0

    async def _serve(self) -> None:
        if not self._options.kubeconfig:
            await _require_host()
        known = self._ports()
        write_atomically(self._layout.nats_config, local.nats_config(self._layout, known))
        base = Supervisor(local.base_processes(self._layout, known, self._options), self._layout.base_state)
        services = Supervisor(local.services(self._layout, known, self._options), self._layout.state)
        async with serve_ready(self._options.health_port, (base, services), lambda: self._ready):
            try:
                await self._unless_stopped(base.start())
                await self._unless_stopped(_prepare(local.prepare_command(self._layout, known, self._options)))
                await self._unless_stopped(services.start())
                self._ready = not self._stop.is_set()
                if self._ready:
                    self._record("ready")
                    say("all services are ready")
                await self._stop.wait()
            except SupervisorError as error:
                raise UserError(str(error), "mend what it names; `raybus up` again", EXIT_ENVIRONMENT) from None
            finally:
                self._ready = False
                await services.stop()
                await base.stop()

    _ready = False

    def _ports(self) -> dict[str, int]:
        """The ports of this folder; those that were drawn before but are taken now are drawn again, a named one is not."""
        known = ports(self._layout)
        if self._options.port:
            require_free(self._options.port, "--port")
            known["kube"] = self._options.port
        for name, port in known.items():
            try:
                require_free(port, name)
            except UserError:
                known[name] = free_ports(1)[0]
        write_atomically(self._layout.ports, json.dumps(known))
        return known

    async def _unless_stopped(self, work: Coroutine[Any, Any, None]) -> None:
        """Do the work unless SIGTERM comes first."""
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
        record = {
            "pid": os.getpid(),
            "start_ticks": local.start_ticks(os.getpid()),
            "phase": phase,
            "kubeconfig": self._options.kubeconfig or str(self._layout.kubeconfig),
            "local": not self._options.kubeconfig,
            "health_port": self._options.health_port,
            "error": error,
        }
        write_atomically(self._layout.daemon, json.dumps(record))


@contextlib.contextmanager
def _alone(layout: Layout) -> Iterator[None]:
    """Hold the folder's lock; the kernel frees it when the process dies."""
    with (layout.root / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UserError(
                f"another Raybus runs in {layout.root}",
                "`raybus status` shows it; stop it with `raybus down`, or choose another folder with --dir",
                EXIT_ENVIRONMENT,
            ) from None
        yield


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
    options = UpOptions(**given["options"])
    try:
        return asyncio.run(Daemon(layout, options).run())
    except UserError as error:
        say(f"error: {error.message}\n       {error.hint}")
        return error.code


if __name__ == "__main__":
    sys.exit(main())
