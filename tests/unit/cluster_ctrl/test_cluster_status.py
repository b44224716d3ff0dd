"""Status, conditions and events: what is said after a pass."""

from __future__ import annotations

from datetime import timedelta

import pytest

from raybus.decide.actions import CreatePod, CreateService, DeletePod, PatchRayClusterStatus
from raybus_cluster_ctrl.decide import pipeline
from raybus_cluster_ctrl.decide.policy import Policy
from support.clusters import READY, UNREADY, Kubernetes, actions, cluster, group


def _new(*groups, **spec):
    world = Kubernetes(cluster(*groups, **spec))
    world.reconcile()
    return world


def _concluded(world):
    return pipeline.conclude(world.world(), (), policy=world.policy, now=world.now)


def test_first_status_comes_with_the_first_pass():
    world = _new(group(replicas=2, minReplicas=1, maxReplicas=5))
    (head,) = world.names("headgroup")
    status = world.status
    assert {key: status[key] for key in status if key not in ("conditions", "lastUpdateTime")} == {
        "desiredCPU": "0",
        "desiredMemory": "0",
        "desiredGPU": "0",
        "desiredTPU": "0",
        "desiredWorkerReplicas": 2,
        "minWorkerReplicas": 1,
        "maxWorkerReplicas": 5,
        "observedGeneration": 1,
        "endpoints": {
            "client": "10001", "dashboard": "8265", "gcs-server": "6379", "metrics": "8080", "serve": "8000",
        },
        "head": {"podName": head, "serviceName": "demo-head-svc"},
    }  # fmt: skip
    assert [(c["type"], c["status"], c["reason"]) for c in status["conditions"]] == [
        ("HeadPodReady", "False", "Unknown"),
        ("RayClusterProvisioned", "False", "RayClusterPodsProvisioning"),
        ("RayClusterSuspended", "False", "RayClusterSuspended"),
        ("RayClusterSuspending", "False", "RayClusterSuspending"),
    ]


def test_ready_when_all_pods_run():
    world = _new(group(replicas=2))
    world.run()
    world.settle()
    assert world.status["state"] == "ready"
    assert list(world.status["stateTransitionTimes"]) == ["ready"]
    assert world.status["availableWorkerReplicas"] == world.status["readyWorkerReplicas"] == 2
    assert world.status["head"]["podIP"] == world.status["head"]["serviceIP"] == "10.0.0.1"
    assert world.condition("HeadPodReady")["reason"] == "HeadPodRunningAndReady"
    assert world.condition("RayClusterProvisioned")["reason"] == "AllPodRunningAndReadyFirstTime"


def test_one_pending_worker_is_not_ready():
    world = _new(group(replicas=2))
    world.run(*world.names("headgroup"), world.names("w")[0])
    world.settle()
    assert "state" not in world.status
    assert world.condition("RayClusterProvisioned")["status"] == "False"
    assert world.status["availableWorkerReplicas"] == 1


def test_a_running_pod_without_a_ready_condition_passes_but_is_not_counted_as_ready():
    world = _new(group(replicas=1))
    world.run(conditions=[])
    world.settle()
    assert world.status["state"] == "ready"
    assert "readyWorkerReplicas" not in world.status


def test_the_head_alone_may_be_provisioned_but_is_not_ready():
    world = _new(group(replicas=1))
    world.delete(world.names("w")[0])
    world.refuse[CreatePod] = "quota"
    world.run()
    world.reconcile()
    assert world.condition("RayClusterProvisioned")["status"] == "True"
    assert "state" not in world.status


def test_pods_of_a_removed_group_keep_it_from_being_ready():
    world = _new(group("a", 1), group("b", 1))
    world.spec(workerGroupSpecs=[group("a", 1)])
    world.run()
    world.settle()
    assert "state" not in world.status
    assert world.condition("RayClusterProvisioned")["status"] == "True"


def test_without_any_pod_nothing_is_provisioned():
    world = Kubernetes(cluster())
    world.refuse[CreatePod] = "quota"
    world.reconcile()
    assert world.condition("RayClusterProvisioned")["status"] == "False"


def test_a_lost_head_is_told_at_once_and_provisioned_stays():
    world = _new()
    world.run()
    world.settle()
    (head,) = world.names()
    world.refuse[CreatePod] = "no"
    world.delete(head)
    world.reconcile()
    assert world.condition("HeadPodReady")["reason"] == "HeadPodNotFound"
    assert world.condition("HeadPodReady")["status"] == "False"
    assert world.condition("RayClusterProvisioned")["status"] == "True"
    assert world.status["head"] == {"serviceName": "demo-head-svc"}
    assert world.status["state"] == "ready"


