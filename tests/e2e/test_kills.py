"""kill -9 of each part while a job runs on real Ray: one submission, each child created once, one verdict, SUCCEEDED."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.history import actions_of
from support.local import Local, write_job
from support.ray_http import submissions

SERVICES = ("gateway", "cluster_ctrl", "job_ctrl", "nats")
KILLS_EACH = 3
# Notes each start of itself in a folder of this machine, and ends when the test has done its worst.
ENTRYPOINT = """python -c "
import time, pathlib
folder = pathlib.Path('/shared')
with (folder / 'starts').open('a') as file: file.write('x')
deadline = time.time() + 300
while not (folder / 'done').exists() and time.time() < deadline: time.sleep(0.2)
print('starts:', len((folder / 'starts').read_text()))
" """

pytestmark = [pytest.mark.ray, pytest.mark.timeout(900)]


def write_fire(folder: Path, shared: Path) -> Path:
    """The example with a workload that waits for the test, and the test's folder in its head pod."""
    path = write_job(folder / "job.yaml", "fire", entrypoint=ENTRYPOINT, ttlSecondsAfterFinished=20)
    job, code = yaml.safe_load_all(path.read_text())
    pod = job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]
    pod["volumes"].append({"name": "shared", "hostPath": {"path": str(shared)}})
    pod["containers"][0]["volumeMounts"].append({"name": "shared", "mountPath": "/shared"})
    path.write_text(yaml.safe_dump_all([job, code]))
    return path


def kill_all(local: Local, chance: random.Random, running: subprocess.Popen[str], pause_s: float) -> Counter[str]:
    """Kill each service KILLS_EACH times, in random order at random moments; how often each was."""
    kills: Counter[str] = Counter()
    order = list(SERVICES) * KILLS_EACH
    chance.shuffle(order)
    for service in order:
        time.sleep(chance.uniform(0.2, 1.0) * pause_s)
        assert running.poll() is None, "the run ended while services were being killed"
        pid = until(lambda service=service: local.pid(service), f"{service} to be started again", limit_s=60)
        os.kill(pid, signal.SIGKILL)
        kills[service] += 1
    return kills


def until(look: Callable[[], Any], what: str, limit_s: float) -> Any:
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if found := look():
            return found
        time.sleep(0.1)
    raise AssertionError(f"waited {limit_s} s for {what}")


def run_under_fire(tmp_path: Path, seed: int, *, pause_s: float, env: Mapping[str, str] | None = None) -> None:
    """One job with kills; asserts what must hold. `pause_s` 0: no kills but those of a fault point."""
    shared = tmp_path / "shared"
    shared.mkdir()
    local = Local(tmp_path / "rb", env)
    local.up()
    try:
        running = local.start("run", str(write_fire(tmp_path, shared)))
        kills = kill_all(local, random.Random(seed), running, pause_s) if pause_s else Counter()
        until((shared / "starts").exists, "the job to start", limit_s=240)
        seen = until(lambda: submissions(local, "fire"), "Ray to list the job", limit_s=30)
        (shared / "done").touch()
        output, story = running.communicate(timeout=240)
        told = f"seed {seed}, kills {dict(kills)}\n{story}"
        assert running.returncode == 0, told
        assert "starts: 1" in output, told
        assert len(seen) == 1, f"{seen}\n{told}"
        assert_each_child_once(local, told)
        (rayjob,) = local.get("rayjob/fire")
        status = rayjob["status"]
        assert (status["jobDeploymentStatus"], status["jobStatus"]) == ("Complete", "SUCCEEDED"), told
        assert status["succeeded"] == 1, told
    finally:
        local.down()


def assert_each_child_once(local: Local, told: str) -> None:
    """By history: every name was created by one request that was answered with success, and no name stands for another."""
    done = [each for each in actions_of(local) if each["result"] == "done" and each["class"].startswith("Create")]
    names = Counter(each["target"] for each in done)
    assert all(count == 1 for count in names.values()), f"{names}\n{told}"
    kinds = Counter(target.partition("/")[0] for target in names)
    # A create whose process died before it could record it is missing from history, never doubled.
    assert kinds["RayCluster"] <= 1, told
    assert kinds["Job"] <= 1, told
    assert kinds["Pod"] <= 2, f"{names}\n{told}"


def test_the_job_survives_kills_of_every_service(tmp_path: Path):
    run_under_fire(tmp_path, random.SystemRandom().randrange(1 << 32), pause_s=4.0)


@pytest.mark.parametrize(
    "point",
    [
        "after:PatchRayJobStatus",  # ids are stored, nothing is created
        pytest.param("before:CreateRayCluster", marks=pytest.mark.night),
        pytest.param("after:CreateRayCluster", marks=pytest.mark.night),
        pytest.param("before:CreateJob", marks=pytest.mark.night),
        pytest.param("after:CreateJob", marks=pytest.mark.night),
        pytest.param("after:CreatePod", marks=pytest.mark.night),
        pytest.param("after:CreatePod:2", marks=pytest.mark.night),
        pytest.param("before:PatchRayClusterStatus", marks=pytest.mark.night),
    ],
)
def test_a_kill_between_intent_and_effect_changes_nothing(tmp_path: Path, point: str):
    once = tmp_path / "once"
    run_under_fire(tmp_path, 0, pause_s=0, env={"RAYBUS_FAULTPOINT": point, "RAYBUS_FAULTPOINT_ONCE": str(once)})
    assert once.exists(), "the fault point was never passed"


@pytest.mark.night
@pytest.mark.parametrize("pause_s", [1.0, 2.0, 3.0, 5.0, 8.0])
def test_the_job_survives_slower_and_faster_kills(tmp_path: Path, pause_s: float):
    run_under_fire(tmp_path, random.SystemRandom().randrange(1 << 32), pause_s=pause_s)
