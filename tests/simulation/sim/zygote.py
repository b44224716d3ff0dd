"""Runs schedules, each in a child of a process that has everything booted already: the same beginning for all, for the price of a fork.

The price grows with what the process holds, so there is one such process, a nest, for each scenario.

What may live here: forking and the way of results back.
"""

from __future__ import annotations

import gc
import os
import signal
import struct
import traceback
from asyncio import events
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, NoReturn

import orjson

from simulation.sim import faults as faults_of
from simulation.sim.explore import sample
from simulation.sim.faults import Fault
from simulation.sim.run import Result, Schedule, build, run
from simulation.sim.scenarios import SCENARIOS
from simulation.sim.world import World

HUNG_S = 120
BROKEN = "O0"  # the simulator's own trouble, or a run that hangs


class Zygote:
    """`result(schedule)` forks. Nests are made when first asked for, and end with this process."""

    def __init__(self, *, detailed: bool = False) -> None:
        self._detailed = detailed
        self._nests: dict[str, tuple[BinaryIO, BinaryIO]] = {}
        self._used: dict[str, float] = {}

    @property
    def cpu_s(self) -> float:
        """What all this has cost so far, the booting of nests included."""
        return sum(os.times()[:2]) + sum(self._used.values())

    def result(self, schedule: Schedule, *, record: bool = False) -> Result:
        (found,) = self._ask(schedule.scenario, {"schedule": schedule.to_json(), "record": record})
        return decoded(schedule, found)

    def branches(self, scenario: str, *, every: int = 1, first: int = 0) -> Iterator[Result]:
        """The calm run with each single fault of a sample, as one tree: what comes before a fault is run once for all that can go
        wrong there.
        """
        for found in self._ask(scenario, {"every": every, "first": first}):
            faults = tuple(faults_of.from_json(each) for each in found.pop("faults"))
            yield decoded(Schedule(scenario, faults=faults), found)

    def results(self, schedules: Iterable[Schedule]) -> Iterator[Result]:
        return (self.result(schedule) for schedule in schedules)

    def _ask(self, scenario: str, what: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if scenario not in self._nests:
            self._nests[scenario] = self._nest(scenario)
        requests, answers = self._nests[scenario]
        requests.write(orjson.dumps(what) + b"\n")
        requests.flush()
        while size := int.from_bytes(answers.read(8), "big"):
            yield orjson.loads(answers.read(size))
        (self._used[scenario],) = struct.unpack("d", answers.read(8))

    def _nest(self, scenario: str) -> tuple[BinaryIO, BinaryIO]:
        asked, requests = os.pipe()
        answers, answer = os.pipe()
        if os.fork() == 0:
            for mine in (requests, answers, *(each.fileno() for pair in self._nests.values() for each in pair)):
                os.close(mine)
            try:
                _serve(scenario, asked, answer, detailed=self._detailed)
            except BrokenPipeError:  # who asked is gone
                os._exit(0)
            except BaseException:  # noqa: BLE001 - said here: nothing comes after it
                traceback.print_exc()
                os._exit(1)
        os.close(asked)
        os.close(answer)
        return os.fdopen(requests, "wb"), os.fdopen(answers, "rb")


def _serve(scenario: str, asked: int, answer: int, *, detailed: bool) -> NoReturn:
    """A nest: a child for each request, until nobody asks any more."""
    world, _used = _warm(scenario, detailed=detailed)
    with os.fdopen(asked, "rb") as requests:
        for line in requests:
            if (child := os.fork()) == 0:
                _child(world, scenario, orjson.loads(line), answer)
            _, status = os.waitpid(child, 0)
            if status:
                _tell(answer, {**_broken(f"the run ended with {status}: it hangs, or was killed"), "faults": []})
            os.write(answer, bytes(8) + struct.pack("d", sum(os.times()[:4])))
    os._exit(0)


def _warm(scenario: str, *, detailed: bool) -> tuple[World, list[World]]:
    """A booted world. One run before, in another that is kept, makes Python's own caches warm for all children."""
    used = []
    if not detailed:
        used = [build(SCENARIOS[scenario])]
        run(used[0], Schedule(scenario))
        vars(used[0].api).clear()  # most of what it holds; what must not be taken apart are its processes
    world = build(SCENARIOS[scenario], detailed=detailed)
    gc.collect()
    gc.freeze()
    gc.disable()
    return world, used


def _child(world: World, scenario: str, what: dict[str, Any], answer: int) -> NoReturn:
    if "schedule" not in what:
        _Branches(world, scenario, what["every"], what["first"], answer).run()
    signal.alarm(HUNG_S)
    try:
        found = encoded(run(world, Schedule.from_json(what["schedule"]), record=what["record"]))
    except BaseException:  # noqa: BLE001 - whatever it is, the parent tells it
        found = _broken(traceback.format_exc())
    _tell(answer, found)
    os._exit(0)


def _broken(message: str) -> dict[str, Any]:
    return {"invariant": BROKEN, "message": message}


class _Branches:
    """In the child: a run that forks where something can go wrong. Every process of the tree writes its own result."""

    def __init__(self, world: World, scenario: str, every: int, first: int, answer: int) -> None:
        self._world, self._scenario, self._answer = world, scenario, answer
        self._select = sample(every, first)
        self._faults: tuple[Fault, ...] = ()

    def run(self) -> NoReturn:
        try:
            found = encoded(run(self._world, Schedule(self._scenario), branch=self._takes))
        except BaseException:  # noqa: BLE001 - whatever it is, the parent tells it
            found = _broken(traceback.format_exc())
        if self._faults:
            self._tell(found, self._faults)
        os._exit(0)

    def _takes(self, fault: Fault) -> bool:
        if self._faults or not self._select(fault):
            return False
        child = os.fork()
        if child == 0:
            signal.alarm(HUNG_S)
            events._set_running_loop(self._world.loop)  # asyncio keeps it for one process id
            self._faults = (fault,)
            return True
        _, status = os.waitpid(child, 0)
        if status:
            self._tell(_broken(f"the run ended with {status}: it hangs, or was killed"), (fault,))
        return False

    def _tell(self, found: dict[str, Any], faults: tuple[Fault, ...]) -> None:
        _tell(self._answer, {**found, "faults": [faults_of.to_json(fault) for fault in faults]})


def _tell(answer: int, found: dict[str, Any]) -> None:
    data = orjson.dumps(found)
    view = memoryview(len(data).to_bytes(8, "big") + data)
    try:
        while view:
            view = view[os.write(answer, view) :]
    except BrokenPipeError:  # nobody wants to know any more
        os._exit(0)


def encoded(result: Result) -> dict[str, Any]:
    return {
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


def decoded(schedule: Schedule, found: dict[str, Any]) -> Result:
    found.pop("faults", None)
    taken = tuple(faults_of.from_json(each) for each in found.pop("taken", ()))
    points = [(str(place), int(nth), str(sort)) for place, nth, sort in found.pop("points", ())]
    return Result(schedule, taken=taken, points=points, **found)
