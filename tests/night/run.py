"""`make night`: everything that is too long for CI, and a dated file with what came out, to be committed with the change.

    python tests/night/run.py [pytest arguments]

Runs the tests marked `night` (long kills, long fuzzing) one after the other and writes tests/night/results/<date>.md: commit, machine,
each test with its result and seconds, and the words of what failed. Ends with pytest's own exit code.
"""

from __future__ import annotations

import datetime as dt
import os
import platform
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]


def main() -> int:
    began = dt.datetime.now(dt.UTC)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-m", "night", f"--junitxml={report}", *sys.argv[1:]]
        code = subprocess.run(command, cwd=REPOSITORY, check=False).returncode
        cases = list(ET.parse(report).getroot().iter("testcase")) if report.exists() else []
    results = HERE / "results" / f"{began:%Y-%m-%d}.md"
    results.parent.mkdir(exist_ok=True)
    results.write_text(written(began, code, cases))
    print(f"written: {results.relative_to(REPOSITORY)}")
    return code


def written(began: dt.datetime, code: int, cases: list[ET.Element]) -> str:
    """The result file: a head, a table, and what failed in its own words."""
    seconds = (dt.datetime.now(dt.UTC) - began).total_seconds()
    failed = [case for case in cases if outcome(case) == "failed"]
    lines = [
        f"# Night of {began:%Y-%m-%d}",
        "",
        (
            f"Commit {commit()}, Python {platform.python_version()}, {os.cpu_count()} cores, {seconds / 60:.0f} minutes; "
            f"{len(cases)} tests, {len(failed)} failed, pytest ended with {code}."
        ),
        "",
        "| test | result | seconds |",
        "|---|---|---|",
        *(f"| {name(case)} | {outcome(case)} | {float(case.get('time', 0)):.0f} |" for case in cases),
    ]
    for case in failed:
        lines += ["", f"## {name(case)}", "", "```", (case[0].text or "").strip()[-4000:], "```"]
    return "\n".join(lines) + "\n"


def name(case: ET.Element) -> str:
    return f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name', '')}"


def outcome(case: ET.Element) -> str:
    tags = {child.tag for child in case}
    if tags & {"failure", "error"}:
        return "failed"
    return "skipped" if "skipped" in tags else "passed"


def commit() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.exit(main())
