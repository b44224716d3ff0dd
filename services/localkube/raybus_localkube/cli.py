"""The `localkube` command: a Kubernetes API on this machine, with or without a node, for `kubectl` and whatever speaks to one."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from raybus.cli.errors import EXIT_ENVIRONMENT, UserError
from raybus.cli.local import start_ticks
from raybus.runtime import child
from raybus_localkube.daemon import Daemon, Folder, Options, open_folder

START_S = 150.0
STOP_S = 60.0
LOOK_S = 0.05

app = typer.Typer(
    name="localkube",
    help="A small Kubernetes on this machine: API server, built-in controllers, and a node that runs pods as processes.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
err = Console(stderr=True, highlight=False, soft_wrap=True)
Dir = Annotated[Path, typer.Option("--dir", help="folder for state, certificates, logs and kubeconfig")]


@app.command("up")
def up_command(
    directory: Dir,
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="port on 127.0.0.1; 0: as before, or any free one")
    ] = 0,
    no_kubelet: Annotated[bool, typer.Option("--no-kubelet", help="the API alone: nothing runs pods")] = False,
    foreground: Annotated[bool, typer.Option("--foreground", help="stay; SIGTERM or Ctrl-C ends everything")] = False,
) -> None:
    """Start localkube and print the kubeconfig's path when it is ready; where it runs already, only print it."""
    folder = open_folder(directory)
    options = Options(port=port, kubelet=not no_kubelet)
    if foreground:
        asyncio.run(Daemon(folder, options, tell=lambda: typer.echo(folder.kubeconfig)).run())
        return
    if not alive(record_of(folder)):
        spawned = spawn(folder, options)
        wait_ready(folder, spawned)
    else:
        wait_ready(folder, None)
        check_same(folder, options)
    typer.echo(folder.kubeconfig)


@app.command("down")
def down_command(directory: Dir) -> None:
    """Stop what runs in this folder; its state stays. Nothing to stop is success."""
    folder = open_folder(directory)
    record = record_of(folder)
    if not alive(record):
        err.print(f"nothing runs in {folder.root}")
        return
    os.kill(record["pid"], signal.SIGTERM)
    ends = time.monotonic() + STOP_S
    while alive(record):
        if time.monotonic() > ends:
            raise UserError(f"process {record['pid']} does not end", f"see the logs in {folder.logs}", EXIT_ENVIRONMENT)
        time.sleep(LOOK_S)
    err.print(f"stopped; the state stays in {folder.root}")


@app.command("status")
def status_command(
    directory: Dir, output: Annotated[str, typer.Option("--output", "-o", help="table or json")] = "table"
) -> None:
    """Show what runs. Exit code 0 if all of it is ready."""
    if output not in ("table", "json"):
        raise UserError(f"no output {output!r}", "table or json")
    folder = open_folder(directory)
    running = alive(record_of(folder))
    services = read(folder.state).get("services", []) if running else []
    if output == "json":
        typer.echo(
            json.dumps({"dir": str(folder.root), "kubeconfig": str(folder.kubeconfig), "services": services}, indent=2)
        )
    else:
        show(folder, services)
    if not running or not all(service["ready"] for service in services):
        raise typer.Exit(EXIT_ENVIRONMENT)


def show(folder: Folder, services: list[dict[str, Any]]) -> None:
    if not services:
        err.print(f"nothing runs in {folder.root}; start it with `localkube up --dir {folder.root}`")
        return
    table = Table("process", "pid", "ready", "ports", "restarts", "log", box=None)
    for service in services:
        ports = ", ".join(f"{name} {port}" for name, port in service["ports"].items())
        ready = "yes" if service["ready"] else service["problem"] or "no"
        table.add_row(
            service["name"], str(service["pid"] or "-"), ready, ports, str(service["restarts"]), service["logFile"]
        )
    Console(soft_wrap=True).print(table)
    typer.echo(f"kubeconfig: {folder.kubeconfig}")


def read(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return {}
    return found


def record_of(folder: Folder) -> dict[str, Any]:
    return read(folder.record)


def alive(record: dict[str, Any]) -> bool:
    """Whether the very process that wrote the record still runs: its pid may belong to another one by now."""
    try:
        return bool(record) and start_ticks(record["pid"]) == record["start_ticks"]
    except (FileNotFoundError, ProcessLookupError):
        return False


def spawn(folder: Folder, options: Options) -> subprocess.Popen[bytes]:
    """The daemon, in a session of its own."""
    folder.record.unlink(missing_ok=True)
    given = {"dir": str(folder.root), "port": options.port, "kubelet": options.kubelet}
    command = child.python("raybus_localkube.daemon", json.dumps(given))
    with (folder.logs / "localkube.log").open("ab") as log:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)  # noqa: S603 -- our own module


def wait_ready(folder: Folder, spawned: subprocess.Popen[bytes] | None) -> None:
    """Until the daemon says that all is ready. UserError with its own words if it cannot."""
    ends = time.monotonic() + START_S
    while time.monotonic() < ends:
        record = record_of(folder)
        if error := record.get("error"):
            raise UserError(error["message"], error["hint"], error["code"])
        if record.get("phase") == "ready" and alive(record):
            return
        if spawned is not None and spawned.poll() is not None:
            raise UserError(
                f"the background process ended with code {spawned.returncode}",
                f"its log: {folder.logs / 'localkube.log'}",
                EXIT_ENVIRONMENT,
            )
        time.sleep(LOOK_S)
    raise UserError(f"not ready after {START_S:.0f} s", f"see the logs in {folder.logs}", EXIT_ENVIRONMENT)


def check_same(folder: Folder, options: Options) -> None:
    """Whoever asks for another port than the running one has to know."""
    running = read(folder.ports).get("kube")
    if options.port and running != options.port:
        hint = f"stop it with `localkube down --dir {folder.root}` first"
        raise UserError(
            f"localkube runs in {folder.root} on port {running}, not {options.port}", hint, EXIT_ENVIRONMENT
        )


def main() -> None:
    """Console script `localkube`."""
    try:
        app()
    except UserError as error:
        err.print(f"error: {error.message}", markup=False)
        if error.hint:
            err.print(f"       {error.hint}", markup=False)
        sys.exit(error.code)


if __name__ == "__main__":
    main()
