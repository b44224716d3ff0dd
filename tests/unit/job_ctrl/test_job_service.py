"""The edges of the service: settings, routes, rights, and what observe makes of a tree."""

from __future__ import annotations

import pytest

from raybus.bus.routing import roots_of
from raybus.decide.tree import RootKey
from raybus.runtime import live
from raybus_job_ctrl.__main__ import controller_spec
from raybus_job_ctrl.build.head_service import job_head_service
from raybus_job_ctrl.build.submitter import submitter_job
from raybus_job_ctrl.decide.world import Phase
from raybus_job_ctrl.observe import observe
from raybus_job_ctrl.settings import JobCtrlSettings
from raybus_job_ctrl.triggers import ROUTES
from support.rayjobs import cluster, head_pod, ray_job, running, service, submitter, tree
from support.scripted import Kube

GRACE = "RAYJOB_DEPLOYMENT_STATUS_TRANSITION_GRACE_PERIOD_SECONDS"
TIMEOUT = "RAYJOB_STATUS_CHECK_TIMEOUT_SECONDS"

VARIABLES = [
    ({}, 300, 300),
    ({GRACE: "15", TIMEOUT: "20"}, 15, 20),
    ({GRACE: "0", TIMEOUT: "0"}, 0, 300),
    ({GRACE: "-5", TIMEOUT: "-5"}, -5, 300),
    ({GRACE: "soon", TIMEOUT: ""}, 300, 300),
    ({GRACE: "inf", TIMEOUT: "nan"}, 300, 300),
    ({GRACE: "-1e300", TIMEOUT: "1e300"}, 300, 300),
]


@pytest.mark.parametrize(("variables", "grace", "timeout"), VARIABLES)
def test_time_limits_of_the_environment(
    variables: dict, grace: float, timeout: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    policy = JobCtrlSettings().policy()
    assert (policy.transition_grace_s, policy.status_check_timeout_s) == (grace, timeout)


def test_the_reference_operators_variables_are_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "CLUSTER_DOMAIN": "k8s.example",
        "ENABLE_LOGIN_SHELL": "TRUE",
        "ENABLE_RAY_HEAD_CLUSTER_IP_SERVICE": "true",
        "DELETE_RAYJOB_CR_AFTER_JOB_FINISHES": "True",
    }.items():
        monkeypatch.setenv(name, value)
    policy = JobCtrlSettings().policy()
    assert policy.cluster_domain == "k8s.example"
    assert policy.login_shell
    assert policy.head_cluster_ip
    assert policy.delete_job_with_cluster
    assert "RayJobDeletionPolicy" in policy.gates


def routed(obj: dict) -> set[RootKey]:
    return {key for route in ROUTES for key in roots_of(route, obj, lambda *_: [RootKey("RayJob", "ml", "train")])}


def test_what_belongs_to_a_rayjob() -> None:
    key = RootKey("RayJob", "ml", "train")
    made = {"labels": {"ray.io/originated-from-cr-name": "train", "ray.io/originated-from-crd": "RayJob"}}
    for obj in (
        ray_job(),
        {"kind": "RayCluster", "apiVersion": "ray.io/v1", "metadata": {"namespace": "ml", "name": "c", **made}},
        {"kind": "Pod", "apiVersion": "v1", "metadata": {"namespace": "ml", "name": "submitter", **made}},
        {
            "kind": "Pod",
            "apiVersion": "v1",
            "metadata": {"namespace": "ml", "name": "head", "labels": {"ray.io/cluster": "c"}},
        },
        submitter_job(ray_job(), cluster(), address="a:1", submission_id="s"),
        job_head_service(ray_job(), cluster()),
    ):
        assert routed(obj) == {key}, obj["kind"]
    by_name = {"ownerReferences": [{"kind": "RayJob", "name": "train", "uid": "u", "controller": True}]}
    assert not routed(
        {"kind": "Job", "apiVersion": "batch/v1", "metadata": {"namespace": "ml", "name": "x", **by_name}}
    )
    foreign = {"labels": {"ray.io/originated-from-cr-name": "train", "ray.io/originated-from-crd": "RayService"}}
    assert not routed(
        {"kind": "RayCluster", "apiVersion": "ray.io/v1", "metadata": {"namespace": "ml", "name": "c", **foreign}}
    )


