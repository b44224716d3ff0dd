"""Every value of KubeRay's operator chart has its line in the migration guide, and what that line points to exists."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
NAMES = (Path(__file__).parent / "kuberay_values.txt").read_text().split()
GUIDE = (ROOT / "docs" / "migrate-from-kuberay.md").read_text()
VALUES = yaml.safe_load((ROOT / "deploy" / "helm" / "raybus" / "values.yaml").read_text())
CODE = re.compile(r"`([^`]+)`")


def rows() -> list[tuple[list[str], list[str], str]]:
    """(KubeRay's values, ours, remark) of each line of the table."""
    section = GUIDE.split("\n## Values\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [(CODE.findall(theirs), CODE.findall(ours), remark) for theirs, ours, remark in cells]


def test_the_list_is_worth_something() -> None:
    assert len(NAMES) > 50
    assert sorted(NAMES) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_value_has_a_counterpart_or_a_reason_why_not(name: str) -> None:
    [(_, ours, remark)] = [row for row in rows() if name in row[0]]
    assert ours or remark


def test_no_line_is_about_something_else() -> None:
    assert {name for theirs, _, _ in rows() for name in theirs} == set(NAMES)


@pytest.mark.parametrize("path", sorted({path for _, ours, _ in rows() for path in ours}))
def test_a_counterpart_is_a_value_of_ours(path: str) -> None:
    found: Any = VALUES
    for key in path.split("."):
        assert key in found, f"{path}: there is no {key}"
        found = found[key]
