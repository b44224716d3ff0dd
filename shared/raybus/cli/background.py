"""A command's long-lived process: one per folder, started in the background or stayed in, found again by its record.

The record says which process it is, how far it is and what went wrong, so that whoever started it can tell the user.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import signal
import subprocess
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from raybus.cli.errors import EXIT_ENVIRONMENT, UserError
from raybus.cli.folder import read_json, write_atomically

START_S = 150.0
STOP_S = 60.0
LOOK_S = 0.05
LOST_LOOK_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """`command` is what the user typed, for messages; `log` is where the process writes."""

    command: str
    root: Path
    record: Path
    log: Path

    def running(self) -> dict[str, Any]:
        """The record of the process that runs now; {} if none does. A pid that belongs to another process by now does not count."""
        record = read_json(self.record)
        return record if record and start_ticks(record["pid"]) == record["start_ticks"] else {}


def start_ticks(pid: int) -> str:
    """When the process began, in the kernel's ticks: with the pid it names one process for good. Empty if there is none.

    One that has ended counts as none, even if nobody has waited for it: in a container without an init process that can last.
    """
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return "" if state in "ZX" else fields[18]


def spawn(place: Place, command: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start the process in a session of its own. If another one of the folder is faster, it ends by itself."""
    with place.log.open("ab") as log:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)


def until_ready(place: Place, child: subprocess.Popen[bytes] | None) -> dict[str, Any]:
    """The record once all is ready. UserError with the process' own words if it does not get there.

    `child` is what was started for it, None if something ran already. Where another one won the folder, that one is waited for.
    """
    ends = time.monotonic() + START_S
    while time.monotonic() < ends:
        ended = child is None or child.poll() is not None
        record = place.running()
        if record.get("phase") == "ready":
            return record
        if ended and not record:
            last = read_json(place.record)  # may be older than a child that did not get so far
            if (error := last.get("error")) and (child is None or child.pid == last["pid"]):
                raise UserError(error["message"], error["hint"], error["code"])
            code = f" with code {child.returncode}" if child else ""
            raise UserError(f"what ran in {place.root} has ended{code}", f"its log: {place.log}", EXIT_ENVIRONMENT)
        time.sleep(LOOK_S)
    raise UserError(f"not ready after {START_S:.0f} s", f"see the logs in {place.log.parent}", EXIT_ENVIRONMENT)


def stop(place: Place) -> bool:
    """End the process and all it started; False if none runs. UserError if it does not end."""
    record = place.running()
    if not record:
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(record["pid"], signal.SIGTERM)
    ends = time.monotonic() + STOP_S
    while start_ticks(record["pid"]) == record["start_ticks"]:
        if time.monotonic() > ends:
            raise UserError(f"process {record['pid']} does not end", f"see {place.log}", EXIT_ENVIRONMENT)
        time.sleep(LOOK_S)
    return True


@dataclass(slots=True)
class Foreground:
    """The long-lived process itself. `facts` stand in its record for others to read."""

    place: Place
    facts: Mapping[str, Any] = field(default_factory=dict)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, serve: Callable[[Foreground], Awaitable[None]]) -> None:
        """Serve until SIGTERM or SIGINT. What goes wrong is recorded for who waits, and raised as UserError."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stopping.set)
        with self._alone():
            self._record("starting")
            watching = asyncio.create_task(self._stop_when_lost(), name="record")
            try:
                await serve(self)
            except UserError as error:
                self._record("failed", {"message": error.message, "hint": error.hint, "code": error.code})
                raise
            finally:
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)
            if self._found():
                self.place.record.unlink(missing_ok=True)

    def _found(self) -> bool:
        """Whether others can still find this process."""
        return read_json(self.place.record).get("pid") == os.getpid()

    async def _stop_when_lost(self) -> None:
        """End once the folder was removed: nobody could find this process any more to stop it."""
        while self._found():
            await asyncio.sleep(LOST_LOOK_S)
        self.stopping.set()

    async def unless_stopped(self, work: Coroutine[Any, Any, None]) -> None:
        """Do the work unless SIGTERM comes first."""
        doing = asyncio.create_task(work, name="start")
        stopped = asyncio.create_task(self.stopping.wait(), name="stop")
        try:
            await asyncio.wait({doing, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if doing.done():
                doing.result()
        finally:
            doing.cancel()
            stopped.cancel()
            await asyncio.gather(doing, stopped, return_exceptions=True)

    def ready(self) -> None:
        """Tell those who wait that all is there."""
        self._record("ready")

    def _record(self, phase: str, error: Mapping[str, Any] | None = None) -> None:
        mine = {"pid": os.getpid(), "start_ticks": start_ticks(os.getpid())}
        write_atomically(self.place.record, json.dumps({**mine, **self.facts, "phase": phase, "error": error}))

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the folder's lock; the kernel frees it when the process dies, however that goes."""
        with (self.place.root / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise UserError(
                    f"another {self.place.command} runs in {self.place.root}",
                    f"`{self.place.command} down --dir {self.place.root}` stops it; --dir chooses another folder",
                    EXIT_ENVIRONMENT,
                ) from None
            yield
