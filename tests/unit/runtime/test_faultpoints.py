"""Fault points: where a test may have the process killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from raybus.runtime.faultpoints import armed, hit


def kills_at(environment: dict[str, str], *hits: str) -> list[int]:
    """Numbers of the hits at which the process would have died."""
    deaths: list[int] = []
    number = 0
    point = armed(environment, lambda: deaths.append(number))
    assert point
    for number, name in enumerate(hits):  # noqa: B007 - the kill above reads it
        point.hit(name)
    return deaths


def test_without_the_variable_nothing_is_armed() -> None:
    assert armed({}) is None
    hit("before:CreatePod")


def test_the_first_hit_of_the_named_point_kills() -> None:
    assert kills_at({"RAYBUS_FAULTPOINT": "after:CreatePod"}, "before:CreatePod", "after:CreatePod") == [1]


def test_a_count_names_the_hit_that_kills() -> None:
    assert kills_at({"RAYBUS_FAULTPOINT": "after:X:3"}, *["after:X"] * 4) == [2]


def test_a_count_below_one_is_an_error() -> None:
    with pytest.raises(ValueError, match="1 or more"):
        armed({"RAYBUS_FAULTPOINT": "after:X:0"})


def test_with_once_a_second_process_lives(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "RAYBUS_FAULTPOINT": "after:CreatePod",
        "RAYBUS_FAULTPOINT_ONCE": str(tmp_path / "done"),
    }
    program = [sys.executable, "-c", "from raybus.runtime.faultpoints import hit; hit('after:CreatePod')"]

    codes = [subprocess.run(program, env=environment, timeout=30, check=False).returncode for _ in range(2)]

    assert codes == [-signal.SIGKILL, 0]
