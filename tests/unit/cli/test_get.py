"""Tables of `raybus get`."""

from __future__ import annotations

import datetime as dt
import io

import pytest
from rich.console import Console

from raybus.cli import get
from raybus.cli.errors import UserError
from raybus.domain.kinds import POD, RAYCLUSTER, RAYJOB

NOW = dt.datetime(2026, 1, 1, 12, 0, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("created", "text"),
    [
        ("2026-01-01T11:59:55Z", "5s"), ("2026-01-01T11:57:00Z", "3m"), ("2026-01-01T10:00:00Z", "2h"),
        ("2025-12-28T12:00:00Z", "4d"), ("", ""), ("2026-01-01T12:00:09Z", "0s"),
    ],
)  # fmt: skip
def test_the_age_is_in_the_largest_unit_that_fits(created, text):
    assert get.age(created, NOW) == text


def test_words_for_kinds_and_names():
    assert get.split_name("hello") == (RAYJOB, "hello")
    assert get.split_name("raycluster/c") == (RAYCLUSTER, "c")
    assert get.split_word("pods") == (POD, "")
    assert get.split_word("Pod/x") == (POD, "x")
    with pytest.raises(UserError, match="no kind 'rayjobb'"):
        get.split_word("rayjobb/x")


def test_a_row_has_what_one_wants_to_know():
    job = {
        "metadata": {"name": "hello", "namespace": "default", "creationTimestamp": "2026-01-01T11:59:00Z"},
        "status": {"jobStatus": "SUCCEEDED", "jobDeploymentStatus": "Complete", "rayClusterName": "hello-abcde"},
    }
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(get.table(RAYJOB, [job, {"metadata": {"name": "new"}}], NOW))
    text = console.export_text()
    assert "hello-abcde" in text
    assert "SUCCEEDED" in text
    assert "1m" in text
    assert "new" in text
