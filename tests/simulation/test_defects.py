"""Each planted defect is caught, by one of the invariants that it violates, within 2,000 schedules of a seed that is drawn anew."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from simulation.sim.defects.registry import ALL, Defect

TESTS = Path(__file__).parents[1]
LIMIT_S = 600


@pytest.mark.night  # each takes up to 2,000 schedules: minutes
@pytest.mark.timeout(LIMIT_S + 30)
@pytest.mark.parametrize("defect", ALL.values(), ids=lambda defect: defect.name)
def test_a_planted_defect_is_caught(defect: Defect) -> None:
    seed = secrets.randbelow(1_000_000) + 1
    done = subprocess.run(
        [sys.executable, "-m", "simulation.sim", "catch", "--defect", defect.name, "--first", str(seed)],
        cwd=TESTS,
        env=os.environ | {"PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    print(done.stdout)

    assert done.returncode == 0, f"seed {seed}: {defect.about}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
