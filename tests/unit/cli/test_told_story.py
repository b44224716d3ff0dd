"""The lines that `raybus run` prints, and its verdicts."""

from __future__ import annotations

import pytest

from raybus.cli import story
from raybus.cli.story import View


def rayjob(**status):
    return {"metadata": {"name": "hello", "namespace": "default"}, "status": status}


def test_nothing_new_prints_nothing():
    view = View(deployment="Running", job="RUNNING", job_id="hello-1", cluster="hello-c")
    assert story.news(view, view) == []


def test_each_step_is_told_once_and_in_order():
    end = View(
        cluster="hello-c", cluster_state="ready", head_ready=True, workers_ready=1, workers_wanted=1,
        submitter="hello-x", job_id="hello-1", job="RUNNING",
    )  # fmt: skip
    assert story.news(View(), end) == [
        "cluster hello-c: starting",
        "cluster hello-c: head is ready",
        "cluster hello-c: 1 of 1 workers ready",
        "cluster hello-c: ready",
        "submitter hello-x: started, submission id hello-1",
        "job hello-1: RUNNING",
    ]


def test_a_warning_is_shown_once():
    event = {"type": "Warning", "reason": "FailedToCreateHeadPod", "note": "quota", "metadata": {}}
    seen = story.view_of_cluster({"metadata": {"name": "c"}}, [event, dict(event)])
    assert story.news(View(cluster="c"), seen) == ["warning FailedToCreateHeadPod: quota"]
    assert story.news(seen, seen) == []


INVALID = ("FailedToCreateHeadPod", 'Pod "x" is invalid: spec.containers[0].image: Required value')
QUOTA = ("FailedToCreateHeadPod", "pods is forbidden: exceeded quota")
ASKED = ("NotSupported", "ns/x: not supported yet: spec.suspend: true")


@pytest.mark.parametrize(
    ("deployment", "warning", "ends"),
    [
        ("", ASKED, True),
        ("Initializing", ASKED, True),
        ("Running", ASKED, False),
        ("Initializing", INVALID, True),
        ("Initializing", QUOTA, False),
    ],
)
def test_what_can_never_work_ends_the_following_and_is_told_once(deployment, warning, ends):
    view = View(deployment=deployment, warnings=(warning,))
    assert story.refused(view) == (warning[1] if ends else "")
    assert story.news(View(), view) == ([] if ends else [f"warning {warning[0]}: {warning[1]}"])


def test_the_view_reads_cluster_and_submitter():
    cluster = {
        "metadata": {"name": "hello-c"},
        "status": {
            "state": "ready", "readyWorkerReplicas": 2, "desiredWorkerReplicas": 3,
            "conditions": [{"type": "HeadPodReady", "status": "True"}],
        },
    }  # fmt: skip
    pods = [
        {"metadata": {"name": "hello-1"}, "status": {"phase": "Failed"}},
        {"metadata": {"name": "hello-2"}, "status": {"phase": "Pending"}},
    ]
    view = story.view_of_job(rayjob(jobDeploymentStatus="Running", jobId="j"), cluster, pods, [])
    assert (view.cluster, view.head_ready, view.workers_ready, view.workers_wanted) == ("hello-c", True, 2, 3)
    assert view.submitter == "hello-1"


@pytest.mark.parametrize(
    ("view", "code", "words"),
    [
        (View(deployment="Complete", job="SUCCEEDED", message="fine"), 0, "SUCCEEDED: fine"),
        (View(deployment="Complete", job="STOPPED"), 3, "STOPPED"),
        (
            View(deployment="Failed", job="FAILED", reason="AppFailed", message="exit code 3"),
            1,
            "AppFailed: exit code 3",
        ),
        (View(deployment="Failed", job="SUCCEEDED", reason="DeadlineExceeded"), 1, "FAILED: DeadlineExceeded"),
        (View(deployment="ValidationFailed", message="spec.entrypoint is empty"), 2, "not run: spec.entrypoint"),
    ],
)
def test_the_exit_code_is_the_verdict(view, code, words):
    got, line = story.verdict(view)
    assert got == code
    assert words in line


def test_a_refused_object_is_known_by_its_warning():
    view = View(warnings=(("CreatedPod", "x"), ("InvalidRayClusterSpec", "spec.headGroupSpec has no container")))
    assert story.refused(view) == "spec.headGroupSpec has no container"
    assert story.refused(View(warnings=(("FailedToCreateHeadPod", "quota"),))) == ""


def test_what_keeps_a_pod_from_running_is_told_but_is_no_refusal():
    events = [
        {"type": "Warning", "reason": "Failed", "note": "the command needs Ray", "metadata": {}},
        {"type": "Warning", "reason": "InvalidImageName", "note": "bad name", "metadata": {}},
        {"type": "Warning", "reason": "Unhealthy", "note": "Readiness probe failed", "metadata": {}},
    ]
    view = View(cluster="c", pod_warnings=story.pod_warnings_of(events))
    assert story.news(View(cluster="c"), view) == [
        "warning Failed: the command needs Ray",
        "warning InvalidImageName: bad name",
    ]
    assert story.refused(view) == ""
