"""Prometheus' own checks of the alerts: they are valid, and each fires and is silent where its test says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.prometheus import ROOT, RULES, promtool

TESTS = sorted((ROOT / "deploy" / "alerts" / "tests").glob("*.yaml"))


def test_the_rules_are_valid() -> None:
    done = promtool("check", "rules", "--lint-fatal", RULES)

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.stem)
def test_alerts_fire_and_are_silent_as_written(path: Path) -> None:
    done = promtool("test", "rules", path)

    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_tells_a_wrong_expectation(tmp_path: Path) -> None:
    """The test above can fail."""
    wrong = TESTS[0].read_text().replace("../raybus.yaml", str(RULES)).replace("'1x3 0x20'", "'1x23'")
    (tmp_path / "wrong.yaml").write_text(wrong)

    assert promtool("test", "rules", tmp_path / "wrong.yaml").returncode != 0
