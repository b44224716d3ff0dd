"""Schedules that once failed, each a file; replayed with every change.

What may live here: reading and writing them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import orjson

from simulation.sim.run import Result, Schedule

FOLDER = Path(__file__).parents[1] / "corpus"


@dataclass(frozen=True, slots=True)
class Entry:
    """`about` says in a sentence what was wrong; `invariant` is what it violated then."""

    name: str
    schedule: Schedule
    invariant: str
    about: str


def entries() -> list[Entry]:
    return [_read(path) for path in sorted(FOLDER.glob("*.json"))]


def _read(path: Path) -> Entry:
    found = orjson.loads(path.read_bytes())
    return Entry(path.stem, Schedule.from_json(found["schedule"]), found["invariant"], found["about"])


def write(result: Result, name: str, about: str) -> Path:
    path = FOLDER / f"{name}.json"
    found = {"about": about, "invariant": result.invariant, "schedule": result.schedule.to_json()}
    path.write_bytes(orjson.dumps(found, option=orjson.OPT_INDENT_2) + b"\n")
    return path
