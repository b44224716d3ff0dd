"""One schedule: begin, act, heal, converge, be silent; and what came of it.

What may live here: the course of a run.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import structlog

from simulation.sim import faults as faults_of
from simulation.sim.faults import Fault
from simulation.sim.invariants import registry
from simulation.sim.invariants.violation import Violation
from simulation.sim.loop import HotLoopError, _process
from simulation.sim.scenarios import SCENARIOS, Scenario
from simulation.sim.story import dropped, keep_errors, log_into
from simulation.sim.world import World

ACTING_MAX_S = 200.0
SETTLED_S = 5.0  # without a write, before it is watched
QUIET_S = 25.0
LONG_QUIET_S = 120.0  # where nothing went wrong at all


@dataclass(frozen=True, slots=True)
class Schedule:
    """All that a run depends on. `swarm`: faults are drawn from the seed, beside those given. Seed 0 is the calm one."""

    scenario: str
    seed: int = 0
    faults: tuple[Fault, ...] = ()
    swarm: bool = False

    def to_json(self) -> dict[str, Any]:
        return {
            "scenario": self.scenario,
            "seed": self.seed,
            "swarm": self.swarm,
            "faults": [faults_of.to_json(fault) for fault in self.faults],
        }

    @staticmethod
    def from_json(found: dict[str, Any]) -> Schedule:
        given = tuple(faults_of.from_json(each) for each in found.get("faults") or ())
        return Schedule(found["scenario"], int(found.get("seed", 0)), given, bool(found.get("swarm")))


@dataclass(slots=True)
class Result:
    """`invariant` is the id of the first one violated, "" if all hold. `taken` are the faults that happened."""

    schedule: Schedule
    invariant: str = ""
    message: str = ""
    digest: str = ""
    taken: tuple[Fault, ...] = ()
    seconds: float = 0.0  # virtual
    steps: int = 0
    writes: int = 0
    story: list[str] = field(default_factory=list)
    points: list[tuple[str, int, str]] = field(default_factory=list)
    marks: dict[str, int] = field(default_factory=dict)


def build(scenario: Scenario, *, detailed: bool = False) -> World:
    """A booted world."""
    world = World(scenario.services, builtin=scenario.builtin, detailed=detailed)
    world.trouble.aim_at(scenario.controller)
    errors = keep_errors(world.errors)
    if detailed:
        structlog.configure(
            processors=[errors, log_into(world.story, lambda: _process.get(world.outside).name)],
            wrapper_class=structlog.make_filtering_bound_logger(20),
            logger_factory=structlog.ReturnLoggerFactory(),
        )
    else:
        structlog.configure(
            processors=[errors, dropped],
            wrapper_class=structlog.make_filtering_bound_logger(40),
            logger_factory=structlog.ReturnLoggerFactory(),
        )
    world.boot()
    return world


def run(
    world: World, schedule: Schedule, *, record: bool = False, branch: Callable[[Fault], bool] | None = None
) -> Result:
    """Run a schedule in a booted world, which is used up by it. `branch`: see Faults.branch."""
    gc.disable()  # collecting at a time of its own choosing would run finalizers
    scenario = SCENARIOS[schedule.scenario]
    world.watchers = registry.fresh(scenario.name)
    world.begin(schedule.seed, schedule.faults, swarm=schedule.swarm, record=record)
    world.faults.branch(branch)
    result = Result(schedule)
    began = world.loop.now
    try:
        world.loop.run(_course(world, scenario))
    except Violation as violation:
        result.invariant, result.message = violation.invariant, str(violation)
    except HotLoopError as error:
        result.invariant, result.message = "X7", str(error)
    result.digest = world.story.digest
    result.taken = tuple(world.faults.taken)
    result.seconds, result.steps, result.writes = world.loop.now - began, world.loop.steps, world.writes
    result.story = world.story.lines
    result.points = world.faults.seen
    result.marks = dict(world.marks)
    return result


async def _course(world: World, scenario: Scenario) -> None:
    acting = world.outside.spawn(_act(world, scenario))
    world.trouble.start()
    while not acting.done():
        world.check()
        await asyncio.sleep(0.05)
    acting.result()
    world.heal()
    healed = world.loop.now
    while problem := scenario.matches(world):
        world.check()
        if world.loop.now - healed > scenario.bound_s:
            raise Violation("X2", f"{scenario.bound_s:g} s after the last fault: {problem}")
        await asyncio.sleep(0.25)
    world.story.tell("world", "everything is as wanted")
    await _silence(world, scenario, QUIET_S if world.faults.taken else LONG_QUIET_S)
    for watcher in world.watchers:
        watcher.at_end(world)


async def _act(world: World, scenario: Scenario) -> None:
    async with asyncio.timeout(ACTING_MAX_S):
        await scenario.act(world)


async def _silence(world: World, scenario: Scenario, quiet_s: float) -> None:
    """What was under way may come to its end; then nothing is written any more."""
    ends = world.loop.now + scenario.bound_s
    while world.loop.now - world.last_change < SETTLED_S or world.hangs() or not world.is_settled():
        world.check()
        if world.loop.now > ends:
            raise Violation("X1", f"still writing {scenario.bound_s:g} s after all was as wanted")
        await asyncio.sleep(1.0)
    world.story.tell("world", "from here on nothing may be written")
    before, until = world.writes, world.loop.now + quiet_s
    while world.loop.now < until:
        await asyncio.sleep(5.0)
        world.check()
        if world.writes != before:
            raise Violation("X1", f"{world.writes - before} writes although nothing had changed")
    if problem := scenario.matches(world):
        raise Violation("X2", f"it did not stay so: {problem}")
