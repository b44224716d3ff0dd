"""Runs schedules, each in a child of a process that has everything booted already: the same beginning for all, for the price of a fork.

What may live here: forking and the way of results back.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import traceback
from asyncio import events
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import orjson

from simulation.sim import faults as faults_of
from simulation.sim.faults import Fault
from simulation.sim.run import Result, Schedule, build, run
from simulation.sim.scenarios import SCENARIOS
from simulation.sim.world import World

HUNG_S = 120.0
BROKEN = "O0"  # the simulator's own trouble, or a run that hangs


class Zygote:
    """`result(schedule)` forks. Worlds are booted when first asked for; nothing of them is ever collected."""

    def __init__(self, *, detailed: bool = False) -> None:
        self._detailed = detailed
        self._worlds: dict[str, World] = {}
        self._kept: list[World] = []

    def warm(self, scenario: str) -> World:
        """The booted world of a scenario. One run before makes Python's own caches warm for all children."""
        if scenario not in self._worlds:
            if not self._detailed:
                used = build(SCENARIOS[scenario])
                run(used, Schedule(scenario))
                self._kept.append(used)
            self._worlds[scenario] = build(SCENARIOS[scenario], detailed=self._detailed)
            gc.collect()
            gc.freeze()
            gc.disable()
        return self._worlds[scenario]

    def result(self, schedule: Schedule, *, record: bool = False) -> Result:
        world = self.warm(schedule.scenario)
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read)
            _be_the_child(world, schedule, write, record=record)
        os.close(write)
        data = _read_all(read, child)
        os.close(read)
        os.waitpid(child, 0)
        return decoded(schedule, data)

    def branches(self, scenario: str, select: Callable[[Fault], bool], *, depth: int = 1) -> Iterator[Result]:
        """The calm run with each fault that `select` takes, or with each pair (`depth` 2), as one tree: what comes before a fault
        is run once for all that can go wrong there.
        """
        world = self.warm(scenario)
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read)
            _Branches(world, scenario, select, write).run(depth)
        os.close(write)
        with os.fdopen(read, "rb") as stream:
            while size := stream.read(8):
                found = orjson.loads(stream.read(int.from_bytes(size, "big")))
                faults = tuple(faults_of.from_json(each) for each in found.pop("faults"))
                yield decoded(Schedule(scenario, faults=faults), orjson.dumps(found))
        os.waitpid(child, 0)

    def results(self, schedules: Iterable[Schedule]) -> Iterator[Result]:
        return (self.result(schedule) for schedule in schedules)


class _Branches:
    """In the child: a run that forks where something can go wrong. Every process of the tree writes its own result."""

    def __init__(self, world: World, scenario: str, select: Callable[[Fault], bool], write: int) -> None:
        self._world, self._scenario, self._select, self._write = world, scenario, select, write
        self._faults: tuple[Fault, ...] = ()
        self._left = 0

    def run(self, depth: int) -> None:
        """Never returns."""
        self._left = depth
        try:
            data = orjson.loads(encoded(run(self._world, Schedule(self._scenario), branch=self._takes)))
        except BaseException:  # noqa: BLE001 - whatever it is, the parent tells it
            data = {"invariant": BROKEN, "message": traceback.format_exc()}
        if self._faults:
            self._tell(data)
        os._exit(0)

    def _takes(self, fault: Fault) -> bool:
        if not self._left or not self._select(fault):
            return False
        child = os.fork()
        if child == 0:
            signal.alarm(int(HUNG_S))
            events._set_running_loop(self._world.loop)  # asyncio keeps it for one process id
            self._faults = (*self._faults, fault)
            self._left -= 1
            return True
        _, status = os.waitpid(child, 0)
        if status:
            self._faults, before = (*self._faults, fault), self._faults
            self._tell({"invariant": BROKEN, "message": f"the run ended with {status}: it hangs, or was killed"})
            self._faults = before
        return False

    def _tell(self, found: dict[str, Any]) -> None:
        data = orjson.dumps({**found, "faults": [faults_of.to_json(fault) for fault in self._faults]})
        try:
            _write_all(self._write, len(data).to_bytes(8, "big") + data)
        except BrokenPipeError:  # nobody wants to know any more
            os._exit(0)


def _write_all(write: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(write, view) :]


def _be_the_child(world: World, schedule: Schedule, write: int, *, record: bool) -> None:
    """Never returns."""
    try:
        result = run(world, schedule, record=record)
        data = encoded(result)
    except BaseException:  # noqa: BLE001 - whatever it is, the parent tells it
        data = orjson.dumps({"invariant": BROKEN, "message": traceback.format_exc()})
    _write_all(write, data)
    os._exit(0)


def _read_all(read: int, child: int) -> bytes:
    parts = []
    while True:
        ready, _, _ = select.select([read], [], [], HUNG_S)
        if not ready:
            os.kill(child, signal.SIGKILL)
            return orjson.dumps({"invariant": BROKEN, "message": f"no end within {HUNG_S:g} s of real time"})
        part = os.read(read, 1 << 20)
        if not part:
            return b"".join(parts)
        parts.append(part)


def encoded(result: Result) -> bytes:
    found: dict[str, Any] = {
        "invariant": result.invariant,
        "message": result.message,
        "digest": result.digest,
        "taken": [faults_of.to_json(fault) for fault in result.taken],
        "seconds": result.seconds,
        "steps": result.steps,
        "writes": result.writes,
        "story": result.story,
        "points": result.points,
        "marks": result.marks,
    }
    return orjson.dumps(found)


def decoded(schedule: Schedule, data: bytes) -> Result:
    found = orjson.loads(data or b'{"invariant": "O0", "message": "the child died"}')
    taken = tuple(faults_of.from_json(each) for each in found.pop("taken", ()))
    points = [(str(place), int(nth), str(sort)) for place, nth, sort in found.pop("points", ())]
    return Result(schedule, taken=taken, points=points, **found)
