"""One supervised process: started so that it cannot outlive its supervisor, and what is known of it."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

_PR_SET_PDEATHSIG = 1
LOG_MAX_BYTES = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSpec:
    """`env` is added to the supervisor's own environment. Ready is: `ready_url` answers 200, or `ready_file` exists (it is
    removed before each start); with neither, having lived half a second. `ports` are only shown.
    """

    name: str
    argv: tuple[str, ...]
    log_file: Path
    env: Mapping[str, str] = field(default_factory=dict)
    ready_url: str = ""
    ready_file: Path | None = None
    ready_timeout_s: float = 30.0
    depends_on: tuple[str, ...] = ()
    ports: Mapping[str, int] = field(default_factory=dict)


def dies_with(parent: int) -> Callable[[], None]:
    """Something to run in a new child before its program: SIGKILL it when its parent is gone, however that went."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def set_death_signal() -> None:
        if prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0 or os.getppid() != parent:
            os._exit(127)  # the parent is gone already, or the kernel cannot promise it

    return set_death_signal


async def spawn(spec: ProcessSpec) -> asyncio.subprocess.Process:
    """Start the process in a group of its own, its output appended to the log file. Raises OSError."""
    if spec.ready_file:
        spec.ready_file.unlink(missing_ok=True)
    with _opened(spec.log_file) as log:
        return await asyncio.create_subprocess_exec(
            *spec.argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, **spec.env},
            process_group=0,
            preexec_fn=dies_with(os.getpid()),  # nothing but two system calls; the library is loaded before
        )


def _opened(path: Path) -> BinaryIO:
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        if path.stat().st_size > LOG_MAX_BYTES:
            path.replace(path.with_suffix(path.suffix + ".1"))
    return path.open("ab", buffering=0)


def last_lines(path: Path, count: int = 15) -> list[str]:
    """The end of a log, for a message about why a process does not live."""
    try:
        with path.open("rb") as file:
            file.seek(max(path.stat().st_size - 8192, 0))
            return file.read().decode(errors="replace").splitlines()[-count:]
    except OSError:
        return []


async def end(process: asyncio.subprocess.Process, grace_s: float) -> None:
    """SIGTERM, then SIGKILL to the whole group after `grace_s` seconds. Returns when the process is gone."""
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(grace_s):
            await process.wait()
    kill_group(process.pid)
    await process.wait()


def kill_group(pid: int) -> None:
    """End what is left of a child's group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def python(module: str, *arguments: str) -> tuple[str, ...]:
    """The command that runs a module with this Python."""
    return (sys.executable, "-m", module, *arguments)
