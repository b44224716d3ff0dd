"""python -m simulation.sim: the simulator from the command line.

run     one schedule in full detail, the same text each time
ci      what every change is checked with: the corpus, every single fault, and random mixes up to a number of schedules
night   all pairs of faults and many random mixes; goes on where it was stopped
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from collections import Counter
from dataclasses import replace

import orjson

from simulation.sim import corpus, explore, night, tell
from simulation.sim.defects import registry as defects
from simulation.sim.run import Result, Schedule
from simulation.sim.scenarios import SCENARIOS
from simulation.sim.zygote import Zygote

CI_SCHEDULES = 1200


def main() -> int:
    options = _options()
    if options.defect:
        defects.apply(options.defect)
    match options.command:
        case "run":
            return _run(options)
        case "ci":
            return _ci(options)
        case "night":
            return night.run(options.count, options.first, options.minutes)
    raise AssertionError(options.command)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="simulate", description=__doc__)
    parser.add_argument("command", choices=["run", "ci", "night"])
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
    schedule = given or Schedule(options.scenario, options.seed, swarm=options.seed != 0)
    result = Zygote(detailed=True).result(schedule)
    print(tell.story(result, whole=not options.brief))
    print(
        f"\ndigest {result.digest}, {result.seconds:.1f} s of virtual time, {result.writes} writes, {result.steps} steps"
    )
    if result.invariant:
        print(tell.failure(result))
    return int(bool(result.invariant))


def _ci(options: argparse.Namespace) -> int:
    """The corpus and the calm runs of all scenarios; then single faults and mixes by turns, evenly over all of them."""
    began, zygote, taken, done = time.monotonic(), Zygote(), Counter[str](), 0
    wanted = options.count or CI_SCHEDULES
    for schedule in _ci_schedules(zygote, wanted, options.first):
        result = zygote.result(schedule)
        done += 1
        taken += tell.numbers([result])
        if result.invariant:
            return _failed(zygote, result, options.defect)
    seconds = time.monotonic() - began
    cpu = sum(os.times()[:4])
    print(f"{done} schedules in {seconds:.0f} s, {done / cpu * 60:.0f} per minute of a core; nothing was violated")
    if missing := tell.never(taken):
        print(f"kinds of faults that did not happen: {', '.join(missing)}")
    return 0


def _ci_schedules(zygote: Zygote, wanted: int, first: int) -> list[Schedule]:
    chosen = [entry.schedule for entry in corpus.entries()]
    for name in SCENARIOS:
        recorded = zygote.result(Schedule(name), record=True)
        chosen.append(recorded.schedule)
        chosen += explore.singles(recorded)
    mixes = max(wanted - len(chosen), wanted // 3)
    for name in SCENARIOS:
        chosen += explore.swarm(name, first, mixes // len(SCENARIOS))
    return chosen


def _failed(zygote: Zygote, result: Result, defect: str) -> int:
    """Make it short, and tell its story."""
    short = explore.shortest(result, zygote.result)
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
