"""Keeps the processes of a local Raybus running: starts them in the order of their needs, restarts what ends, ends all in turn.

The state file tells others (`raybus status`) what runs; it is replaced as a whole at each change. No child outlives the
supervisor, not even one that is killed: the kernel sees to that (raybus.runtime.child).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import orjson

from raybus.observe.logging import get_logger
from raybus.runtime import child
from raybus.runtime.child import ProcessSpec

BACK_OFF_S = 0.2
BACK_OFF_MAX_S = 10.0
QUICK_FAILURES_MAX = 5
STEADY_S = 30.0  # a process that lived this long begins with a clean record
READY_POLL_S = 0.05
LIVES_S = 0.5
EXIT_USAGE = 2  # a process that does not understand its settings will not the next time either


class SupervisorError(Exception):
    """A process does not come up; the text names it and has the end of its log."""


@dataclass(slots=True)
class _Child:
    spec: ProcessSpec
    process: asyncio.subprocess.Process | None = None
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    settled: asyncio.Event = field(default_factory=asyncio.Event)  # ready for the first time, or given up
    restarts: int = 0
    failures: int = 0  # in a row, for the back-off
    quick: int = 0  # in a row without having been ready
    gave_up: str = ""
    keeper: asyncio.Task[None] | None = None


class Supervisor:
    """`await start()`, then `await stop()`. Specs are given in an order that suits depends_on."""

    def __init__(self, specs: Sequence[ProcessSpec], state_file: Path, *, grace_s: float = 10.0) -> None:
        self._children = {spec.name: _Child(spec) for spec in specs}
        self._depth: dict[str, int] = {}
        for spec in specs:
            unknown = [name for name in spec.depends_on if name not in self._depth]
            if unknown:
                raise ValueError(f"{spec.name} depends on {', '.join(unknown)}, which must be named before it")
            self._depth[spec.name] = 1 + max((self._depth[name] for name in spec.depends_on), default=-1)
        self._state_file = state_file
        self._grace_s = grace_s
        self._stopping = asyncio.Event()
        self._gave_up = asyncio.Event()
        self._session: aiohttp.ClientSession | None = None
        self._log = get_logger()

    async def start(self) -> None:
        """Start all; returns when all are ready. Raises SupervisorError if one does not come up; then all are stopped."""
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2.0))
        for one in self._children.values():
            one.keeper = asyncio.create_task(self._keep(one), name=f"keep {one.spec.name}")
        self._state_file.parent.mkdir(parents=True, exist_ok=True)
        self._replace_state()
        waiting = asyncio.gather(*(one.settled.wait() for one in self._children.values()))
        gave_up = asyncio.ensure_future(self._gave_up.wait())
        try:
            await asyncio.wait((waiting, gave_up), return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
            gave_up.cancel()
            await asyncio.gather(waiting, gave_up, return_exceptions=True)
        if self._gave_up.is_set():
            error = self._error()
            await self.stop()
            raise error

    async def all_ready(self) -> dict[str, bool]:
        """Ask each process now."""
        names = list(self._children)
        answers = await asyncio.gather(*(self._is_ready_now(self._children[name]) for name in names))
        return dict(zip(names, answers, strict=True))

    async def stop(self) -> None:
        """SIGTERM to all, the ones that others need last; SIGKILL after the grace time. Nothing runs afterwards."""
        self._stopping.set()
        for depth in sorted(set(self._depth.values()), reverse=True):
            level = [one for one in self._children.values() if self._depth[one.spec.name] == depth]
            await asyncio.gather(*(self._end(one) for one in level))
        if self._session:
            await self._session.close()
        self._write_state()

    async def _end(self, one: _Child) -> None:
        if one.process and one.process.returncode is None:
            await child.end(one.process, self._grace_s)
        if one.keeper:
            one.keeper.cancel()
            await asyncio.gather(one.keeper, return_exceptions=True)
        one.ready.clear()
        one.process = None

    # One child

    async def _keep(self, one: _Child) -> None:
        for name in one.spec.depends_on:
            await self._children[name].ready.wait()
        loop = asyncio.get_running_loop()
        while not self._stopping.is_set():
            began = loop.time()
            was_ready = await self._run_once(one)
            if self._stopping.is_set():
                return
            steady = loop.time() - began > STEADY_S
            one.failures = 1 if steady else one.failures + 1
            one.quick = 0 if was_ready else one.quick + 1
            # What ran once is started again for ever: giving it up would take everything else down with it.
            if not one.settled.is_set() and (one.gave_up or one.quick >= QUICK_FAILURES_MAX):
                self._give_up(one)
                return
            one.restarts += 1
            self._write_state()
            await asyncio.sleep(min(BACK_OFF_S * 2.0 ** (one.failures - 1), BACK_OFF_MAX_S))

    async def _run_once(self, one: _Child) -> bool:
        """Start the process and wait for its end; True if it had been ready."""
        spec = one.spec
        try:
            process = one.process = await child.spawn(spec)
        except OSError as error:
            one.gave_up = f"cannot start {spec.argv[0]}: {error.strerror}"
            return False
        self._log.info("started", process=spec.name, pid=process.pid)
        self._write_state()
        was_ready = False
        if await self._becomes_ready(one, process):
            was_ready = True
            one.gave_up = ""
            one.ready.set()
            one.settled.set()
            self._write_state()
            await process.wait()
        one.ready.clear()
        child.kill_group(process.pid)
        code = await process.wait()
        one.process = None
        if not self._stopping.is_set():
            self._log.warning("ended", process=spec.name, pid=process.pid, code=code)
            if code == EXIT_USAGE and not one.settled.is_set():
                one.gave_up = "it refuses its settings"
        return was_ready

    async def _becomes_ready(self, one: _Child, process: asyncio.subprocess.Process) -> bool:
        """False if it ended before, or is not ready in time."""
        try:
            if not (one.spec.ready_url or one.spec.ready_file):
                await asyncio.sleep(LIVES_S)
            async with asyncio.timeout(one.spec.ready_timeout_s):
                while process.returncode is None:
                    if await self._is_ready_now(one):
                        return True
                    await asyncio.sleep(READY_POLL_S)
        except TimeoutError:
            if not one.settled.is_set():
                one.gave_up = f"not ready within {one.spec.ready_timeout_s:g} s"
        return False

    async def _is_ready_now(self, one: _Child) -> bool:
        if one.process is None or one.process.returncode is not None:
            return False
        if one.spec.ready_file:
            return one.spec.ready_file.exists()
        if not one.spec.ready_url or self._session is None:
            return True
        with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError):
            # Only readiness of our own process on loopback is asked: its certificate does not matter.
            async with self._session.get(one.spec.ready_url, ssl=False) as response:
                return response.status == 200
        return False

    def _give_up(self, one: _Child) -> None:
        one.gave_up = one.gave_up or f"it ended {one.quick} times before it was ready"
        self._log.error("giving up", process=one.spec.name, reason=one.gave_up)
        one.settled.set()
        self._gave_up.set()
        self._write_state()

    def _error(self) -> SupervisorError:
        one = next(one for one in self._children.values() if one.gave_up)
        lines = child.last_lines(one.spec.log_file)
        tail = "".join(f"\n    {line}" for line in lines) or "\n    (it wrote nothing)"
        return SupervisorError(
            f"{one.spec.name} does not run: {one.gave_up}. Its log, {one.spec.log_file}, ends:{tail}"
        )

    def _write_state(self) -> None:
        """Not where the file was removed, with its folder perhaps, or is another supervisor's by now."""
        with contextlib.suppress(FileNotFoundError, orjson.JSONDecodeError):
            if orjson.loads(self._state_file.read_bytes())["supervisor"] == os.getpid():
                self._replace_state()

    def _replace_state(self) -> None:
        services = [
            {
                "name": one.spec.name,
                "pid": one.process.pid if one.process else None,
                "ready": one.ready.is_set(),
                "readyUrl": one.spec.ready_url,
                "ports": dict(one.spec.ports),
                "logFile": str(one.spec.log_file),
                "restarts": one.restarts,
                "problem": one.gave_up,
            }
            for one in self._children.values()
        ]
        body = {"supervisor": os.getpid(), "stopping": self._stopping.is_set(), "services": services}
        scratch = self._state_file.with_suffix(".tmp")
        scratch.write_bytes(orjson.dumps(body, option=orjson.OPT_INDENT_2))
        scratch.replace(self._state_file)
