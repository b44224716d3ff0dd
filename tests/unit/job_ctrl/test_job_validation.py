from __future__ import annotations

import pytest

from raybus.decide.actions import PatchRayJobStatus, RecordEvent
from raybus_job_ctrl.decide.pipeline import decide
from raybus_job_ctrl.decide.policy import Policy
from raybus_job_ctrl.observe import observe
from support.rayjobs import (
    CLUSTER_SPEC,
    NOW,
    RootKey,
    cluster,
    concluded,
    decided,
    names,
    only,
    ray_job,
    running,
    status_after,
    tree,
    world,
)

HEAD = CLUSTER_SPEC["headGroupSpec"]
NO_DASHBOARD = {
    "headGroupSpec": {
        "template": {"spec": {"containers": [{"name": "h", "ports": [{"name": "x", "containerPort": 1}]}]}}
    }
}


def template(**pod) -> dict:
    return {"spec": {"containers": [{"name": "c"}], **pod}}


# What is given, and the field that the refusal must name.
REFUSED = [
    ({"ttlSecondsAfterFinished": -1, "shutdownAfterJobFinishes": True}, "spec.ttlSecondsAfterFinished"),
    ({"ttlSecondsAfterFinished": 5}, "spec.shutdownAfterJobFinishes"),
    ({"rayClusterSpec": None}, "spec.rayClusterSpec"),
    ({"rayClusterSpec": None, "clusterSelector": {}}, "spec.rayClusterSpec"),
    ({"rayClusterSpec": {}}, "headGroupSpec"),
    (
        {"rayClusterSpec": {"headGroupSpec": {"template": {"spec": {"containers": []}}}}},
        "spec.rayClusterSpec.headGroupSpec.template.spec.containers",
    ),
    (
        {"rayClusterSpec": {**CLUSTER_SPEC, "authOptions": {"mode": "token", "enableK8sTokenAuth": True}}},
        "enableK8sTokenAuth",
    ),
    ({"runtimeEnvYAML": "some_text"}, "spec.runtimeEnvYAML"),
    ({"runtimeEnvYAML": "{"}, "spec.runtimeEnvYAML"),
    ({"activeDeadlineSeconds": 0}, "spec.activeDeadlineSeconds"),
    ({"preRunningDeadlineSeconds": -2}, "spec.preRunningDeadlineSeconds"),
    ({"backoffLimit": -1}, "spec.backoffLimit"),
    ({"submissionMode": "Magic"}, "spec.submissionMode"),
    ({"entrypoint": None}, "spec.entrypoint"),
    ({"entrypoint": " \n"}, "spec.entrypoint"),
    ({"entrypoint": "a\0b"}, "spec.entrypoint"),
    ({"entrypoint": "", "submissionMode": "HTTPMode"}, "spec.entrypoint"),
    ({"entrypoint": "", "submitterPodTemplate": template()}, "spec.entrypoint"),
    ({"entrypointResources": '{"R": "2"}'}, "spec.entrypointResources"),
    ({"metadata": {"k": "v"}, "rayClusterSpec": {**CLUSTER_SPEC, "rayVersion": "2.5.0"}}, "spec.metadata"),
    ({"submitterPodTemplate": template(containers=[])}, "spec.submitterPodTemplate.spec.containers"),
    ({"submitterPodTemplate": template(restartPolicy="Always")}, "restartPolicy"),
    ({"rayClusterSpec": NO_DASHBOARD}, "dashboard"),
    ({"runtimeEnvYAML": "env_vars: {PIN: 1234}"}, "spec.runtimeEnvYAML: env_vars.PIN must be text"),
    ({"runtimeEnvYAML": "env_vars: [A]"}, "spec.runtimeEnvYAML: env_vars"),
    ({"jobId": "--help"}, "spec.jobId"),
    ({"entrypoint": "python -c '" + "#" * 131_072 + "'"}, "spec.entrypoint"),
    (
        {"rayClusterSpec": {**CLUSTER_SPEC, "upgradeStrategy": {"type": "Recreate"}}},
        "spec.rayClusterSpec.upgradeStrategy",
    ),
]


