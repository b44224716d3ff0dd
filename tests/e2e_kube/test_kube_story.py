"""One story on a real Kubernetes, told in order: what a platform engineer does with Raybus, and what befalls it.

Each test is a step and needs those before it. Jobs run while services are killed, rolled and upgraded.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from support.installation import Cluster, CommandError, Name, Times

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
CHART = ROOT / "deploy" / "helm" / "raybus"
SYSTEM = "raybus-e2e"
WORK = "raybus-e2e-work"
RELEASE = ("-l", "app.kubernetes.io/instance=raybus")
SERVICES = ("gateway", "cluster-ctrl", "job-ctrl")
DEFINITIONS = {f"{kind}.ray.io" for kind in ("rayclusters", "rayjobs", "rayservices", "raycronjobs")}
STAYS = DEFINITIONS | {"v1.ray.io", "v1alpha1.ray.io"}  # what the API server makes of them
# The limits are for a machine that does nothing else; more than 1 for one that does.
PATIENCE = float(os.environ.get("RAYBUS_E2E_PATIENCE", "1"))

pytestmark = [pytest.mark.node, pytest.mark.timeout(240 * PATIENCE)]

# Asked of Ray itself, inside its head: the submissions that it knows.
SUBMISSIONS = (
    "import json,urllib.request as u; print(json.dumps(json.load(u.urlopen('http://127.0.0.1:8265/api/jobs/'))))"
)

Json = dict[str, Any]


@pytest.fixture(scope="module")
def before(cluster: Cluster) -> set[Name]:
    """What is in the cluster before anything is installed."""
    return cluster.everything(but=(WORK,))


@pytest.fixture(scope="module")
def notes() -> dict[str, Any]:
    """What a step leaves for a later one."""
    return {}


def limit(seconds: float) -> str:
    """As kubectl takes it."""
    return f"--timeout={seconds * PATIENCE:.0f}s"


def values(*more: str) -> list[str]:
    given = os.environ.get("RAYBUS_E2E_VALUES")
    return [*(("--values", given) if given else ()), *more]


def until_available(cluster: Cluster, within_s: int = 120) -> None:
    for name in SERVICES:
        cluster.kubectl("rollout", "status", f"deployment/raybus-{name}", "-n", SYSTEM, limit(within_s))
    cluster.kubectl("wait", "--for=condition=Available", "deployment", *RELEASE, "-n", SYSTEM, limit(within_s))


def until_at_work(cluster: Cluster, times: Times, after: str) -> None:
    """Both controllers answer to new objects: gateway, NATS and they themselves work."""
    with times.of(f"controllers answer after {after}"):
        cluster.apply(WORK, HERE / "probes.yaml")
        for kind, reason in (("RayCluster", "InvalidRayClusterSpec"), ("RayJob", "InvalidRayJobSpec")):
            uid = cluster.get(WORK, kind.lower(), "probe")["metadata"]["uid"]
            selector = f"reason={reason},involvedObject.uid={uid}"
            cluster.until(
                f"event {reason} on {kind} probe",
                lambda selector=selector: cluster.get(WORK, "events", "--field-selector", selector),
                within_s=40 * PATIENCE,
            )
    cluster.kubectl("delete", "-n", WORK, "-f", HERE / "probes.yaml", limit(30))


def rayjob(cluster: Cluster, name: str) -> Json:
    found: Json = cluster.get(WORK, "rayjob", name)
    return found


def status(cluster: Cluster, name: str) -> Json:
    return rayjob(cluster, name).get("status") or {}


def until_running(cluster: Cluster, name: str) -> Json:
    return cluster.until(
        f"job {name} RUNNING",
        lambda: (found := status(cluster, name)).get("jobStatus") == "RUNNING" and found,
        within_s=120 * PATIENCE,
    )


def pods_of(cluster: Cluster, ray_cluster: str) -> list[Json]:
    found: list[Json] = cluster.get(WORK, "pods", "-l", f"ray.io/cluster={ray_cluster}")
    return found


def head_of(cluster: Cluster, ray_cluster: str) -> str:
    found = cluster.get(WORK, "pods", "-l", f"ray.io/cluster={ray_cluster},ray.io/node-type=head")
    assert len(found) == 1, [pod["metadata"]["name"] for pod in found]
    return str(found[0]["metadata"]["name"])


def lives(pods: list[Json]) -> dict[str, tuple[str, int]]:
    """Name -> uid and restarts: equal while nobody touched them."""
    return {
        pod["metadata"]["name"]: (pod["metadata"]["uid"], sum(each["restartCount"] for each in pod["status"]["containerStatuses"]))
        for pod in pods
    }  # fmt: skip


def start_job(cluster: Cluster, name: str) -> None:
    cluster.apply(WORK, (HERE / "job.yaml").read_text().replace("NAME", name))


def kill(cluster: Cluster, component: str) -> None:
    """All its pods at once, without a word before."""
    selector = f"app.kubernetes.io/instance=raybus,app.kubernetes.io/component={component}"
    cluster.kubectl("delete", "pods", "-n", SYSTEM, "-l", selector, "--grace-period=0", "--force", "--wait=false")


def test_the_chart_is_installed_and_ready_within_a_minute(cluster, times, before):
    with times.of("chart installed, everything ready"):
        told = cluster.helm("install", "raybus", CHART, "-n", SYSTEM, *values())
        until_available(cluster)
    assert "kubectl" in told, "the notes say what to try next"
    assert times.told["chart installed, everything ready"] < 60 * PATIENCE


def test_a_ray_cluster_becomes_ready(cluster, times, notes):
    cluster.apply(WORK, HERE / "steady.yaml")
    with times.of("RayCluster ready"):
        cluster.kubectl("wait", "--for=condition=RayClusterProvisioned", "raycluster/steady", "-n", WORK, limit(120))
    notes["steady"] = lives(pods_of(cluster, "steady"))
    assert len(notes["steady"]) == 2


def test_a_job_written_for_kuberay_succeeds_and_its_cluster_goes(cluster, times):
    start_job(cluster, "beheaded")  # gets ready meanwhile
    with times.of("RayJob SUCCEEDED"):
        cluster.apply(WORK, ROOT / "examples" / "rayjob.yaml")
        cluster.kubectl("wait", "--for=jsonpath={.status.jobStatus}=SUCCEEDED", "rayjob/hello", "-n", WORK, limit(180))
    for log in (cluster.raybus("logs", "rayjob/hello", "-n", WORK), cluster.kubectl("logs", "job/hello", "-n", WORK)):
        assert "Hello from Ray" in log
        assert "nodes in the cluster: 2" in log
    name = status(cluster, "hello")["rayClusterName"]
    with times.of("its cluster gone after TTL (5 s)"):
        cluster.kubectl("wait", "--for=delete", f"raycluster/{name}", "-n", WORK, limit(60))
    assert status(cluster, "hello")["jobDeploymentStatus"] == "Complete"


def test_a_lost_head_is_decided_on_within_a_minute(cluster, times):
    name = until_running(cluster, "beheaded")["rayClusterName"]
    head = head_of(cluster, name)
    with times.of("head deleted in mid-job, RayJob Failed"):
        cluster.kubectl("delete", "pod", head, "-n", WORK, "--wait=false")
        cluster.kubectl(
            "wait",
            "--for=jsonpath={.status.jobDeploymentStatus}=Failed",
            "rayjob/beheaded",
            "-n",
            WORK,
            limit(60),
        )
    found = status(cluster, "beheaded")
    assert (found["jobStatus"], found["reason"]) == ("FAILED", "AppFailed")
    assert found["message"].startswith("head lost: ")


def test_services_are_killed_while_a_job_begins_and_runs(cluster, times):
    start_job(cluster, "long")
    with times.of("RayJob RUNNING, gateway and cluster-ctrl killed meanwhile"):
        kill(cluster, "gateway")
        name = cluster.until(
            "a cluster for long", lambda: status(cluster, "long").get("rayClusterName"), within_s=60 * PATIENCE
        )
        kill(cluster, "cluster-ctrl")
        until_running(cluster, "long")
    kill(cluster, "job-ctrl")
    until_at_work(cluster, times, "all were killed")
    until_available(cluster)
    assert status(cluster, "long")["rayClusterName"] == name


@pytest.mark.parametrize("component", SERVICES)
def test_a_service_is_rolled_while_the_job_runs(cluster, times, component):
    with times.of(f"{component} rolled"):
        cluster.kubectl("rollout", "restart", f"deployment/raybus-{component}", "-n", SYSTEM)
        cluster.kubectl("rollout", "status", f"deployment/raybus-{component}", "-n", SYSTEM, limit(90))
    until_at_work(cluster, times, f"{component} was rolled")


def test_nats_is_killed_while_the_job_runs(cluster, times):
    with times.of("NATS ready again after a kill"):
        kill(cluster, "nats")
        cluster.kubectl("rollout", "status", "statefulset/raybus-nats", "-n", SYSTEM, limit(90))
        until_available(cluster)
    until_at_work(cluster, times, "NATS was killed")


def test_the_chart_is_upgraded_with_a_changed_value(cluster, times):
    keys = {
        each["metadata"]["name"]: each["data"] for each in cluster.get(SYSTEM, "secrets") if each["type"] == "Opaque"
    }
    with times.of("chart upgraded with a changed value, everything ready"):
        cluster.helm("upgrade", "raybus", CHART, "-n", SYSTEM, *values("--set", "logging.level=debug"))
        until_available(cluster)
    until_at_work(cluster, times, "the upgrade")
    pods = [
        pod
        for pod in cluster.get(SYSTEM, "pods", *RELEASE)
        if pod["metadata"]["labels"]["app.kubernetes.io/component"] in SERVICES
    ]
    for pod in pods:
        env = {each["name"]: each.get("value") for each in pod["spec"]["containers"][0]["env"]}
        assert env["RAYBUS_LOG_LEVEL"] == "debug", pod["metadata"]["name"]
    assert keys == {
        each["metadata"]["name"]: each["data"] for each in cluster.get(SYSTEM, "secrets") if each["type"] == "Opaque"
    }
    assert keys


def test_the_job_outlived_it_all_and_was_submitted_once(cluster, times):
    name = status(cluster, "long")["rayClusterName"]
    head = head_of(cluster, name)
    known = json.loads(cluster.kubectl("exec", head, "-n", WORK, "-c", "ray-head", "--", "python", "-c", SUBMISSIONS))
    assert [(each["submission_id"], each["status"]) for each in known if each["type"] == "SUBMISSION"] == [
        (status(cluster, "long")["jobId"], "RUNNING")
    ]
    with times.of("RayJob SUCCEEDED after its end"):
        cluster.kubectl("exec", head, "-n", WORK, "-c", "ray-head", "--", "touch", "/tmp/end")
        cluster.kubectl("wait", "--for=jsonpath={.status.jobStatus}=SUCCEEDED", "rayjob/long", "-n", WORK, limit(60))
    cluster.kubectl("wait", "--for=condition=Complete", "job/long", "-n", WORK, limit(60))  # its log is whole
    log = cluster.kubectl("logs", "job/long", "-n", WORK)
    assert log.count("at work") == 1
    assert "ended after" in log
    created = cluster.get(
        WORK, "events", "--field-selector", f"involvedObject.uid={rayjob(cluster, 'long')['metadata']['uid']}"
    )
    reasons = [each["reason"] for each in created]
    assert (reasons.count("CreatedRayCluster"), reasons.count("CreatedRayJobSubmitter")) == (1, 1), reasons
    assert len(cluster.get(WORK, "pods", "-l", "job-name=long")) == 1


def test_nothing_that_ran_was_touched_and_no_service_had_a_bug(cluster, notes):
    assert lives(pods_of(cluster, "steady")) == notes["steady"]
    logs = cluster.kubectl("logs", "-n", SYSTEM, *RELEASE, "--tail=-1", "--prefix", "--max-log-requests=20")
    assert [line for line in logs.splitlines() if "Traceback" in line or '"level":"error"' in line] == []


def test_doctor_finds_nothing_wrong(cluster):
    found = json.loads(cluster.raybus("doctor", "-o", "json"))["checks"]
    assert [each for each in found if each["level"] != "ok"] == []
    assert {f"installation {SYSTEM}/raybus", f"rights {SYSTEM}/raybus", f"NATS {SYSTEM}/raybus"} <= {
        each["check"] for each in found
    }


def test_uninstalled_with_nothing_left_behind_and_ray_untouched(cluster, times, before, notes):
    cluster.kubectl("delete", "rayjobs", "--all", "-n", WORK, limit(60))
    left: set[Name] = set()

    def only_definitions() -> bool:
        nonlocal left
        left = cluster.everything(but=(WORK,)) - before
        return {name for _, _, name in left} <= STAYS

    with times.of("uninstalled, nothing left"):
        cluster.helm("uninstall", "raybus", "-n", SYSTEM, "--wait")
        with contextlib.suppress(CommandError):  # what is left then says more
            cluster.until("only the definitions are left", only_definitions, within_s=60 * PATIENCE, every_s=2)
    assert {name for _, _, name in left} == STAYS, left
    time.sleep(5)  # what went with the controllers would go about now
    assert lives(pods_of(cluster, "steady")) == notes["steady"]
    assert all(each["status"]["containerStatuses"][0]["ready"] for each in pods_of(cluster, "steady"))
    with pytest.raises(CommandError, match="not found"):
        cluster.helm("status", "raybus", "-n", SYSTEM)
