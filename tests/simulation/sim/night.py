"""The long runs: every pair of faults and many random mixes, over nights; goes on where it was stopped.

What may live here: which part of the work is due, and the ledger of what is done.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import orjson

from simulation.sim import explore, tell
from simulation.sim.run import Result, Schedule
from simulation.sim.scenarios import SCENARIOS
from simulation.sim.zygote import Zygote

SCHEDULES = 150_000
LEDGER = Path(os.environ.get("RAYBUS_SIMULATION_LEDGER", "/tmp/raybus-simulation.json"))
SAVE_EVERY = 500


@dataclass(slots=True)
class Ledger:
    """How far a night is; `taken` counts kinds of faults, `marks` what was reached, `failures` are schedules as JSON."""

    done: int = 0
    cpu: float = 0.0
    taken: Counter[str] = field(default_factory=Counter)
    marks: Counter[str] = field(default_factory=Counter)
    failures: list[dict[str, Any]] = field(default_factory=list)

    @staticmethod
    def load() -> Ledger:
        if not LEDGER.exists():
            return Ledger()
        found = orjson.loads(LEDGER.read_bytes())
        return Ledger(found["done"], found["cpu"], Counter(found["taken"]), Counter(found["marks"]), found["failures"])

    def save(self) -> None:
        found = {
            "done": self.done,
            "cpu": self.cpu,
            "taken": self.taken,
            "marks": self.marks,
            "failures": self.failures,
        }
        LEDGER.with_suffix(".new").write_bytes(orjson.dumps(found))
        LEDGER.with_suffix(".new").replace(LEDGER)


def schedules(zygote: Zygote, seed: int) -> Iterator[Schedule]:
    """Without end, the same for the same seed: by turns a mix, a single fault and a pair, of each scenario."""
    chance = Random(f"{seed}/night")
    recorded = {name: zygote.result(Schedule(name), record=True) for name in SCENARIOS}
    number = seed
    while True:
        for name in SCENARIOS:
            number += 1
            first = chance.choice(explore.possible(recorded[name]))
            second = chance.choice(explore.after(recorded[name], first) or [first])
            yield Schedule(name, number, swarm=True)
            yield Schedule(name, number, (first,))
            yield replace(recorded[name].schedule, faults=tuple(dict.fromkeys((first, second))))


def run(count: int, first: int, minutes: float) -> int:
    ledger, zygote = Ledger.load(), Zygote()
    wanted, began, cpu = count or SCHEDULES, time.monotonic(), sum(os.times()[:4])
    before = ledger.cpu
    for number, schedule in enumerate(schedules(zygote, first)):
        if number < ledger.done:
            continue
        if ledger.done >= wanted or (minutes and time.monotonic() - began > minutes * 60):
            break
        _note(ledger, zygote.result(schedule))
        ledger.cpu = before + sum(os.times()[:4]) - cpu
        if ledger.done % SAVE_EVERY == 0:
            ledger.save()
            print(_line(ledger, wanted), flush=True)
    ledger.save()
    print(summary(ledger, wanted))
    return int(bool(ledger.failures))


def _note(ledger: Ledger, result: Result) -> None:
    ledger.done += 1
    ledger.taken += tell.numbers([result])
    ledger.marks += Counter(result.marks)
    if result.invariant:
        ledger.failures.append({"message": result.message, "schedule": explore.explicit(result).to_json()})
        print(tell.failure(result), flush=True)


def _line(ledger: Ledger, wanted: int) -> str:
    speed = ledger.done / max(ledger.cpu, 0.001) * 60
    return f"{ledger.done} of {wanted} schedules, {speed:.0f} per minute of a core, {len(ledger.failures)} failed"


def summary(ledger: Ledger, wanted: int) -> str:
    from simulation.sim.invariants.marks import EDGES

    missing = tell.never(ledger.taken)
    edges = [edge for edge in EDGES if not ledger.marks[edge]]
    lines = [_line(ledger, wanted), "", "faults that happened:"]
    lines += [f"  {number:8d}  {name}" for name, number in sorted(ledger.taken.items())]
    lines += ["", f"kinds of faults that never happened: {', '.join(missing) or 'none'}"]
    lines += [f"edges that were never taken: {', '.join(edges) or 'none'}", f"ledger: {LEDGER}"]
    return "\n".join(lines)
