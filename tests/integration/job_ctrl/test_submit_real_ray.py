"""The submit script against real Ray: what the entrypoint prints on the cluster is what the log shows, byte for byte."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from raybus_job_ctrl.build.script import submit_script
from support.real_head import real_head

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with real_head(tmp_path_factory.mktemp("ray")) as address:
        yield address


def submitted(address: str, job_id: str, folder: Path, **spec: object) -> subprocess.CompletedProcess[str]:
    """What the submitter's container does, in a folder and with a variable of its own."""
    script = submit_script(spec, address=address, submission_id=job_id)
    path = f"{Path(sys.executable).parent}{os.pathsep}/usr/bin{os.pathsep}/bin"
    environment = {"PATH": path, "HOME": str(folder), "WHERE": "submitter", "NO_PROXY": "*", "PYTHONUNBUFFERED": "1"}
    command = ["/bin/bash", "-ce", "--", script]
    return subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )


STRINGS = """print('back`tick` $HOME ${WHERE} "double" and \\\\ Grüße 世界')"""

ENTRYPOINTS = [
    ("plain", "python -c 'print(1+1)'", ["2"]),
    ("chain", "echo one && echo two; echo three > here.txt && cat here.txt | tr a-z A-Z", ["one", "two", "THREE"]),
    ("variables", 'echo "[$WHERE]" $((40 + 2))', ["[cluster] 42"]),
    ("quotes", f"python - <<'EOF'\n{STRINGS}\nEOF\n", ['back`tick` $HOME ${WHERE} "double" and \\ Grüße 世界']),
]


@pytest.mark.parametrize(("name", "entrypoint", "lines"), ENTRYPOINTS, ids=[row[0] for row in ENTRYPOINTS])
def test_the_entrypoint_runs_on_the_cluster_as_written(
    name: str, entrypoint: str, lines: list[str], address: str, tmp_path: Path
) -> None:
    where = "env_vars: {WHERE: cluster}"
    done = submitted(
        address, f"job-{name}", tmp_path, entrypoint=entrypoint, runtimeEnvYAML=where, metadata={"k": "a b"}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    # Ray's own line about the start of the entrypoint comes when it likes.
    printed = [line for line in done.stdout.splitlines() if not line.startswith("Running entrypoint")]
    start = printed.index(lines[0])
    assert printed[start : start + len(lines)] == lines
    assert [entry.name for entry in tmp_path.iterdir() if not entry.name.startswith(".")] == [], "nothing ran here"


def test_a_second_submitter_only_follows(address: str, tmp_path: Path) -> None:
    first = submitted(address, "job-once", tmp_path, entrypoint="date +%s%N")
    second = submitted(address, "job-once", tmp_path, entrypoint="date +%s%N")
    stamps = [[line for line in done.stdout.splitlines() if line.isdigit()] for done in (first, second)]
    assert stamps[0] == stamps[1]
    assert len(stamps[0]) == 1
