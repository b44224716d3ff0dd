"""What is printed: the story of a failing run, and sums of many.

What may live here: words. Nothing that runs anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import orjson

from simulation.sim.explore import kind_of
from simulation.sim.faults import CATALOGUE
from simulation.sim.run import Result, Schedule

LINES_BEFORE = 60


def command(schedule: Schedule) -> str:
    """How to see this schedule again in full detail."""
    if schedule.faults:
        return f"make simulate SCHEDULE='{orjson.dumps(schedule.to_json()).decode()}'"
    return f"make simulate SEED={schedule.seed} SCENARIO={schedule.scenario}"


def failure(result: Result) -> str:
    """What was violated, by which faults, and how to see it again."""
    lines = [
        f"VIOLATED {result.message or result.invariant}",
        f"  scenario {result.schedule.scenario}, seed {result.schedule.seed}",
    ]
    lines += [f"  fault: {fault}" for fault in result.taken] or ["  no faults"]
    return "\n".join([*lines, f"  again: {command(result.schedule)}"])


def story(result: Result, *, whole: bool = False) -> str:
    """The lines of a detailed run: all, or those around the violation."""
    lines = result.story
    if not whole:
        at = next((index for index, line in enumerate(lines) if "VIOLATED" in line), len(lines) - 1)
        lines = [line for line in lines[: at + 1] if is_telling(line)][-LINES_BEFORE:]
    return "\n".join(lines)


def is_telling(line: str) -> bool:
    """Whether a line is of interest for people who do not know yet where to look."""
    return not any(word in line for word in ("carrying out action=", "lease_", "watch_begins", "list_begins"))


def numbers(results: Iterable[Result]) -> Counter[str]:
    """How often each kind of fault happened."""
    return Counter(kind_of(fault) for result in results for fault in result.taken)


def never(taken: Counter[str]) -> list[str]:
    """Kinds of faults of the catalogue that never happened."""
    return [
        f"{sort} {kind.name}" for sort, kinds in CATALOGUE.items() for kind in kinds if not taken[f"{sort} {kind.name}"]
    ]
