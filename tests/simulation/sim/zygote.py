"""Runs schedules, each in a child of a process that has everything booted already: the same beginning for all, for the price of a fork.

What may live here: forking and the way of results back.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import traceback
from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from simulation.sim import faults as faults_of
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

    def results(self, schedules: Iterable[Schedule]) -> Iterator[Result]:
        return (self.result(schedule) for schedule in schedules)


def _be_the_child(world: World, schedule: Schedule, write: int, *, record: bool) -> None:
    """Never returns."""
    try:
        result = run(world, schedule, record=record)
        data = encoded(result)
    except BaseException:  # noqa: BLE001 - whatever it is, the parent tells it
        data = orjson.dumps({"invariant": BROKEN, "message": traceback.format_exc()})
    view = memoryview(data)
    while view:
        view = view[os.write(write, view) :]
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
