"""The simulator itself: one seed gives one run, whatever Python's hashes are; and what once failed does not fail again.

Each test starts a process of its own, because a simulated world is never taken apart.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from random import Random

import orjson
import pytest

from simulation.sim import corpus, explore
from simulation.sim.faults import CATALOGUE, Fault
from simulation.sim.scenarios import SCENARIOS

TESTS = Path(__file__).parents[1]
LIMIT_S = 110


def simulated(*arguments: str, hashes: str = "1") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "simulation.sim", *arguments],
        cwd=TESTS,
        env={**os.environ, "PYTHONHASHSEED": hashes},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


@pytest.mark.parametrize("scenario", sorted(SCENARIOS))
@pytest.mark.parametrize("seed", [5, 9])
def test_a_seed_gives_the_same_story_under_other_hashes(scenario: str, seed: int) -> None:
    first, second = (simulated("run", "--scenario", scenario, "--seed", str(seed), hashes=h) for h in ("1", "4711"))

    assert first.returncode == 0, first.stdout[-3000:] + first.stderr[-3000:]
    assert len(first.stdout.splitlines()) > 30
    assert first.stdout == second.stdout


@pytest.mark.parametrize("entry", corpus.entries(), ids=lambda entry: entry.name)
def test_what_once_failed_holds(entry: corpus.Entry) -> None:
    done = simulated("run", "--brief", "--schedule", orjson.dumps(entry.schedule.to_json()).decode())

    assert done.returncode == 0, f"{entry.about}\n{done.stdout[-6000:]}{done.stderr[-3000:]}"


def test_a_failure_tells_its_story() -> None:
    """With a planted defect that shows without any fault."""
    done = simulated("ci", "--defect", "delete-without-uid")

    assert done.returncode == 1
    assert "VIOLATED X6" in done.stdout
    assert "again: make simulate SEED=0 SCENARIO=core" in done.stdout
    assert "reason=group small has 2 workers and wants 1" in done.stdout


def test_the_sample_has_each_kind_of_fault_once_wherever_it_starts() -> None:
    faults = [
        Fault(f"{sort} pods @one", nth, kind.name)
        for nth in (1, 2, 3)
        for sort in CATALOGUE
        for kind in CATALOGUE[sort]
    ]
    for first in (0, 7):
        takes = explore.sample(50, first)
        taken = [fault for fault in faults if takes(fault)]
        assert {explore.kind_of(fault) for fault in taken} == {explore.kind_of(fault) for fault in faults}
        assert len(taken) < len(faults) / 2


def test_pairs_come_each_once_and_first_of_every_two_kinds() -> None:
    faults = [Fault(f"{place} x", nth, kind) for place in ("a", "b") for nth in (1, 2) for kind in ("k", "l")]
    pairs = list(explore.every_pair(faults, Random(3)))
    assert len(set(map(frozenset, pairs))) == len(pairs) == 24  # 28 without the 4 of one point
    kinds = [(explore.kind_of(first), explore.kind_of(second)) for first, second in pairs]
    assert len(set(kinds[: len(set(kinds))])) == len(set(kinds))
