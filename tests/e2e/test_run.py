"""The main job as a user does it: `raybus run` on real Ray, from an empty folder to a clean end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

REPOSITORY = Path(__file__).parents[2]
EXAMPLE = REPOSITORY / "examples" / "rayjob.yaml"
RUN_S = 240

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]


class Local:
    """A local Raybus in a folder of its own, driven by the command line alone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def raybus(self, *words: str, timeout: float = RUN_S) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "raybus.cli.main", *words]
        env = {**os.environ, "RAYBUS_DIR": str(self.folder), "COLUMNS": "200"}
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=env, check=False)

    def status(self) -> dict:
        return json.loads(self.raybus("status", "--output", "json").stdout)

    def get(self, what: str) -> list[dict]:
        done = self.raybus("get", what, "--output", "json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Local]:
    found = Local(tmp_path_factory.mktemp("rb"))
    up = found.raybus("up")
    assert up.returncode == 0, up.stderr + (found.folder / "logs" / "raybus.log").read_text()
    yield found
    down = found.raybus("down")
    assert down.returncode == 0, down.stderr


def write_job(path: Path, name: str, **changes) -> Path:
    """The example under another name, with changes to its spec."""
    job, code = yaml.safe_load_all(EXAMPLE.read_text())
    job["metadata"]["name"] = name
    job["spec"].update(changes)
    path.write_text(yaml.safe_dump_all([job, code]))
    return path


def test_the_demo_runs_to_ray_s_own_verdict_and_leaves_what_is_to_be_read(local: Local, tmp_path: Path):
    done = local.raybus("run", str(write_job(tmp_path / "job.yaml", "hello")), "--until-clean")
    assert done.returncode == 0, done.stderr
    assert "Hello from Ray" in done.stdout
    assert "7 squared is 49" in done.stdout
    assert "nodes in the cluster: 2" in done.stdout
    assert "SUCCEEDED" in done.stderr
    assert "gone, with all its pods" in done.stderr

    (job,) = local.get("rayjob/hello")
    assert job["status"]["jobStatus"] == "SUCCEEDED"
    assert job["status"]["jobDeploymentStatus"] == "Complete"
    assert local.get("rayclusters") == []
    (submitter,) = local.get("job/hello")
    assert submitter["status"]["succeeded"] == 1
    logs = local.raybus("logs", "rayjob/hello")
    assert "Hello from Ray" in logs.stdout


def test_a_failing_job_is_failed_with_ray_s_words(local: Local, tmp_path: Path):
    path = write_job(tmp_path / "job.yaml", "broken", entrypoint="python -c 'import sys; sys.exit(3)'")
    done = local.raybus("run", str(path), "--until-clean")
    assert done.returncode == 1, done.stderr
    assert "exit code 3" in done.stderr


def test_an_entrypoint_runs_as_written_in_both_modes(local: Local, tmp_path: Path):
    odd = """python - "$RAYBUS_ODD" 'a;b' "`echo c`" <<'END'\nimport sys; print(sys.argv[1:])\nEND\n"""
    for mode in ("HTTPMode", "K8sJobMode"):
        name = f"odd-{mode.lower()}"
        env = "env_vars: {RAYBUS_ODD: 'x $HOME \"y\"'}"
        path = write_job(
            tmp_path / f"{mode}.yaml", name, entrypoint=odd, submissionMode=mode, runtimeEnvYAML=env
        )  # fmt: skip
        done = local.raybus("run", str(path), "--until-clean")
        assert done.returncode == 0, done.stderr
        assert """['x $HOME "y"', 'a;b', 'c']""" in done.stdout, done.stdout


def test_the_status_names_every_part_and_all_are_ready(local: Local):
    found = local.status()
    assert found["ready"]
    names = [each["name"] for each in found["services"]]
    assert {"nats", "gateway", "cluster_ctrl", "job_ctrl"} < set(names)
    assert Path(found["kubeconfig"]).exists()
    for each in found["services"]:
        assert each["pid"]
        assert Path(each["log"]).exists()
