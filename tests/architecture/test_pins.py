"""Exact versions: all that an installation for development takes is in constraints.txt, and is what this test runs with."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
WANTED = "raybus[local,dev]"


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins() -> dict[str, str]:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and not line.startswith("#")]
    return {canonical(name): version for name, _, version in (line.partition("==") for line in lines)}


def needed(wanted: Requirement, seen: dict[tuple[str, str], str]) -> dict[tuple[str, str], str]:
    """(distribution, extra) -> installed version, of `wanted` and all that it needs here."""
    distribution = metadata.distribution(wanted.name)
    for extra in ("", *wanted.extras):
        key = canonical(wanted.name), extra
        if key in seen:
            continue
        seen[key] = distribution.version
        for each in map(Requirement, distribution.requires or ()):
            if each.marker is None or each.marker.evaluate({"extra": extra}):
                needed(each, seen)
    return seen


def test_every_distribution_that_is_needed_is_pinned_to_what_is_installed() -> None:
    installed = {name: version for (name, _), version in needed(Requirement(WANTED), {}).items() if name != "raybus"}

    assert len(installed) > 80
    assert {name: pins().get(name) for name in installed} == installed, "bring constraints.txt up to date"


def test_every_line_is_one_exact_version_and_no_name_stands_twice() -> None:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]

    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!-]+", line)] == []
    assert len(pins()) == len(lines)
