"""`make night`: everything that is too long for CI, and a dated file with what came out, to be committed with the change.

    python tests/night/run.py [--minutes N] [--areas units,e2e] [--fresh]

Runs the tests marked `night` area by area, each for at most so many minutes, and writes tests/night/results/<date>.md after each:
commit, machine, every test with its result and seconds, the words of what failed, and what was not reached. Called again for the same
commit it goes on where it stopped; --fresh begins anew. Ends with 1 if a test failed. The simulator has nights of its own.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import platform
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from night import journal  # after the path above, which pytest gets from pyproject.toml

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
STATE = REPOSITORY / ".night"
NOTHING_FOUND = 5  # pytest's exit code
GOODBYE_S = 180.0


@dataclass(frozen=True, slots=True)
class Area:
    """Tests that run together; `through` is the script that gives them what they need."""

    name: str
    folders: tuple[str, ...]
    through: str = ""


AREAS = (
    Area("units", ("tests/unit", "tests/contracts")),
    Area("integration", ("tests/integration", "tests/golden")),
    Area("e2e", ("tests/e2e",)),
    Area("docker", ("tests/docker",), "tests/with-docker"),
    Area("e2e-kube", ("tests/e2e_kube",), "tests/with-node-kube"),
)


def main() -> int:
    options = parsed()
    commit = said("git", "rev-parse", "HEAD")
    state = STATE / commit
    if options.fresh:
        shutil.rmtree(state, ignore_errors=True)
    state.mkdir(parents=True, exist_ok=True)
    chosen = [area for area in AREAS if not options.areas or area.name in options.areas.split(",")]
    told: dict[str, str] = {}
    for area in chosen:
        told[area.name] = run(area, state / f"{area.name}.jsonl", options.minutes * 60)
        results(commit).write_text(written(commit, told, state))
    print(f"written: {results(commit).relative_to(REPOSITORY)}")
    entries = [entry for area in chosen for entry in journal.read(state / f"{area.name}.jsonl")]
    if all(word == "to its end" for word in told.values()):
        shutil.rmtree(state)
    return 1 if any(entry["outcome"] == "failed" for entry in entries) else 0


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Run what is too long for CI.")
    parser.add_argument("--minutes", type=float, default=120, help="limit of each area (%(default)s)")
    parser.add_argument(
        "--areas", default="", help=f"some of {','.join(area.name for area in AREAS)}; all if not given"
    )
    parser.add_argument("--fresh", action="store_true", help="begin anew instead of going on")
    return parser.parse_args()


def run(area: Area, path: Path, limit_s: float) -> str:
    """How far the area came: in its journal each test, here the words for the head of the result."""
    folders = [folder for folder in area.folders if (REPOSITORY / folder).exists()]
    if not folders:
        return "to its end"
    pytest = [sys.executable, "-m", "pytest", "-p", "night.journal", "--journal", str(path), "-m", "night", *folders]
    process = subprocess.Popen(
        ([area.through] if area.through else []) + pytest, cwd=REPOSITORY, start_new_session=True
    )
    try:
        code = process.wait(limit_s)
    except subprocess.TimeoutExpired:
        end(process)
        return f"stopped after {limit_s / 60:g} minutes"
    except KeyboardInterrupt:
        end(process)
        raise
    return "to its end" if code in (0, 1, NOTHING_FOUND) else f"pytest ended with {code}"


def end(process: subprocess.Popen[bytes]) -> None:
    """As Ctrl-C does, so that the tests take down what they started."""
    os.killpg(process.pid, signal.SIGINT)
    try:
        process.wait(GOODBYE_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def results(commit: str) -> Path:
    """The file of today, beside that of another commit if there is one already."""
    folder = HERE / "results"
    folder.mkdir(exist_ok=True)
    today = f"{dt.datetime.now(dt.UTC):%Y-%m-%d}"
    first = folder / f"{today}.md"
    if not first.exists() or commit[:7] in first.read_text():
        return first
    return folder / f"{today}-{commit[:7]}.md"


def written(commit: str, told: dict[str, str], state: Path) -> str:
    """The result file: a head, a table for each area, and what failed in its own words."""
    entries = {name: journal.read(state / f"{name}.jsonl") for name in told}
    everything = [entry for found in entries.values() for entry in found]
    failed = [entry for entry in everything if entry["outcome"] == "failed"]
    minutes = sum(entry["seconds"] for entry in everything) / 60
    lines = [
        f"# Night of {dt.datetime.now(dt.UTC):%Y-%m-%d}",
        "",
        (
            f"Commit {commit[:7]}{dirty()}, Python {platform.python_version()}, {os.cpu_count()} cores, {minutes:.0f} minutes; "
            f"{len(everything)} tests, {len(failed)} failed."
        ),
    ]
    for name, found in entries.items():
        lines += ["", f"## {name}: {told[name]}", ""]
        lines += ["| test | result | seconds |", "|---|---|---|"] if found else ["No tests."]
        lines += [f"| {short(entry)} | {entry['outcome']} | {entry['seconds']} |" for entry in found]
    for entry in failed:
        lines += ["", f"## {short(entry)}", "", "```", entry["words"].strip(), "```"]
    return "\n".join(lines) + "\n"


def short(entry: dict[str, Any]) -> str:
    return Path(entry["test"].partition("::")[0]).stem + "::" + entry["test"].partition("::")[2]


def dirty() -> str:
    return " with changes" if said("git", "status", "--porcelain", "--untracked-files=no") else ""


def said(*command: str) -> str:
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