@pytest.mark.parametrize(("spec", "field"), REFUSED)
def test_a_refusal_names_the_field_and_nothing_is_made(spec: dict, field: str) -> None:
    seen = world(ray_job(**spec, meta={"finalizers": []}))
    event = only(decided(seen), RecordEvent)
    assert (event.type, event.event_reason, event.action) == ("Warning", "InvalidRayJobSpec", "Validate")
    assert event.note.startswith("ml/train: ")
    assert field in event.note
    assert names(decided(seen)) == ["RecordEvent"]
    status = status_after(seen)
    assert (status["jobDeploymentStatus"], status["reason"]) == ("ValidationFailed", "ValidationFailed")
    assert field in status["message"]
    assert "endTime" not in status
    assert (status["succeeded"], status["failed"], status["rayJobInfo"]) == (0, 0, {})
    assert status["rayClusterStatus"] == {
        "desiredCPU": "0", "desiredMemory": "0", "desiredGPU": "0", "desiredTPU": "0", "head": {},
    }  # fmt: skip


FINE = [
    {},
    {"runtimeEnvYAML": ""},
    {"shutdownAfterJobFinishes": True, "ttlSecondsAfterFinished": 5},
    {"submissionMode": "HTTPMode", "metadata": {"k": "v"}, "rayClusterSpec": {**CLUSTER_SPEC, "rayVersion": "2.5.0"}},
    {"metadata": {"k": "v"}, "rayClusterSpec": {**CLUSTER_SPEC, "rayVersion": "2.40"}},
    {"metadata": {"k": "v"}, "rayClusterSpec": {**CLUSTER_SPEC, "rayVersion": "nightly"}},
    {"metadata": {"k": "v"}, "rayClusterSpec": {"headGroupSpec": HEAD}},
    {"entrypoint": "", "submitterPodTemplate": {"spec": {"containers": [{"name": "c", "command": ["/submit"]}]}}},
    {"submitterPodTemplate": template(restartPolicy="OnFailure")},
    {"backoffLimit": 0},
    {"entrypointResources": '{"R": 1.5}'},
    {"runtimeEnvYAML": "env_vars: {PIN: '1234', EMPTY: ''}"},
    {"jobId": "--help", "submissionMode": "HTTPMode"},
    {"entrypoint": "python -c '" + "#" * 131_072 + "'", "submissionMode": "HTTPMode"},
]


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        ({"rayClusterSpec": {"headGroupSpec": []}}, "spec.rayClusterSpec.headGroupSpec: should be an object"),
        ({"rayClusterSpec": "small"}, "spec.rayClusterSpec: should be an object"),
        ({"deletionStrategy": {"deletionRules": "all"}}, "spec.deletionStrategy.deletionRules: should be a list"),
        ({"backoffLimit": "3"}, "spec.backoffLimit: should be a valid integer, not '3'"),
        ({"submitterPodTemplate": []}, "spec.submitterPodTemplate: should be an object"),
    ],
)
def test_a_spec_that_a_laxer_definition_let_pass_fails_validation_and_crashes_nothing(spec: dict, named: str) -> None:
    seen = world(ray_job(**spec))
    event = only(decided(seen), RecordEvent)
    assert event.event_reason == "InvalidRayJobSpec"
    assert named in event.note
    status = status_after(seen)
    assert (status["jobDeploymentStatus"], status["reason"]) == ("ValidationFailed", "ValidationFailed")
    assert named in status["message"]


def test_a_refusal_does_not_repeat_a_value_that_may_be_secret() -> None:
    for text in ("env_vars: {PIN: 1234567}", "env_vars: {PIN: !!int hunter1234567}", "env_vars: {PIN: 1234567"):
        event = only(decided(world(ray_job(runtimeEnvYAML=text))), RecordEvent)
        assert "spec.runtimeEnvYAML" in event.note
        assert "1234567" not in event.note


