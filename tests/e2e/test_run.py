"""The main job as a user does it: `raybus run` on real Ray, from an empty folder to a clean end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from support.history import actions_of
from support.local import EXAMPLE, RUN_S, Local, write_job

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Local]:
    found = Local(tmp_path_factory.mktemp("rb"))
    found.up()
    yield found
    found.down()


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
    path = write_job(tmp_path / "job.yaml", "broken", workers=False, entrypoint="python -c 'import sys; sys.exit(3)'")
    done = local.raybus("run", str(path), "--until-clean")
    assert done.returncode == 1, done.stderr
    assert "exit code 3" in done.stderr


def test_an_entrypoint_runs_as_written_in_both_modes(local: Local, tmp_path: Path):
    """Beside each other: most of the time either waits for its cluster."""
    odd = """python - "$RAYBUS_ODD" 'a;b' "`echo c`" <<'END'\nimport sys; print(sys.argv[1:])\nEND\n"""
    env = "env_vars: {RAYBUS_ODD: 'x ~ \"y\"'}"
    running = []
    for mode in ("HTTPMode", "K8sJobMode"):
        name = f"odd-{mode.lower()}"
        changes = {"entrypoint": odd, "submissionMode": mode, "runtimeEnvYAML": env}
        path = write_job(tmp_path / f"{mode}.yaml", name, workers=False, **changes)
        running.append(local.start("run", str(path), "--until-clean"))
    for done in running:
        output, story = done.communicate(timeout=RUN_S)
        assert done.returncode == 0, story
        assert """['x ~ "y"', 'a;b', 'c']""" in output, output


def test_the_status_names_every_part_and_all_are_ready(local: Local):
    found = local.status()
    assert found["ready"]
    names = [each["name"] for each in found["services"]]
    assert {"nats", "gateway", "cluster_ctrl", "job_ctrl"} < set(names)
    assert Path(found["kubeconfig"]).exists()
    for each in found["services"]:
        assert each["pid"]
        assert Path(each["log"]).exists()


def test_at_rest_nothing_is_written(local: Local, tmp_path: Path):
    """A finished job and a cluster that has nothing to do: a minute without a single write, an event, or a look at history."""
    job, _ = yaml.safe_load_all(EXAMPLE.read_text())
    spec = job["spec"]["rayClusterSpec"]
    del spec["headGroupSpec"]["template"]["spec"]["volumes"]
    del spec["headGroupSpec"]["template"]["spec"]["containers"][0]["volumeMounts"]
    cluster = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "idle"}, "spec": spec}
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump(cluster))
    job_runs = local.start("run", str(write_job(tmp_path / "job.yaml", "done")), "--until-clean")
    started = local.raybus("run", str(tmp_path / "cluster.yaml"))
    assert started.returncode == 0, started.stderr
    _, story = job_runs.communicate(timeout=RUN_S)
    assert job_runs.returncode == 0, story
    time.sleep(10)
    before, decided = local.versions(), len(actions_of(local))
    assert any(name.startswith("RayCluster/idle") for name in before)
    time.sleep(60)
    assert local.versions() == before
    assert len(actions_of(local)) == decided