def test_the_time_of_a_condition_moves_with_its_status_alone():
    world = _new()
    first = world.condition("HeadPodReady")["lastTransitionTime"]
    world.now += timedelta(seconds=30)
    world.run(phase="Pending", conditions=[UNREADY])
    world.settle()
    assert world.condition("HeadPodReady")["reason"] == "ContainersNotReady"
    assert world.condition("HeadPodReady")["lastTransitionTime"] == first
    world.run()
    world.settle()
    assert world.condition("HeadPodReady")["lastTransitionTime"] > first


@pytest.mark.parametrize(
    ("statuses", "reason", "message"),
    [
        (
            [{"name": "a", "state": {"running": {}}},
             {"name": "b", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}],
            "ImagePullBackOff", "unready; b: no such image",
        ),
        ([{"name": "a", "state": {"terminated": {"reason": "Error"}}}], "Error", "unready; a: "),
        ([], "ContainersNotReady", "unready"),
        ([{"name": "a", "state": {"waiting": {"reason": "not a reason"}}}], "Unknown", "unready; a: "),
    ],
)  # fmt: skip
def test_an_unready_head_tells_about_its_first_container_that_does_not_run(statuses, reason, message):
    world = _new()
    world.run(phase="Pending", conditions=[UNREADY], containerStatuses=statuses)
    world.settle()
    condition = world.condition("HeadPodReady")
    assert (condition["status"], condition["reason"], condition["message"]) == ("False", reason, message)


def test_a_ready_condition_of_unknown_status_is_copied():
    world = _new()
    world.run(conditions=[{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}])
    world.settle()
    assert world.condition("HeadPodReady")["status"] == "Unknown"
    assert world.condition("HeadPodReady")["reason"] == "NodeStatusUnknown"


class TestWrites:
    def test_a_status_that_means_the_same_is_not_written(self):
        world = _new()
        world.spec(rayVersion="2.52.0")
        world.now += timedelta(hours=1)
        assert _concluded(world).steps == ()

    def test_counters_alone_wait_a_second_and_are_written_then(self):
        world = _new(group(replicas=2))
        world.run()
        world.settle()
        written = world.now
        world.run(world.names("w")[0], conditions=[UNREADY])
        world.reconcile()
        world.run(world.names("w")[1], conditions=[UNREADY])
        waiting = _concluded(world)
        assert waiting.steps == ()
        assert written < waiting.wake_at <= written + timedelta(seconds=1)
        world.now = waiting.wake_at
        (patch,) = actions(_concluded(world), PatchRayClusterStatus)
        assert "readyWorkerReplicas" not in patch.status

    def test_conditions_do_not_wait(self):
        world = _new()
        world.run()
        plan = _concluded(world)
        assert len(actions(plan, PatchRayClusterStatus)) == 1

    def test_the_patch_rests_on_what_was_read(self):
        world = _new()
        world.run()
        (patch,) = actions(_concluded(world), PatchRayClusterStatus)
        assert (patch.uid, patch.resource_version, patch.previous) == ("uid-demo", "1", world.status)


class TestEndpointsAndHead:
    def test_node_ports_are_preferred_and_old_entries_stay(self):
        world = _new()
        service = world.objects["Service", "demo-head-svc"]
        ports = [{"name": "dashboard", "port": 8265, "targetPort": 8265, "nodePort": 30001}, {"port": 1}]
        world.put({**service, "spec": {"clusterIP": "10.1.1.1", "ports": ports}})
        world.settle()
        assert world.status["endpoints"]["dashboard"] == "30001"
        assert world.status["endpoints"]["client"] == "10001"
        assert world.status["head"]["serviceIP"] == "10.1.1.1"

    def test_without_a_service_what_is_known_is_told(self):
        world = Kubernetes(cluster())
        world.refuse[CreateService] = "quota"
        world.reconcile()
        assert "serviceName" not in world.status["head"]
        assert "endpoints" not in world.status
        assert world.condition("HeadPodReady")