@pytest.mark.parametrize("spec", FINE)
def test_what_can_work_is_let_through(spec: dict) -> None:
    assert "RecordEvent" not in names(decided(world(ray_job(**spec))))
    assert status_after(world(ray_job(**spec)))["jobDeploymentStatus"] == "Initializing"


@pytest.mark.parametrize(
    ("name", "fine"), [("a" * 47, True), ("a" * 48, False), ("1st", False), ("a.b", False), ("a-", False)]
)
def test_names_must_leave_room_for_what_is_made_from_them(name: str, *, fine: bool) -> None:
    seen = observe(tree(ray_job(meta={"name": name}), key=RootKey("RayJob", "ml", name)))
    events = [action for action in decided(seen).actions if isinstance(action, RecordEvent)]
    assert (not events) is fine
    if events:
        assert events[0].event_reason == "InvalidRayJobMetadata"
        assert "metadata.name" in events[0].note


def test_a_refusal_is_told_once_and_again_when_the_reason_changes() -> None:
    seen = world(ray_job(ttlSecondsAfterFinished=-1))
    refused = status_after(seen)
    same = world(ray_job(refused, ttlSecondsAfterFinished=-1))
    assert decided(same).actions == ()
    assert concluded(same).actions == ()
    other = world(ray_job(refused, entrypoint=""))
    assert names(decided(other)) == ["RecordEvent"]
    assert "entrypoint" in status_after(other)["message"]


def test_a_mended_spec_begins_anew() -> None:
    refused = status_after(world(ray_job(entrypoint="")))
    status = status_after(world(ray_job(refused)))
    assert "jobDeploymentStatus" not in status
    assert "reason" not in status
    assert "message" not in status
    assert status_after(world(ray_job(status)))["jobDeploymentStatus"] == "Initializing"


def test_one_that_had_begun_stays_refused() -> None:
    status = running(jobDeploymentStatus="ValidationFailed", reason="ValidationFailed", message="m")
    assert concluded(world(ray_job(status))).actions == ()


def test_rules_that_only_raybus_has_do_not_stop_what_runs() -> None:
    assert (
        status_after(world(ray_job(running("RUNNING"), entrypoint=""), cluster()))["jobDeploymentStatus"] == "Running"
    )
    refused = status_after(world(ray_job(running("RUNNING"), ttlSecondsAfterFinished=-1), cluster()))
    assert (refused["jobDeploymentStatus"], refused["jobStatus"]) == ("ValidationFailed", "RUNNING")


@pytest.mark.parametrize("state", ["Complete", "Failed"])
def test_a_verdict_is_not_touched_by_a_later_edit(state: str) -> None:
    seen = world(
        ray_job(
            running("SUCCEEDED", jobDeploymentStatus=state, endTime="2026-03-01T11:00:00Z"), ttlSecondsAfterFinished=-1
        )
    )
    assert decided(seen).actions == ()
    assert concluded(seen).actions == ()


UNSUPPORTED = [
    ({"clusterSelector": {"ray.io/cluster": "c"}}, "spec.clusterSelector"),
    ({"submissionMode": "InteractiveMode", "entrypoint": ""}, "spec.submissionMode: InteractiveMode"),
    ({"submissionMode": "SidecarMode"}, "spec.submissionMode: SidecarMode"),
    ({"suspend": True, "shutdownAfterJobFinishes": True}, "spec.suspend: true"),
    ({"backoffLimit": 2}, "spec.backoffLimit: 2"),
    ({"activeDeadlineSeconds": 5}, "spec.activeDeadlineSeconds: 5"),
    ({"preRunningDeadlineSeconds": 5}, "spec.preRunningDeadlineSeconds: 5"),
    ({"deletionStrategy": {"deletionRules": []}}, "spec.deletionStrategy"),
]