async def test_a_fresh_read_asks_for_no_more_than_the_gateway_watches() -> None:
    kube = Kube()
    kube.add(ray_job())
    await live.read(kube, ROUTES, tree(ray_job()))
    lists = {what for verb, what in kube.calls if verb == "list"}
    made = "ray.io/originated-from-crd=RayJob"
    assert lists == {
        f"RayCluster?{made},ray.io/originated-from-cr-name=train",
        f"Pod?{made},ray.io/originated-from-cr-name=train",
        f"Service?{made}",
    }


@pytest.mark.parametrize("kind", ["RayService", "RayCronJob"])
def test_kinds_that_are_not_supported_are_trees_of_their_own(kind: str) -> None:
    assert routed({"kind": kind, "apiVersion": "ray.io/v1", "metadata": {"namespace": "ml", "name": "x"}}) == {
        RootKey(kind, "ml", "x")
    }


def test_the_spec_of_the_controller() -> None:
    spec = controller_spec(JobCtrlSettings().policy())
    assert spec.name == "rayjob"
    assert {"RayJob", "RayCluster", "Job", "Pod", "Service"} <= spec.kinds


def test_objects_of_others_are_not_seen() -> None:
    foreign = {
        "ownerReferences": [{"kind": "RayJob", "name": "train", "uid": "of an older RayJob", "controller": True}]
    }
    job = submitter("Complete")
    job["metadata"] |= foreign
    seen = observe(tree(ray_job(running()), cluster(**foreign), job, head_pod(), service()))
    assert seen.cluster is None
    assert seen.head == ""
    assert seen.submitter.phase is Phase.ABSENT


def test_the_living_head() -> None:
    def head(*pods: dict) -> str:
        return observe(tree(ray_job(running()), cluster(), *pods)).head

    assert head() == ""
    assert head(head_pod()) == "pod-1/0"
    assert head(head_pod(restarts=3)) == "pod-1/3"
    assert head(head_pod(creationTimestamp="2026-01-01T00:00:00Z"), head_pod("pod-2")) == "pod-2/0"
    assert head(head_pod(phase="Succeeded")) == ""
    worker = head_pod("pod-3")
    worker["metadata"]["labels"]["ray.io/node-type"] = "worker"
    assert head(worker) == ""
    side = head_pod()
    side["status"]["containerStatuses"].insert(0, {"name": "a-sidecar", "restartCount": 9})
    assert head(side) == "pod-1/0", "only the Ray container counts"
    injected = head_pod(restarts=2)
    injected["spec"]["containers"].insert(0, {"name": "proxy"})
    injected["status"]["containerStatuses"].insert(0, {"name": "proxy", "restartCount": 9})
    assert head(injected) == "pod-1/2", "a webhook's container in front is not Ray's"
    beside = head_pod()
    beside["status"]["containerStatuses"][0]["state"] = {"terminated": {"exitCode": 1}}
    assert head(beside) == "", "the Pod lives on for its other container, the head does not"


def test_the_submitters_conditions() -> None:
    def phase(job: dict) -> Phase:
        return observe(tree(ray_job(running()), job)).submitter.phase

    assert phase(submitter()) is Phase.ACTIVE
    assert phase(submitter("Complete")) is Phase.COMPLETE
    assert phase(submitter("Failed")) is Phase.FAILED
    assert phase(submitter("FailureTarget")) is Phase.ACTIVE
    assert phase(submitter("SuccessCriteriaMet")) is Phase.ACTIVE
