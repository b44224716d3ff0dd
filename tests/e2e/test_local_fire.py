"""kill -9 of what a local Raybus stands on: the API server, the kubelet, the node, and at last the process that holds all together."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from support.local import Local, write_job

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]

ENTRYPOINT = "python -c 'import time; time.sleep(600)'"
DECIDED_S = 60.0  # a lost head ends in a verdict within this time


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Local]:
    local = Local(tmp_path / "rb")
    local.up()
    try:
        yield local
    finally:
        local.down()


def until(look: Callable[[], Any], what: str, limit_s: float) -> Any:
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if found := look():
            return found
        time.sleep(0.2)
    raise AssertionError(f"waited {limit_s} s for {what}")


def status(local: Local) -> dict[str, Any]:
    """Of the RayJob; {} while nobody answers."""
    done = local.raybus("get", "rayjob/fire", "--output", "json")
    if done.returncode:
        return {}
    (job,) = json.loads(done.stdout)
    return job.get("status") or {}


def begin(local: Local, tmp_path: Path) -> None:
    """A job that would run for minutes; whoever asked for it is gone too."""
    asking = local.start("run", str(write_job(tmp_path / "job.yaml", "fire", entrypoint=ENTRYPOINT)))
    try:
        until(lambda: status(local).get("jobStatus") == "RUNNING", "the job to run", 240)
    finally:
        asking.kill()
        asking.communicate()


def kill(local: Local, service: str) -> None:
    pid = until(lambda: local.pid(service), f"{service} to run", 60)
    os.kill(pid, signal.SIGKILL)
    until(lambda: local.pid(service) not in (None, pid), f"{service} to be started again", 60)


def test_a_job_outlives_api_server_and_kubelet_and_ends_with_its_node(local: Local, tmp_path: Path):
    begin(local, tmp_path)
    job_id = status(local)["jobId"]
    for service in ("localkube", "kubelet", "localkube", "kubelet"):
        kill(local, service)
        time.sleep(3)
    assert (status(local)["jobStatus"], status(local)["jobId"]) == ("RUNNING", job_id)

    kill(local, "node")
    failed = until(
        lambda: status(local).get("jobDeploymentStatus") == "Failed" and status(local), "a verdict", DECIDED_S
    )
    assert failed["jobStatus"] == "FAILED"
    assert "head" in failed["message"]


def test_nothing_outlives_a_killed_raybus_and_the_next_one_goes_on(local: Local, tmp_path: Path):
    begin(local, tmp_path)
    raybus = psutil.Process(local.status()["pid"])
    whole = raybus.children(recursive=True)
    assert any("raylet" in process.name() for process in whole)

    raybus.kill()
    _, left = psutil.wait_procs([raybus, *whole], timeout=10)
    assert not [process for process in left if process.status() != psutil.STATUS_ZOMBIE]
    local.up()
    failed = until(
        lambda: status(local).get("jobDeploymentStatus") == "Failed" and status(local), "a verdict", DECIDED_S
    )
    assert "head" in failed["message"]
