"""The `localkube` command: a Kubernetes API on this machine, with or without a node, for `kubectl` and whatever speaks to one."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from raybus.cli import background
from raybus.cli.errors import EXIT_ENVIRONMENT, UserError
from raybus.cli.folder import read_json
from raybus.runtime import child
from raybus_localkube.daemon import Daemon, Folder, Options, open_folder

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
    if folder.place.running():
        background.until_ready(folder.place, None)
        check_same(folder, options)
    else:
        given = {"dir": str(folder.root), "port": options.port, "kubelet": options.kubelet}
        command = child.python("raybus_localkube.daemon", json.dumps(given))
        background.until_ready(folder.place, background.spawn(folder.place, command))
    typer.echo(folder.kubeconfig)


@app.command("down")
def down_command(directory: Dir) -> None:
    """Stop what runs in this folder; its state stays. Nothing to stop is success."""
    folder = open_folder(directory)
    stopped = background.stop(folder.place)
    err.print(f"stopped; the state stays in {folder.root}" if stopped else f"nothing runs in {folder.root}")


@app.command("status")
def status_command(
    directory: Dir, output: Annotated[str, typer.Option("--output", "-o", help="table or json")] = "table"
) -> None:
    """Show what runs. Exit code 0 if all of it is ready."""
    if output not in ("table", "json"):
        raise UserError(f"no output {output!r}", "table or json")
    folder = open_folder(directory)
    running = bool(folder.place.running())
    services = read_json(folder.state).get("services", []) if running else []
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


def check_same(folder: Folder, options: Options) -> None:
    """Whoever asks for another port than the running one has to know."""
    running = read_json(folder.ports).get("kube")
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
