"""Looking at this machine for `raybus doctor`. No judgement here."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from raybus.cli import folder, local, up
from raybus.cli.doctor.machine import Machine
from raybus.cli.errors import UserError
from raybus.cli.layout import Layout, default_dir, open_layout

TRY_S = 60.0
IMPORT_RAY = "import ray; print(ray.__version__)"


async def machine(directory: Path | None) -> Machine:
    """The facts; a folder that cannot be used is one of them."""
    try:
        layout = open_layout(directory)
    except UserError as error:
        return Machine(folder=str(directory or default_dir()), folder_error=error.message)
    record = layout.place.running()
    (ray, ray_error), sandbox, (server, server_error) = await asyncio.gather(
        asyncio.to_thread(_output, sys.executable, "-c", IMPORT_RAY),
        asyncio.to_thread(_sandbox),
        asyncio.to_thread(_nats_server),
    )
    return Machine(
        folder=str(layout.root),
        free=shutil.disk_usage(layout.root).free,
        memory=_memory(),
        local=record.get("local", True),
        ray=ray,
        ray_error=ray_error,
        sandbox=sandbox,
        nats_server=server,
        nats_server_error=server_error,
        running=bool(record),
        services=await up.services_of(layout) if record else (),
        taken={} if record else _taken(layout),
    )


def served_elsewhere(directory: Path | None) -> str:
    """The kubeconfig of the cluster that the running Raybus serves; empty if none runs or it serves its own."""
    try:
        record = open_layout(directory).place.running()
    except UserError:
        return ""
    return "" if record.get("local", True) else str(record["kubeconfig"])


def _output(*command: str) -> tuple[str, str]:
    """What the command printed, or the last line of why it failed."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TRY_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", str(error)
    said = (done.stdout if not done.returncode else done.stderr or done.stdout).strip()
    last = said.splitlines()[-1] if said else f"exit code {done.returncode}"
    return ("", last) if done.returncode else (last, "")


def _sandbox() -> tuple[str, str] | None:
    done = subprocess.run(local.check_command(), capture_output=True, text=True, timeout=TRY_S, check=False)
    if not done.returncode:
        return None
    problem, _, remedy = (done.stdout or done.stderr).strip().partition("\n")
    return problem, remedy.strip()


def _nats_server() -> tuple[str, str]:
    try:
        return _output(str(local.nats_server()), "--version")
    except UserError as error:
        return "", error.message


def _memory() -> int:
    """Bytes that processes can have without anything being swapped."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), 0)


def _taken(layout: Layout) -> dict[str, int]:
    known: dict[str, Any] = folder.read_json(layout.ports)
    return {name: port for name, port in known.items() if not folder.is_free(port)}