class TestFailures:
    def test_a_refused_head_is_told_and_forgotten_with_the_first_clean_pass(self):
        world = Kubernetes(cluster(group()))
        world.refuse[CreatePod] = "exceeded quota: compute"
        world.reconcile()
        failure = world.condition("ReplicaFailure")
        assert (failure["status"], failure["reason"]) == ("True", "FailedCreateHeadPod")
        assert failure["message"] == "FailedCreateHeadPod\nexceeded quota: compute"
        assert world.status["conditions"][0]["type"] == "ReplicaFailure"
        assert {"FailedToCreateHeadPod", "FailedToCreateWorkerPod"} <= set(world.reasons())
        notes = [note for _, reason, note in world.events if reason == "FailedToCreateHeadPod"]
        assert "Failed to create head Pod" in notes[0]
        assert "exceeded quota" in notes[0]
        world.refuse.clear()
        world.reconcile()
        assert world.condition("ReplicaFailure") == {}

    def test_another_failure_neither_sets_nor_removes_it(self):
        world = Kubernetes(cluster())
        world.refuse[CreatePod] = "no"
        world.reconcile()
        world.refuse = {CreateService: "no"}
        world.delete("demo-head-svc", "Service")
        world.reconcile()
        assert world.condition("ReplicaFailure")["reason"] == "FailedCreateHeadPod"

    def test_a_deletion_that_fails(self):
        world = _new(group(replicas=1))
        world.run()
        world.settle()
        world.refuse[DeletePod] = "webhook says no"
        world.spec(workerGroupSpecs=[group(replicas=0)])
        world.reconcile()
        assert world.condition("ReplicaFailure")["reason"] == "FailedDeleteWorkerPod"
        assert "FailedToDeleteWorkerPod" in world.reasons()

    def test_a_pass_with_an_error_is_not_ready(self):
        world = Kubernetes(cluster(group(replicas=1)))
        world.refuse[CreateService] = "no"
        world.reconcile()
        world.run()
        world.reconcile()
        assert "state" not in world.status


class TestEvents:
    def test_one_event_for_each_group_and_pass(self):
        world = _new(group("a", 2), group("b", 1))
        by_slot = sorted(world.pods("a"), key=lambda pod: pod["metadata"]["annotations"]["raybus.io/slot"])
        a1, a2 = (pod["metadata"]["name"] for pod in by_slot)
        (b1,) = world.names("b")
        told = [(reason, note) for _, reason, note in world.events if "Worker" in reason]
        assert told == [
            ("CreatedWorkerPod", f"Created 2 Pods of group a: {a1}, {a2}"),
            ("CreatedWorkerPod", f"Created worker Pod ns1/{b1}"),
        ]
        assert [note for _, reason, note in world.events if reason == "CreatedHeadPod"] == [
            f"Created head Pod ns1/{world.names('headgroup')[0]}"
        ]

    def test_many_pods_fit_into_a_note(self):
        world = _new(group(replicas=60, maxReplicas=60))
        (note,) = [note for _, reason, note in world.events if reason == "CreatedWorkerPod"]
        assert note.startswith("Created 60 Pods of group w: ")
        assert note.endswith("and 52 more")
        assert len(note.encode()) <= 1024

    def test_a_long_refusal_is_cut(self):
        world = Kubernetes(cluster())
        world.refuse[CreatePod] = "ä" * 2000
        world.reconcile()
        (note,) = [note for _, reason, note in world.events if reason == "FailedToCreateHeadPod"]
        assert 1000 < len(note.encode()) <= 1024

    def test_a_deleted_head_says_why(self):
        world = _new()
        world.run(phase="Failed", reason="Evicted", message="disk")
        world.reconcile()
        (note,) = [note for _, reason, note in world.events if reason == "DeletedHeadPod"]
        assert "Evicted: disk" in note

    def test_deleted_workers(self):
        world = _new(group(replicas=3))
        world.run()
        world.settle()
        world.spec(workerGroupSpecs=[group(replicas=0)])
        world.reconcile()
        (note,) = [note for _, reason, note in world.events if reason == "DeletedWorkerPod"]
        assert note.startswith("Deleted 3 Pods of group w: ")
        assert "wants 0" in note


def test_conditions_gate_off():
    world = Kubernetes(cluster(), Policy(gates=frozenset()))
    world.reconcile()
    assert "conditions" not in world.status
    world.run(conditions=[READY])
    world.settle()
    assert world.status["state"] == "ready"


def test_desired_numbers():
    world = _new(group("a", 9, maxReplicas=2), group("b", 0, minReplicas=3))
    assert world.status["desiredWorkerReplicas"] == 5
    world.spec(workerGroupSpecs=[])
    world.run()
    world.now += timedelta(seconds=5)
    world.settle()
    assert "desiredWorkerReplicas" not in world.status
    assert "maxWorkerReplicas" not in world.status