@pytest.mark.parametrize(("spec", "words"), UNSUPPORTED)
def test_what_is_not_supported_yet_gets_a_warning_and_no_action(spec: dict, words: str) -> None:
    seen = world(ray_job(**spec, meta={"finalizers": []}))
    event = only(decided(seen), RecordEvent)
    assert (event.type, event.event_reason) == ("Warning", "NotSupported")
    assert words in event.note
    assert names(decided(seen)) == ["RecordEvent"]
    assert concluded(seen).actions == ()


def test_an_edit_that_asks_for_it_does_not_stop_what_runs() -> None:
    seen = world(ray_job(running("RUNNING"), suspend=True, backoffLimit=3), cluster())
    assert "RecordEvent" in names(decided(seen))
    assert decided(world(ray_job(running("RUNNING"), clusterSelector={"ray.io/cluster": "c"}))).probes == ()
    assert concluded(world(ray_job(running("RUNNING"), clusterSelector={"ray.io/cluster": "c"}))).actions == ()


@pytest.mark.parametrize("edit", [{"submissionMode": "SidecarMode"}, {"clusterSelector": {"ray.io/cluster": "c"}}])
def test_an_edit_of_how_the_job_gets_to_its_cluster_comes_too_late(edit: dict) -> None:
    """What was begun is followed to its end, and tidied up."""
    own = cluster(labels={"ray.io/job-submission-mode": "K8sJobMode"})
    plan = decided(world(ray_job(running("RUNNING"), **edit), own))
    assert names(plan)[0] == "RecordEvent"
    assert plan.probes
    ended = running("SUCCEEDED", jobDeploymentStatus="Complete", endTime="2026-03-01T11:00:00Z")
    plan = decided(world(ray_job(ended, shutdownAfterJobFinishes=True, **edit), own))
    assert names(plan) == ["RecordEvent", "DeleteRayCluster"]


def test_the_mode_that_a_job_was_begun_with_counts() -> None:
    own = cluster(labels={"ray.io/job-submission-mode": "HTTPMode"})
    assert world(ray_job(running("RUNNING")), own).mode == "HTTPMode"
    assert (
        world(ray_job(running("RUNNING")), cluster(labels={"ray.io/job-submission-mode": "odd"})).mode == "K8sJobMode"
    )
    assert world(ray_job(running("RUNNING"), submissionMode="HTTPMode"), cluster()).mode == "HTTPMode"


@pytest.mark.parametrize("kind", ["RayService", "RayCronJob"])
def test_other_kinds_get_a_warning_and_no_action(kind: str) -> None:
    root = {"kind": kind, "metadata": {"name": "x", "namespace": "ml", "uid": "u", "resourceVersion": "1"}}
    seen = observe(tree(root, key=RootKey(kind, "ml", "x")))
    event = only(decide(seen, policy=Policy(), now=NOW), RecordEvent)
    assert kind in event.note
    assert concluded(seen).actions == ()


@pytest.mark.parametrize("state", ["Suspended", "Suspending", "Retrying", "Waiting", "Odd"])
def test_a_state_of_another_operator_is_left_alone(state: str) -> None:
    seen = world(ray_job(running(jobDeploymentStatus=state)))
    assert names(decided(seen)) == ["RecordEvent"]
    assert state in only(decided(seen), RecordEvent).note
    assert concluded(seen).actions == ()


def test_an_object_that_another_manager_has_is_not_touched_even_when_invalid_or_deleted() -> None:
    for meta in ({}, {"deletionTimestamp": "2026-03-01T11:00:00Z"}):
        seen = world(ray_job(managedBy="kueue.x-k8s.io/multikueue", entrypoint="", meta=meta))
        assert decided(seen).actions == ()
        assert concluded(seen).actions == ()
    ours = world(ray_job(managedBy="ray.io/kuberay-operator"))
    assert only(concluded(ours), PatchRayJobStatus)


def test_an_object_that_is_gone_needs_nothing() -> None:
    assert decided(world(None)).actions == ()
    assert concluded(world(None)).actions == ()
