"""`raybus up`, `down` and `status`: one supervisor per folder, in the foreground or as a process of its own."""

from __future__ import annotations

import json
import os
from typing import Any, NoReturn

import aiohttp
from rich.table import Table

from raybus.cli import console, local
from raybus.cli.background import spawn, stop, until_ready
from raybus.cli.errors import EXIT_ENVIRONMENT, UserError
from raybus.cli.folder import read_json
from raybus.cli.layout import Layout
from raybus.cli.local import UpOptions


def up(layout: Layout, options: UpOptions) -> int:
    """Start everything in the background and return when all are ready."""
    was_running = bool(layout.place.running())
    record = start(layout, options)
    console.tell("runs already" if was_running else "ready")
    console.err.print(f"kubeconfig: {record['kubeconfig']}")
    if not was_running:
        console.err.print("next: `raybus run job.yaml`; `raybus status` shows the parts, `raybus down` stops them")
    return 0


def stay(layout: Layout, options: UpOptions) -> NoReturn:
    """Become the long-lived process: it ends on SIGTERM or Ctrl-C, and everything with it."""
    command = local.daemon_command(layout, options)
    os.execv(command[0], command)


def start(layout: Layout, options: UpOptions) -> dict[str, Any]:
    """The record of the running Raybus, started in the background if there is none. UserError if it does not get ready."""
    record = layout.place.running()
    if not record:
        return until_ready(layout.place, spawn(layout.place, local.daemon_command(layout, options)))
    if options.kubeconfig and record["kubeconfig"] != options.kubeconfig:
        raise UserError(
            f"a Raybus for {record['kubeconfig']} runs in {layout.root}",
            "stop it with `raybus down`, or choose another folder with --dir",
            EXIT_ENVIRONMENT,
        )
    return until_ready(layout.place, None)


def down(layout: Layout) -> int:
    """Stop the supervisor and with it everything it started; nothing to do is success."""
    stopped = stop(layout.place)
    console.err.print(f"stopped; the state stays in {layout.root}" if stopped else f"nothing runs in {layout.root}")
    return 0


async def status(layout: Layout, output: str) -> int:
    """Print what runs. Exit code 0 if all are ready, else that of an environment error."""
    if output not in ("table", "json"):
        raise UserError(f"no output {output!r}", "table or json")
    record = layout.place.running()
    processes = await services_of(layout) if record else []
    found = {
        "running": bool(record),
        "ready": bool(processes) and record.get("phase") == "ready" and all(each["ready"] for each in processes),
        "dir": str(layout.root),
        "pid": record.get("pid"),
        "kubeconfig": record.get("kubeconfig"),
        "proxy": local.proxy_of(layout) if record and record.get("local") else None,
        "services": processes,
    }
    if output == "json":
        print(json.dumps(found, indent=2))
    else:
        _print_status(found)
    return 0 if found["ready"] or not found["running"] else EXIT_ENVIRONMENT


async def services_of(layout: Layout) -> list[dict[str, Any]]:
    """What runs: each process with its pid, readiness and why not, ports, log file and restarts."""
    return [await _asked(process) for process in _processes(layout)]


def _processes(layout: Layout) -> list[dict[str, Any]]:
    return [each for path in (layout.base_state, layout.state) for each in read_json(path).get("services", [])]


async def _asked(process: dict[str, Any]) -> dict[str, Any]:
    """The supervisor's word about a process, and where it has a readiness address the process' own."""
    why = process.get("problem", "")
    if process.get("ready") and process.get("readyUrl"):
        process, why = await _ask_ready(process)
    return {
        "name": process["name"],
        "pid": process.get("pid"),
        "ready": bool(process.get("ready")),
        "why": why,
        "ports": process.get("ports", {}),
        "log": process["logFile"],
        "restarts": process.get("restarts", 0),
    }


async def _ask_ready(process: dict[str, Any]) -> tuple[dict[str, Any], str]:
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2)) as session,
            # Only readiness of our own process on loopback is asked: its certificate does not matter.
            session.get(process["readyUrl"], ssl=False) as response,
        ):
            text = "" if response.status == 200 else (await response.text())[:200]
            return {**process, "ready": response.status == 200}, text
    except (aiohttp.ClientError, OSError) as error:
        return {**process, "ready": False}, f"{type(error).__name__}: no answer"


def _print_status(found: dict[str, Any]) -> None:
    if not found["running"]:
        console.out.print(f"nothing runs in {found['dir']}; start with `raybus up` or `raybus run job.yaml`")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("service", "pid", "ready", "ports", "restarts", "log"):
        table.add_column(title, overflow="fold")
    for each in found["services"]:
        ports = ", ".join(f"{name} {port}" for name, port in each["ports"].items())
        ready = "[green]yes[/green]" if each["ready"] else f"[red]no[/red] {each['why']}"
        table.add_row(each["name"], str(each["pid"] or "-"), ready, ports, str(each["restarts"]), each["log"])
    console.out.print(table)
    console.out.print(f"\nkubeconfig: {found['kubeconfig']}")
