"""README and CONTRIBUTING lead to everything: each guide, each step of CI, each target that they name."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
README = (ROOT / "README.md").read_text()
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
TARGETS = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_each_guide_is_named_in_the_readme() -> None:
    guides = {f"docs/how-to/{path.name}" for path in (ROOT / "docs" / "how-to").glob("*.md")}

    assert len(guides) > 5
    assert {guide for guide in guides if f"]({guide})" not in README} == set()


def test_contributing_names_every_step_of_ci() -> None:
    steps = set(re.findall(r"\bstep [a-z0-9-]+ make ([a-z0-9-]+)", (ROOT / ".ci" / "run").read_text()))
    steps -= {"setup"}

    assert {"test", "e2e-kube"} <= steps
    assert {step for step in steps if f"`{step}`" not in CONTRIBUTING} == set()


def test_targets_that_are_named_exist() -> None:
    texts = [README, CONTRIBUTING, *(path.read_text() for path in (ROOT / "docs").rglob("*.md"))]
    named = {
        target
        for text in texts
        for words in re.findall(r"(?:`|\$ )make ([a-z0-9 -]+)", text)
        for target in words.split()
    }

    assert named
    assert {target for target in named if target not in TARGETS} == set()


def test_paths_in_the_table_of_contributing_exist() -> None:
    table = CONTRIBUTING.split("## Where things belong")[1].split("## Rules")[0]
    paths = {path for path in re.findall(r"`([A-Za-z0-9_./]+)`", table) if path.count("/") > 1}

    assert len(paths) > 10
    bases = (ROOT, ROOT / "services" / "localkube")
    assert {path for path in paths if not any((base / path).exists() for base in bases)} == set()
