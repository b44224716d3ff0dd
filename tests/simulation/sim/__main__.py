"""python -m simulation.sim: the simulator from the command line.

run     one schedule in full detail, the same text each time
ci      what every change is checked with: the corpus, every single fault, and random mixes up to a number of schedules
night   all pairs of faults and many random mixes; goes on where it was stopped
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from random import Random

import orjson

from simulation.sim import corpus, explore, night, tell
from simulation.sim.defects import registry as defects
from simulation.sim.faults import Fault
from simulation.sim.run import Result, Schedule
from simulation.sim.scenarios import SCENARIOS
from simulation.sim.zygote import Zygote

# Every n-th single fault of a scenario, beside the first of each kind at each class of places.
CI_SINGLES = {"core": 1, "recreated": 50, "autoscaled": 50, "job-http": 50, "job-k8s": 50, "job-deleted": 50}
CI_MIXES = 20  # of each scenario
CATCH_SCHEDULES = 2000


def main() -> int:
    options = _options()
    if options.defect:
        defects.apply(options.defect)
    match options.command:
        case "run":
            return _run(options)
        case "ci":
            return _ci(options)
        case "catch":
            return _catch(options)
        case "night":
            return night.run(options.count, options.first, options.minutes)
    raise AssertionError(options.command)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="simulate", description=__doc__)
    parser.add_argument("command", choices=["run", "ci", "catch", "night"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--scenario", default="core", choices=sorted(SCENARIOS))
    parser.add_argument("--schedule", default="", help="a schedule as JSON, as a failure prints it")
    parser.add_argument("--first", type=int, default=1, help="the first seed of random mixes")
    parser.add_argument("--count", type=int, default=0, help="how many schedules; 0: the usual number")
    parser.add_argument("--minutes", type=float, default=0.0, help="stop after this time; 0: never")
    parser.add_argument("--defect", default="", choices=["", *sorted(defects.ALL)], help="plant this defect before")
    parser.add_argument("--brief", action="store_true", help="of a run only what is telling")
    return parser.parse_args()


def _run(options: argparse.Namespace) -> int:
    given = Schedule.from_json(orjson.loads(options.schedule)) if options.schedule else None
    (drawn,) = explore.swarm(options.scenario, options.seed, 1) if options.seed else (Schedule(options.scenario),)
    schedule = given or drawn
    result = Zygote(detailed=True).result(schedule)
    print(tell.story(result, whole=not options.brief))
    print(
        f"\ndigest {result.digest}, {result.seconds:.1f} s of virtual time, {result.writes} writes, {result.steps} steps"
    )
    if result.invariant:
        print(tell.failure(result))
    return int(bool(result.invariant))


def _ci(options: argparse.Namespace) -> int:
    """The corpus, the calm runs, every single fault of the core scenario and a share of those of the others, mixes."""
    began, zygote, taken, done = time.monotonic(), Zygote(), Counter[str](), 0
    for result in _ci_results(zygote, options.first, options.count or CI_MIXES):
        done += 1
        taken += tell.numbers([result])
        if result.invariant:
            return _failed(result, options.defect)
    seconds = time.monotonic() - began
    print(
        f"{done} schedules in {seconds:.0f} s, {done / zygote.cpu_s * 60:.0f} per minute of a core; nothing was violated"
    )
    if missing := tell.never(taken):
        print(f"kinds of faults that did not happen: {', '.join(missing)}")
    return int(bool(missing))


def _ci_results(zygote: Zygote, first: int, mixes: int) -> Iterator[Result]:
    yield from zygote.results(entry.schedule for entry in corpus.entries())
    yield from zygote.results(Schedule(name) for name in SCENARIOS)
    for name, every in CI_SINGLES.items():
        yield from zygote.branches(name, every=every, first=first)
    watching = zygote.result(Schedule("core", faults=(Fault("kube.news pods @gateway-0", 1, "cut"),)), record=True)
    yield from zygote.results(explore.behind(watching, "kube.watch"))
    yield from zygote.results(explore.by_turns(*(explore.swarm(name, first, mixes) for name in SCENARIOS)))


def _catch(options: argparse.Namespace) -> int:
    """Until one of the invariants that the defect violates says so: calm, then single faults and mixes by turns, as the seed has it."""
    defect, zygote = defects.ALL[options.defect], Zygote()
    recorded = zygote.result(Schedule(defect.scenario), record=True)
    seed = options.seed or options.first
    singles = [schedule for schedule in explore.singles(recorded) if set(explore.groups(schedule)) & defect.groups]
    Random(f"{seed}/catch").shuffle(singles)
    mixes = explore.swarm(defect.scenario, seed, CATCH_SCHEDULES)
    pairs = explore.pairs(singles, Random(f"{seed}/pairs"))
    turns = itertools.chain((recorded.schedule,), explore.by_turns(singles, mixes, pairs))
    for number, schedule in enumerate(itertools.islice(turns, options.count or CATCH_SCHEDULES), 1):
        result = zygote.result(schedule)
        if result.invariant in defect.invariants:
            print(f"{defect.name}: caught by {result.invariant} with schedule {number} of seed {seed}")
            print(tell.failure(result))
            return 0
    print(f"{defect.name}: not caught with {options.count or CATCH_SCHEDULES} schedules of seed {seed}")
    return 1


def _failed(result: Result, defect: str) -> int:
    """Make it short, and tell its story."""
    short = explore.shortest(result, Zygote().result)
    print(tell.failure(result))
    print(f"\nshortest:\n{tell.failure(short)}\n", flush=True)
    schedule = orjson.dumps(replace(short.schedule, swarm=short.schedule.swarm).to_json()).decode()
    arguments = [sys.executable, "-m", "simulation.sim", "run", "--brief", "--schedule", schedule]
    os.spawnv(os.P_WAIT, sys.executable, [*arguments, "--defect", defect])
    return 1


def _end() -> None:
    """What is left of simulated worlds is not taken apart: that would run code of processes that are dead."""
    code = 2
    try:
        code = main()
    except Exception:  # noqa: BLE001 - told here, since nothing comes after it
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _end()
