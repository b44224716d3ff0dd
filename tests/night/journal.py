"""A pytest plugin: notes each test as it ends, and leaves out those that are noted already, so that a night can be gone on with.

    pytest -p night.journal --journal FILE

One JSON object a line: {"test", "outcome": "passed" | "failed" | "skipped", "seconds", "words"}.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

WORDS = 4000


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--journal", type=Path, required=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    done = {entry["test"] for entry in read(config.getoption("journal"))}
    left = [item for item in items if item.nodeid not in done]
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in done])
    items[:] = left


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    reports: list[pytest.TestReport] = []
    item.stash[REPORTS] = reports
    result = yield
    with item.config.getoption("journal").open("a") as file:
        file.write(json.dumps(entry(item.nodeid, reports)) + "\n")
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report: Any = yield
    item.stash[REPORTS].append(report)
    return report


REPORTS = pytest.StashKey[list[pytest.TestReport]]()


def entry(test: str, reports: list[pytest.TestReport]) -> dict[str, Any]:
    """What became of a test whose set-up, call and tear-down ended so."""
    failed = [report for report in reports if report.failed]
    skipped = any(report.skipped for report in reports)
    told = failed or [report for report in reports if report.skipped]
    return {
        "test": test,
        "outcome": "failed" if failed else "skipped" if skipped else "passed",
        "seconds": round(sum(report.duration for report in reports)),
        "words": "\n".join(report.longreprtext for report in told)[-WORDS:],
    }


def read(path: Path) -> list[dict[str, Any]]:
    """The entries so far; a line that was cut off by a kill does not count."""
    found = []
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found
