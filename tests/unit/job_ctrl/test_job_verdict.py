"""What the evidence means: rows of evidence and the status that follows."""

from __future__ import annotations

import pytest

from raybus_job_ctrl.decide.policy import Policy
from support.rayjobs import (
    CLUSTER_SPEC,
    at,
    cluster,
    concluded,
    decided,
    head_pod,
    known,
    ray_job,
    record,
    running,
    service,
    stamp,
    status_after,
    submitter,
    world,
)

ENDED = {"rayJobInfo": {"startTime": stamp(-40), "endTime": stamp(-10)}}
STILL = submitter()
DONE = submitter("Complete")
DEAD = submitter("Failed")


def seen(status: dict, *objects: dict, fact: dict | None = None, meta: dict | None = None, **spec):
    """A Running RayJob whose head is remembered, with its cluster, head and Service."""
    job = ray_job(status, known() if meta is None else meta, **spec)
    standing = [obj for obj in (cluster(), head_pod(), service()) if obj["kind"] not in {o["kind"] for o in objects}]
    return world(job, *standing, *objects, fact=fact)


def pair(status: dict) -> tuple[str, str, str]:
    return status["jobDeploymentStatus"], status.get("jobStatus", ""), status.get("reason", "")


# The evidence, and the (deployment, job, reason) that follows. No reason: none.
ROWS = [
    ("nothing is known yet", running(), STILL, None, ("Running", "", "")),
    ("Ray does not know it yet", running(), STILL, {}, ("Running", "", "")),
    ("pending", running(), STILL, {"record": record("PENDING")}, ("Running", "PENDING", "")),
    ("runs", running("PENDING"), STILL, {"record": record("RUNNING")}, ("Running", "RUNNING", "")),
    ("a word we do not know", running(), STILL, {"record": record("DANCING")}, ("Running", "DANCING", "")),
    ("succeeded, log is still followed", running("RUNNING"), STILL, {"record": record("SUCCEEDED")}, ("Running", "SUCCEEDED", "")),
    ("succeeded, submitter done", running("RUNNING"), DONE, {"record": record("SUCCEEDED")}, ("Complete", "SUCCEEDED", "")),
    ("succeeded, submitter dead", running("RUNNING"), DEAD, {"record": record("SUCCEEDED")}, ("Complete", "SUCCEEDED", "")),
    ("stopped", running("RUNNING"), DONE, {"record": record("STOPPED")}, ("Complete", "STOPPED", "")),
    ("failed, log is still followed", running("RUNNING"), STILL, {"record": record("FAILED")}, ("Running", "FAILED", "")),
    ("failed, submitter done", running("RUNNING"), DONE, {"record": record("FAILED")}, ("Failed", "FAILED", "AppFailed")),
    ("stored end, then the submitter ends", running("SUCCEEDED", **ENDED), DONE, None, ("Complete", "SUCCEEDED", "")),
    ("stored end, then the head is lost", running("SUCCEEDED", **ENDED), DONE, {"session": "s2"}, ("Complete", "SUCCEEDED", "")),
    ("stored end, then Ray is silent", running("FAILED", **ENDED), DONE, {"error": "refused"}, ("Failed", "FAILED", "AppFailed")),
    ("submitter dead, the job lives", running("RUNNING"), DEAD, {"record": record("RUNNING")}, ("Running", "RUNNING", "")),
    ("submitter done, the job lives", running("RUNNING"), DONE, {"record": record("RUNNING")}, ("Running", "RUNNING", "")),
    ("submitter dead, never seen, Ray silent", running(), DEAD, {"error": "refused"}, ("Running", "", "")),
    ("submitter dead, Ray never knew it", running(), DEAD, {}, ("Failed", "", "SubmissionFailed")),
    ("submitter done, Ray never knew it", running(), DONE, {}, ("Failed", "", "AppFailed")),
    ("submitter dead, old answer", running(), DEAD, {"token": "old"}, ("Running", "", "")),
    ("the record has vanished", running("RUNNING"), STILL, {}, ("Failed", "FAILED", "AppFailed")),
    ("the record has vanished, old answer", running("RUNNING"), STILL, {"token": "old"}, ("Running", "RUNNING", "")),
    ("another head knows nothing", running("RUNNING"), STILL, {"session": "s2"}, ("Failed", "FAILED", "AppFailed")),
    ("another head has run it", running("RUNNING"), DONE, {"session": "s2", "record": record("SUCCEEDED")}, ("Failed", "FAILED", "AppFailed")),
    ("a head without a name", running("RUNNING"), STILL, {"session": "", "record": record("RUNNING")}, ("Running", "RUNNING", "")),
    ("Ray is silent", running("RUNNING"), STILL, {"error": "refused"}, ("Running", "RUNNING", "")),
]  # fmt: skip


