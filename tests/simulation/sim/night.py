"""The long runs: pairs of faults, single faults and random mixes, over nights; goes on where it was stopped.

All pairs of the core scenario are more than one night has: they come in an order that begins with an example of every two kinds of
faults, and whoever gives it nights enough (`--count`) gets all of them.

What may live here: which part of the work is due, and the ledger of what is done.
"""

from __future__ import annotations

import itertools
import os
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
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
CORE = "core"
COUNTED = ("kinds", "points", "pairs", "reached")


@dataclass(slots=True)
class Ledger:
    """How far a night is. Counted are kinds of faults, fault points, pairs of kinds and what was reached, by name."""

    done: int = 0
    cpu: float = 0.0
    counts: dict[str, Counter[str]] = field(default_factory=lambda: {name: Counter() for name in COUNTED})
    failures: list[dict[str, Any]] = field(default_factory=list)  # message, and schedule as JSON

    @staticmethod
    def load() -> Ledger:
        if not LEDGER.exists():
            return Ledger()
        found = orjson.loads(LEDGER.read_bytes())
        counts = {name: Counter(found["counts"][name]) for name in COUNTED}
        return Ledger(found["done"], found["cpu"], counts, found["failures"])

    def save(self) -> None:
        found = {"done": self.done, "cpu": self.cpu, "counts": self.counts, "failures": self.failures}
        LEDGER.with_suffix(".new").write_bytes(orjson.dumps(found))
        LEDGER.with_suffix(".new").replace(LEDGER)

    def note(self, result: Result) -> None:
        self.done += 1
        self.counts["kinds"].update(explore.kind_of(fault) for fault in result.taken)
        self.counts["points"].update(explore.point_of(fault) for fault in result.taken)
        self.counts["reached"].update(result.marks)
        if result.schedule.scenario == CORE and len(result.schedule.faults) == 2 and len(result.taken) == 2:
            first, second = (explore.kind_of(fault) for fault in result.schedule.faults)
            self.counts["pairs"][f"{first} + {second}"] += 1
        if result.invariant:
            self.failures.append({"message": result.message, "schedule": explore.explicit(result).to_json()})


def schedules(recorded: dict[str, Result], seed: int) -> Iterator[Schedule]:
    """Without end, the same for the same seed: by turns mixes and single faults of each scenario, and pairs of the core scenario."""
    chance = Random(f"{seed}/night")
    pairs = explore.every_pair(explore.possible(recorded[CORE]), chance)
    number = seed
    while True:
        for name, result in recorded.items():
            number += 1
            fault = chance.choice(explore.possible(result))
            yield from explore.swarm(name, number, 1)
            if not SCENARIOS[name].calm:
                yield Schedule(name, number, (fault,))
            yield from (Schedule(CORE, 0, pair) for pair in itertools.islice(pairs, 1))


def run(count: int, first: int, minutes: float) -> int:
    ledger, zygote = Ledger.load(), Zygote()
    wanted, began, before = count or SCHEDULES, time.monotonic(), ledger.cpu
    recorded = {name: zygote.result(Schedule(name), record=True) for name in SCENARIOS}
    for schedule in itertools.islice(schedules(recorded, first), ledger.done, None):
        if ledger.done >= wanted or (minutes and time.monotonic() - began > minutes * 60):
            break
        result = zygote.result(schedule)
        ledger.note(result)
        ledger.cpu = before + zygote.cpu_s
        if result.invariant:
            print(tell.failure(result), flush=True)
        if ledger.done % SAVE_EVERY == 0:
            ledger.save()
            print(_line(ledger, wanted), flush=True)
    ledger.save()
    print(summary(ledger, wanted, recorded))
    return int(bool(ledger.failures))


def _line(ledger: Ledger, wanted: int) -> str:
    speed = ledger.done / max(ledger.cpu, 0.001) * 60
    return f"{ledger.done} of {wanted} schedules, {speed:.0f} per minute of a core, {len(ledger.failures)} failed"


def summary(ledger: Ledger, wanted: int, recorded: dict[str, Result]) -> str:
    from simulation.sim.invariants.marks import EDGES

    counts = ledger.counts
    known = {explore.point_of(fault) for result in recorded.values() for fault in explore.possible(result)}
    of_core = sorted({explore.kind_of(fault) for fault in explore.possible(recorded[CORE])})
    points = sorted(known - set(counts["points"]))
    edges = [edge for edge in EDGES if not counts["reached"][edge]]
    lines = [_line(ledger, wanted), "", "faults that happened:"]
    lines += [f"  {number:8d}  {name}" for name, number in sorted(counts["kinds"].items())]
    lines += ["", f"kinds of faults that never happened: {', '.join(tell.never(counts['kinds'])) or 'none'}"]
    lines += [
        f"fault points of the calm runs: {len(known) - len(points)} of {len(known)}",
        f"  never: {', '.join(points) or 'none'}",
    ]
    lines += [
        f"pairs of kinds in the core scenario: {len(counts['pairs'])} of {len(of_core) ** 2} (some exclude each other)"
    ]
    lines += [f"edges that were never taken: {', '.join(edges) or 'none'}", f"ledger: {LEDGER}"]
    return "\n".join(lines)
