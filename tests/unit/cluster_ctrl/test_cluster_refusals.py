"""Objects that are left alone: one clear event at most, and nothing else."""

from __future__ import annotations

import pytest

from raybus.decide.actions import RecordEvent
from raybus_cluster_ctrl.decide import pipeline
from raybus_cluster_ctrl.decide.policy import Policy
from support.clusters import Kubernetes, cluster, group


def _only_event(root, **policy):
    world = Kubernetes(root, Policy(**policy))
    plan = world.reconcile()
    assert world.writes == 0
    assert "status" not in world.root
    (event,) = plan.actions
    assert isinstance(event, RecordEvent)
    assert (event.type, event.action) == ("Warning", "Validate")
    return event


def test_a_name_too_long():
    event = _only_event(cluster(name="a" * 54))
    assert event.event_reason == "InvalidRayClusterMetadata"
    assert "53" in event.note


def test_a_spec_that_cannot_work_names_the_field():
    event = _only_event(cluster(group(minReplicas=3, maxReplicas=1)))
    assert event.event_reason == "InvalidRayClusterSpec"
    assert "workerGroupSpecs[0]" in event.note
    assert "ns1/demo" in event.note


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        ({"workerGroupSpecs": "none"}, "spec.workerGroupSpecs: should be a list"),
        ({"workerGroupSpecs": ["w"]}, "spec.workerGroupSpecs[0]: should be an object"),
        ({"headGroupSpec": []}, "spec.headGroupSpec: should be an object"),
        ({"autoscalerOptions": {"idleTimeoutSeconds": "5m"}}, "spec.autoscalerOptions.idleTimeoutSeconds"),
    ],
)
def test_a_spec_that_a_laxer_definition_let_pass_is_refused_and_crashes_nothing(spec, named):
    event = _only_event(cluster(**spec))
    assert event.event_reason == "InvalidRayClusterSpec"
    assert named in event.note


def test_equal_group_names_are_refused():
    assert "'w'" in _only_event(cluster(group(), group())).note


def test_an_upgrade_strategy_of_a_jobs_cluster():
    root = cluster(upgradeStrategy={"type": "None"})
    root["metadata"]["labels"] = {"ray.io/originated-from-crd": "RayJob"}
    assert _only_event(root).event_reason == "InvalidRayClusterSpec"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"suspend": True}, "spec.suspend"),
        ({"gcsFaultToleranceOptions": {}}, "gcsFaultToleranceOptions"),
        ({"upgradeStrategy": {"type": "Recreate"}}, "upgradeStrategy"),
        ({"workerGroupSpecs": [group("tpu", numOfHosts=2)]}, "numOfHosts above 1 (group tpu)"),
        ({"workerGroupSpecs": [group("idle", suspend=True)]}, "spec.workerGroupSpecs[].suspend true (group idle)"),
        ({"networkPolicy": {}}, "spec.networkPolicy"),
        ({"tlsOptions": {"enabled": True}}, "spec.tlsOptions"),
        ({"historyServerOptions": {}}, "spec.historyServerOptions"),
    ],
)
def test_what_comes_later_is_said_and_not_half_done(change, named):
    gates = {"RayJobDeletionPolicy", "RayClusterNetworkPolicy", "RayClusterMTLS", "RayClusterHistoryServer"}
    event = _only_event(cluster(**change), gates=frozenset(gates))
    assert event.event_reason == "NotSupported"
    assert named in event.note


def test_the_older_annotation_for_fault_tolerance_and_the_serve_service():
    for key in ("ray.io/ft-enabled", "ray.io/enable-serve-service"):
        root = cluster()
        root["metadata"]["annotations"] = {key: "true"}
        assert _only_event(root).event_reason == "NotSupported"


def test_contradicting_conditions():
    root = cluster()
    both = [{"type": t, "status": "True"} for t in ("RayClusterSuspending", "RayClusterSuspended")]
    root["status"] = {"conditions": both}
    world = Kubernetes(root)
    world.reconcile()
    assert world.reasons() == ["InvalidRayClusterStatus"]
    assert world.writes == 0


def _silent(root):
    world = Kubernetes(root)
    plan = world.reconcile()
    assert plan.actions == ()
    assert world.writes == 0
    assert world.events == []


@pytest.mark.parametrize("manager", ["kueue.x-k8s.io/multikueue", ""])
def test_a_cluster_that_another_manages(manager):
    _silent(cluster(managedBy=manager))


def test_a_cluster_that_another_manages_may_be_invalid():
    _silent(cluster(group(), group(), managedBy="kueue.x-k8s.io/multikueue"))


def test_a_cluster_that_is_being_deleted_is_left_to_kubernetes():
    root = cluster()
    root["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    _silent(root)


def test_a_cluster_that_is_gone():
    world = Kubernetes(cluster())
    world.root = None
    assert world.decide().actions == ()
    assert pipeline.conclude(world.world(), (), policy=world.policy, now=world.now).steps == ()