@pytest.mark.parametrize(("status", "job", "fact", "expected"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_evidence_and_verdict(status: dict, job: dict, fact: dict | None, expected: tuple) -> None:
    assert pair(status_after(seen(status, job, fact=fact))) == expected


def test_what_ray_says_is_stored() -> None:
    status = status_after(seen(running(), STILL, fact={"record": record("RUNNING", "at work", 1_700_000_000_123)}))
    assert status["message"] == "at work"
    assert status["rayJobInfo"] == {"startTime": "2023-11-14T22:13:20Z"}
    assert status["rayClusterStatus"]["state"] == "ready"
    assert "endTime" not in status


def test_a_new_message_alone_is_stored() -> None:
    before = status_after(seen(running(), STILL, fact={"record": record("RUNNING", "one")}))
    same = seen(before, STILL, fact={"record": record("RUNNING", "one")})
    assert concluded(same).actions == ()
    assert status_after(seen(before, STILL, fact={"record": record("RUNNING", "two")}))["message"] == "two"


def test_the_end_is_counted_once() -> None:
    done = status_after(seen(running("RUNNING"), DONE, fact={"record": record("SUCCEEDED", "done")}))
    assert (done["succeeded"], done["failed"], done["endTime"], done["message"]) == (1, 0, stamp(), "done")
    assert done["rayJobInfo"]["endTime"] == "2026-03-01T12:01:00Z"
    broke = status_after(seen(running("RUNNING", failed=1), DONE, fact={"record": record("FAILED", "broke")}))
    assert (broke["succeeded"], broke["failed"], broke["message"]) == (0, 2, "broke")
    stopped = status_after(seen(running("RUNNING"), DONE, fact={"record": record("STOPPED")}))
    assert (stopped["succeeded"], stopped["failed"]) == (0, 0)
    assert concluded(seen(done, DONE)).actions == ()


def test_http_mode_waits_for_nothing_after_the_end() -> None:
    status = status_after(seen(running("RUNNING"), fact={"record": record("SUCCEEDED")}, submissionMode="HTTPMode"))
    assert pair(status) == ("Complete", "SUCCEEDED", "")


def test_a_deleted_submitter_does_not_hold_up_the_end() -> None:
    assert pair(status_after(seen(running("RUNNING"), fact={"record": record("SUCCEEDED")}))) == (
        "Complete",
        "SUCCEEDED",
        "",
    )


def test_a_submitter_deleted_before_ray_knew_the_job_is_confirmed_and_told() -> None:
    plan = concluded(seen(running(), fact={}))
    assert plan.confirm
    status = plan.actions[0].status
    assert pair(status) == ("Failed", "", "SubmissionFailed")
    assert "deleted" in status["message"]


def test_a_failed_submission_tells_the_jobs_reason() -> None:
    message = status_after(seen(running(), DEAD, fact={}))["message"]
    assert "BackoffLimitExceeded: words" in message
    assert "train-j" in message


@pytest.mark.parametrize(
    ("job", "expected"), [("SUCCEEDED", "Complete"), ("STOPPED", "Complete"), ("FAILED", "Failed")]
)
def test_a_submitter_that_does_not_end_is_not_awaited_for_ever(job: str, expected: str) -> None:
    waiting = seen(running(job, message="ray: said", **ENDED), STILL)
    assert pair(status_after(waiting, now=at(289)))[0] == "Running"
    status = status_after(waiting, now=at(290))
    assert pair(status) == (expected, job, "JobDeploymentStatusTransitionGracePeriodExceeded")
    assert "submitter Job train" in status["message"]
    assert "ray: said" in status["message"]


def test_an_end_without_a_time_ended_when_it_was_seen() -> None:
    status = status_after(seen(running("RUNNING"), STILL, fact={"record": record("SUCCEEDED", end_ms=0)}))
    assert status["rayJobInfo"]["endTime"] == stamp()


# The head


HEADS = [
    ("replaced", (head_pod("pod-2"),)),
    ("restarted in its Pod", (head_pod(restarts=1),)),
    ("going", (head_pod(deletionTimestamp=stamp()),)),
    ("ended", (head_pod(phase="Failed"),)),
]


@pytest.mark.parametrize("pods", [row[1] for row in HEADS], ids=[row[0] for row in HEADS])
def test_a_head_that_is_gone_and_silent_is_lost(pods: tuple) -> None:
    plan = concluded(seen(running("RUNNING"), STILL, *pods, fact={"error": "refused"}))
    assert plan.confirm
    status = plan.actions[0].status
    assert pair(status) == ("Failed", "FAILED", "AppFailed")
    assert status["message"].startswith("head lost: ")
    assert "train-c" in status["message"]
    assert status["failed"] == 1


@pytest.mark.parametrize("pods", [row[1] for row in HEADS], ids=[row[0] for row in HEADS])
def test_a_head_that_answers_is_not_lost_whatever_its_pods_look_like(pods: tuple) -> None:
    status = status_after(seen(running("RUNNING"), STILL, *pods, fact={"record": record("RUNNING")}))
    assert pair(status)[0] == "Running"


@pytest.mark.parametrize("record_of", ["SUCCEEDED", "RUNNING", ""])
def test_an_answer_that_does_not_say_which_head_it_is_counts_as_none(record_of: str) -> None:
    """Something in front of Ray, or half of Ray, answers: neither the end of the job nor its loss rests on that."""
    fact = {"session": "", "record": record(record_of) if record_of else None}
    status = status_after(seen(running("RUNNING"), DONE, fact=fact))
    assert pair(status) == ("Running", "RUNNING", "")
    assert status["jobStatusCheckFailureStartTime"] == stamp()


def test_where_heads_have_no_names_the_pod_tells_them_apart() -> None:
    nameless = {"annotations": {"raybus.io/head-pod": "pod-1/0"}}
    same = seen(running("RUNNING"), DONE, fact={"session": "", "record": record("SUCCEEDED")}, meta=nameless)
    assert pair(status_after(same)) == ("Complete", "SUCCEEDED", "")
    other = seen(
        running("RUNNING"), DONE, head_pod("pod-2"), fact={"session": "", "record": record("SUCCEEDED")}, meta=nameless
    )
    plan = concluded(other)
    assert plan.confirm
    assert pair(plan.actions[0].status) == ("Failed", "FAILED", "AppFailed")


def test_a_time_beyond_the_calendar_ends_the_waiting() -> None:
    absurd = record("SUCCEEDED", end_ms=10**18)
    status = status_after(seen(running("RUNNING"), STILL, fact={"record": absurd}))
    assert status["rayJobInfo"]["endTime"].startswith("9999")
    waiting = seen(running("SUCCEEDED", rayJobInfo=status["rayJobInfo"]), STILL)
    assert decided(waiting).wake_at is not None
    assert pair(status_after(seen(running("SUCCEEDED", rayJobInfo=status["rayJobInfo"]), DONE)))[0] == "Complete"


def test_an_error_from_before_the_head_changed_loses_nothing() -> None:
    status = status_after(seen(running("RUNNING"), STILL, head_pod("pod-2"), fact={"error": "refused", "token": "old"}))
    assert pair(status)[0] == "Running"


def test_with_fault_tolerance_a_new_pod_of_the_head_is_no_loss() -> None:
    spec = {**CLUSTER_SPEC, "gcsFaultToleranceOptions": {"redisAddress": "r:6379"}}
    tolerant = seen(running("RUNNING"), STILL, head_pod("pod-2"), fact={"error": "refused"}, rayClusterSpec=spec)
    assert pair(status_after(tolerant))[0] == "Running"
    same = seen(running("RUNNING"), STILL, head_pod("pod-2"), fact={"record": record("RUNNING")}, rayClusterSpec=spec)
    assert pair(status_after(same)) == ("Running", "RUNNING", "")


def test_without_a_complete_list_of_pods_no_head_is_missed() -> None:
    import dataclasses

    from support.rayjobs import KINDS

    blind = seen(running("RUNNING"), STILL, head_pod("pod-2"), fact={"error": "refused"})
    assert pair(status_after(dataclasses.replace(blind, complete=KINDS - {"Pod"})))[0] == "Running"


def test_a_deleted_cluster_is_confirmed_and_told() -> None:
    job = ray_job(running("RUNNING", rayClusterStatus={"state": "ready", "head": {}}), known())
    plan = concluded(world(job, submitter(), service()))
    assert plan.confirm
    status = plan.actions[0].status
    assert pair(status) == ("Failed", "FAILED", "AppFailed")
    assert "RayCluster train-c was deleted" in status["message"]
    assert "state" not in status["rayClusterStatus"], "a cluster that is gone is not ready"


def test_a_cluster_deleted_after_the_end_takes_nothing_back() -> None:
    job = ray_job(running("SUCCEEDED", **ENDED), known())
    assert pair(status_after(world(job, DONE, service()))) == ("Complete", "SUCCEEDED", "")


# Silence


def test_the_first_silence_is_stored_and_a_good_answer_takes_it_back() -> None:
    silent = status_after(seen(running("RUNNING"), STILL, fact={"error": "refused"}))
    assert silent["jobStatusCheckFailureStartTime"] == stamp()
    assert concluded(seen(silent, STILL, fact={"error": "timed out"}), now=at(5)).actions == ()
    good = status_after(seen(silent, STILL, fact={"record": record("RUNNING")}))
    assert "jobStatusCheckFailureStartTime" not in good


UNREADY = head_pod(ready="False")
TOLERANT = {"rayClusterSpec": {**CLUSTER_SPEC, "gcsFaultToleranceOptions": {"redisAddress": "r:6379"}}}
# Head Pod, the rest of the RayJob, what the probe learned, and after how many seconds of silence the decision comes.
SILENCES = [
    ("a Ready head", head_pod(), {}, {"error": "refused"}, 300),
    ("a head that is not Ready", UNREADY, {}, {"error": "timed out"}, 40),
    ("a head of which nobody knows", head_pod(ready="Unknown"), {}, {"error": "timed out"}, 40),
    ("an answer without a name, not Ready", UNREADY, {}, {"session": "", "record": record("RUNNING")}, 40),
    ("records outlive the head", UNREADY, TOLERANT, {"error": "timed out"}, 300),
    ("the head is not the job's yet", UNREADY, {"meta": {}}, {"error": "timed out"}, 300),
    ("Ray cannot even be asked", UNREADY, {}, {"error": "no Secret", "asked": False}, 300),
]


@pytest.mark.parametrize(
    ("head", "more", "fact", "limit"), [row[1:] for row in SILENCES], ids=[row[0] for row in SILENCES]
)
def test_how_long_silence_is_borne(head: dict, more: dict, fact: dict, limit: int) -> None:
    silent = seen(running("RUNNING", jobStatusCheckFailureStartTime=stamp()), STILL, head, fact=fact, **more)
    assert decided(silent).wake_at is not None
    assert pair(status_after(silent, now=at(limit - 1)))[0] == "Running"
    plan = concluded(silent, now=at(limit))
    status = plan.actions[0].status
    assert pair(status) == ("Failed", "RUNNING", "JobStatusCheckTimeoutExceeded")
    assert f"limit {limit}s" in status["message"]
    assert bool(plan.confirm) is ("not Ready" in status["message"]) is (limit < 300)


def test_the_decision_about_a_silent_head_is_looked_forward_to() -> None:
    since = running("RUNNING", jobStatusCheckFailureStartTime=stamp())
    for head, limit in ((UNREADY, 40), (head_pod(), 300)):
        assert decided(seen(since, STILL, head, fact={"error": "refused"}), now=at(10)).wake_at == at(limit)


def test_a_head_that_is_not_ready_but_answers_is_believed() -> None:
    silent = running("RUNNING", jobStatusCheckFailureStartTime=stamp(-100))
    status = status_after(seen(silent, STILL, UNREADY, fact={"record": record("RUNNING")}))
    assert pair(status) == ("Running", "RUNNING", "")
    assert "jobStatusCheckFailureStartTime" not in status


def test_a_shorter_limit_of_the_user_counts() -> None:
    silent = seen(
        running("RUNNING", jobStatusCheckFailureStartTime=stamp()), STILL, UNREADY, fact={"error": "timed out"}
    )
    status = status_after(silent, now=at(20), policy=Policy(status_check_timeout_s=20.0))
    assert pair(status)[0] == "Failed"


def test_not_found_is_an_answer_too_and_takes_the_silence_back() -> None:
    assert "jobStatusCheckFailureStartTime" not in status_after(seen(running(), STILL, fact={}))
    since = running(jobStatusCheckFailureStartTime=stamp(-100))
    assert "jobStatusCheckFailureStartTime" not in status_after(seen(since, STILL, fact={}))
    old = status_after(seen(since, STILL, fact={"token": "old"}))
    assert old["jobStatusCheckFailureStartTime"] == stamp(-100)
    http = status_after(seen(since, fact={}, submissionMode="HTTPMode"))
    assert http["jobStatusCheckFailureStartTime"] == stamp(-100), "there only a submission that succeeds does"


def test_silence_for_too_long_fails_and_says_that_nobody_knows() -> None:
    silent = seen(running("RUNNING", jobStatusCheckFailureStartTime=stamp()), STILL, fact={"error": "refused"})
    assert pair(status_after(silent, now=at(299)))[0] == "Running"
    status = status_after(silent, now=at(300))
    assert pair(status) == ("Failed", "RUNNING", "JobStatusCheckTimeoutExceeded")
    for words in ("2026-03-01 12:00:00", "300s", "unknown", "RUNNING", "refused"):
        assert words in status["message"]


def test_a_token_that_cannot_be_read_does_not_start_the_clock() -> None:
    status = status_after(seen(running("RUNNING"), STILL, fact={"error": "no Secret", "asked": False}))
    assert "jobStatusCheckFailureStartTime" not in status


# The cluster's status inside the job's


def test_the_clusters_status_is_shown_while_the_job_runs() -> None:
    changed = cluster() | {"status": {"state": "ready", "readyWorkerReplicas": 2, "lastUpdateTime": stamp(), "odd": 1}}
    status = status_after(seen(running(), STILL, changed))
    assert status["rayClusterStatus"]["readyWorkerReplicas"] == 2
    assert "odd" not in status["rayClusterStatus"], "the RayJob's definition has no room for it"
    later = changed | {"status": {**changed["status"], "lastUpdateTime": stamp(9), "observedGeneration": 2}}
    assert concluded(seen(status, STILL, later)).actions == (), "times alone are not worth a write"
