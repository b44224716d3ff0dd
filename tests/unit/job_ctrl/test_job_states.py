"""What is done in each state, and what the status becomes, apart from the verdict (test_job_verdict.py).

One module, although long: it follows one machine through its states.
"""

from __future__ import annotations

import dataclasses

import pytest

from raybus.decide.actions import (
    CreateJob,
    CreateRayCluster,
    CreateService,
    DeleteRayCluster,
    DeleteRayJob,
    PatchJob,
    PatchRayJob,
    PatchService,
    Reconsider,
    StopRayJob,
    SubmitRayJob,
)
from raybus.decide.outcome import Outcome, Result
from raybus.domain.identity import suffix
from support.rayjobs import (
    ADDRESS,
    KINDS,
    POLICY,
    at,
    cluster,
    concluded,
    decided,
    head_pod,
    known,
    names,
    only,
    patched,
    ray_job,
    record,
    running,
    service,
    stamp,
    status_after,
    submitter,
    world,
)

# New


def test_the_finalizer_comes_before_anything_else() -> None:
    seen = world(ray_job(meta={"finalizers": ["x/y"]}))
    patch = only(decided(seen), PatchRayJob)
    assert patch.patch == {"metadata": {"finalizers": ["x/y", "ray.io/rayjob-finalizer"]}}
    assert patch.resource_version == "7"
    assert concluded(seen).actions == ()


def test_names_and_start_are_stored_before_anything_is_made() -> None:
    seen = world(ray_job())
    assert decided(seen).actions == ()
    status = status_after(seen)
    assert status["jobDeploymentStatus"] == "Initializing"
    assert status["rayClusterName"] == "train-" + suffix("job-uid", 0, "cluster")
    assert status["jobId"] == "train-" + suffix("job-uid", 0, "job")
    assert status["jobId"] != status["rayClusterName"]
    assert status["startTime"] == stamp()
    assert (status["succeeded"], status["failed"]) == (0, 0)


def test_the_users_job_id_is_used() -> None:
    assert status_after(world(ray_job(jobId="abc")))["jobId"] == "abc"


def test_another_objects_memory_of_its_head_is_thrown_away() -> None:
    seen = world(ray_job(meta=known()))
    patch = only(decided(seen), PatchRayJob)
    assert patch.patch["metadata"]["annotations"] == {"raybus.io/head-session": None, "raybus.io/head-pod": None}
    assert concluded(seen).actions == ()
    assert status_after(world(patched(ray_job(meta=known()), patch)))["jobDeploymentStatus"] == "Initializing"


# Initializing


def initializing(**more) -> dict:
    status = running(jobDeploymentStatus="Initializing", **more)
    del status["dashboardURL"]
    return status


def test_the_cluster_is_made_under_the_stored_name() -> None:
    seen = world(ray_job(initializing()))
    create = only(decided(seen), CreateRayCluster)
    assert create.name == "train-c"
    assert (create.announce.done, create.announce.failed) == ("CreatedRayCluster", "FailedToCreateRayCluster")
    assert concluded(seen).actions == ()


def test_nothing_counts_as_absent_before_its_list_was_complete() -> None:
    unread = dataclasses.replace(world(ray_job(initializing())), complete=KINDS - {"RayCluster"})
    assert decided(unread).actions == ()


def test_a_cluster_of_somebody_else_is_not_taken() -> None:
    foreign = cluster(ownerReferences=[{"kind": "RayJob", "name": "x", "uid": "other", "controller": True}])
    seen = world(ray_job(initializing()), foreign)
    assert seen.cluster is None
    assert names(decided(seen)) == ["CreateRayCluster"], "the API server refuses it, and an event says so"


def test_nothing_is_submitted_to_a_cluster_that_is_going() -> None:
    seen = world(ray_job(initializing()), cluster(deletionTimestamp=stamp()))
    assert decided(seen).actions == ()
    assert status_after(seen)["jobDeploymentStatus"] == "Initializing"


@pytest.mark.parametrize("state", ["", "suspended", "failed"])
def test_a_cluster_that_is_not_ready_is_awaited_and_shown(state: str) -> None:
    seen = world(ray_job(initializing()), cluster(state))
    assert decided(seen).actions == ()
    status = status_after(seen)
    assert status["jobDeploymentStatus"] == "Initializing"
    assert status["rayClusterStatus"].get("state", "") == state


def test_the_submitter_is_made_before_running_is_told() -> None:
    seen = world(ray_job(initializing()), cluster())
    create = only(decided(seen), CreateJob)
    assert (create.announce.done, create.announce.failed) == (
        "CreatedRayJobSubmitter",
        "FailedToCreateRayJobSubmitter",
    )
    env = create.body["spec"]["template"]["spec"]["containers"][0]["env"]
    assert {"name": "RAY_DASHBOARD_ADDRESS", "value": ADDRESS} in env
    assert status_after(seen)["jobDeploymentStatus"] == "Initializing"
    status = status_after(world(ray_job(initializing()), cluster(), submitter()))
    assert (status["jobDeploymentStatus"], status["dashboardURL"]) == ("Running", ADDRESS)


def test_an_existing_submitter_is_used_as_it_is() -> None:
    assert decided(world(ray_job(initializing()), cluster(), submitter())).actions == ()


def test_no_submitter_is_made_while_jobs_are_not_known() -> None:
    seen = dataclasses.replace(world(ray_job(initializing()), cluster()))
    unread = dataclasses.replace(seen, submitter=dataclasses.replace(seen.submitter, phase="unknown"))
    assert decided(unread).actions == ()


def test_http_mode_needs_no_submitter() -> None:
    seen = world(ray_job(initializing(), submissionMode="HTTPMode"), cluster())
    assert decided(seen).actions == ()
    assert status_after(seen)["jobDeploymentStatus"] == "Running"


# Running: what is done


def test_the_jobs_own_head_service_is_made_once() -> None:
    create = only(decided(world(ray_job(running()), cluster(), submitter())), CreateService)
    assert (create.name, create.announce.done) == ("train-head-svc", "CreatedService")
    assert decided(world(ray_job(running()), cluster(), submitter(), service())).actions == ()


def test_the_jobs_own_head_service_follows_the_cluster() -> None:
    patch = only(decided(world(ray_job(running()), cluster(), submitter(), service("train-old"))), PatchService)
    assert patch.patch["spec"]["selector"]["ray.io/cluster"] == "train-c"
    assert patch.patch["spec"]["clusterIP"] == "None"
    assert patch.announce.done == "UpdatedService"


def test_a_service_of_that_name_of_somebody_else_is_left_alone() -> None:
    foreign = service("other", ownerReferences=[])
    assert decided(world(ray_job(running()), cluster(), submitter(), foreign)).actions == ()


def test_ray_is_asked_at_the_stored_address_about_the_stored_id() -> None:
    (watch,) = decided(world(ray_job(running()), cluster(), submitter(), service())).probes
    assert (watch.submission_id, watch.endpoint.address) == ("train-j", ADDRESS)
    assert watch.endpoint.service == "train-c-head-svc"


INTERVALS = [
    ("just submitted", running(), submitter(), 0, 1.0, 70),
    ("submitted long ago", running(), submitter(), 200, 3.0, None),
    ("just begun", running("RUNNING", rayJobInfo={"startTime": stamp(-4)}), submitter(), 0, 1.0, 6),
    ("runs", running("RUNNING", rayJobInfo={"startTime": stamp(-40)}), submitter(), 0, 3.0, None),
    ("the submitter has just ended", running("RUNNING"), submitter("Complete"), 2, 0.5, 10),
    ("the submitter ended long ago", running("RUNNING"), submitter("Failed"), 60, 3.0, None),
]


@pytest.mark.parametrize(
    ("status", "job", "now", "seconds", "until"), [row[1:] for row in INTERVALS], ids=[row[0] for row in INTERVALS]
)
def test_how_often_ray_is_asked(status: dict, job: dict, now: float, seconds: float, until: float | None) -> None:
    plan = decided(world(ray_job(status), cluster(), job, service()), at(now))
    assert plan.probes[0].interval_s == seconds
    assert plan.wake_at == (None if until is None else at(until))


def test_ray_is_not_asked_any_more_once_it_has_said_how_the_job_ended() -> None:
    ended = running("SUCCEEDED", rayJobInfo={"endTime": stamp(-5)})
    plan = decided(world(ray_job(ended), cluster(), submitter(), service()))
    assert plan.probes == ()
    assert plan.wake_at == at(295)


def test_a_poll_begun_before_the_submitter_ended_is_told_from_one_begun_after() -> None:
    tokens = {
        decided(world(ray_job(status), cluster(), *objects, service())).probes[0].token
        for status, objects in [
            (running(), (submitter(), head_pod())),
            (running("PENDING"), (submitter(), head_pod())),
            (running(), (submitter("Failed"), head_pod())),
            (running(), (submitter("Complete"), head_pod())),
            (running(), (submitter(),)),
            (running(), (submitter(), head_pod(restarts=1))),
            (running(), (submitter(), head_pod("pod-2"))),
            (running(), (submitter(), head_pod(phase="Failed"), head_pod("pod-2", restarts=2))),
        ]
    }
    assert len(tokens) == 8


def test_the_head_is_remembered_with_the_first_record_and_then_looked_at_again() -> None:
    seen = world(ray_job(running()), cluster(), submitter(), service(), head_pod(), fact={"record": record("RUNNING")})
    plan = decided(seen)
    assert names(plan) == ["PatchRayJob", "Reconsider"]
    assert only(plan, PatchRayJob).patch == {
        "metadata": {"annotations": {"raybus.io/head-session": "s1", "raybus.io/head-pod": "pod-1/0"}}
    }
    assert isinstance(plan.steps[-1][0], Reconsider)
    assert status_after(seen).get("jobStatus") is None


def test_without_a_record_the_head_is_not_remembered_where_a_job_submits() -> None:
    seen = world(ray_job(running()), cluster(), submitter(), service(), head_pod(), fact={})
    assert decided(seen).actions == ()


def test_a_pod_that_was_noted_too_early_is_noted_again_on_the_word_of_the_same_head() -> None:
    job = ray_job(running("RUNNING"), meta=known(head="pod-0/0"))
    seen = world(job, cluster(), submitter(), service(), head_pod(), fact={"record": record("RUNNING")})
    assert only(decided(seen), PatchRayJob).patch["metadata"]["annotations"]["raybus.io/head-pod"] == "pod-1/0"
    assert status_after(seen)["jobDeploymentStatus"] == "Running"


def test_what_cannot_be_told_apart_is_not_remembered() -> None:
    seen = world(
        ray_job(running()), cluster(), submitter(), service(), fact={"record": record("RUNNING"), "session": ""}
    )
    assert decided(seen).actions == ()
    assert status_after(seen)["jobStatus"] == "RUNNING"


# HTTPMode


def http(status: dict, meta: dict | None = None, **spec) -> dict:
    return ray_job(status, meta, submissionMode="HTTPMode", **spec)


def test_http_mode_remembers_the_head_and_then_sends_the_job() -> None:
    job = http(running())
    seen = world(job, cluster(), service(), head_pod(), fact={})
    assert names(decided(seen)) == ["PatchRayJob", "Reconsider"]
    again = world(patched(job, only(decided(seen), PatchRayJob)), cluster(), service(), head_pod(), fact={})
    sent = only(decided(again), SubmitRayJob)
    assert sent.request == {"entrypoint": "python train.py", "submission_id": "train-j"}
    assert sent.endpoint.address == ADDRESS


def test_the_job_is_sent_even_where_its_own_address_cannot_be_made() -> None:
    plan = decided(world(http(running(), known()), cluster(), head_pod(), fact={}))
    assert {"SubmitRayJob", "CreateService"} == set(names(plan))
    assert len(plan.steps) == 1, "side by side: neither waits for the other"


@pytest.mark.parametrize(
    "fact",
    [
        None,
        {"record": record("RUNNING")},
        {"error": "refused"},
        {"token": "from before"},
        {"session": "another"},
    ],
)
def test_the_job_is_not_sent_without_the_word_of_the_remembered_head(fact: dict | None) -> None:
    seen = world(http(running(), known()), cluster(), service(), head_pod(), fact=fact)
    assert "SubmitRayJob" not in names(decided(seen))


def test_a_job_that_was_seen_is_never_sent_again() -> None:
    seen = world(http(running("PENDING"), known()), cluster(), service(), head_pod(), fact={})
    assert "SubmitRayJob" not in names(decided(seen))


def submission(result: Result, message: str = "") -> tuple:
    seen = world(http(running(), known()), cluster(), service(), head_pod(), fact={})
    return seen, Outcome(action=only(decided(seen), SubmitRayJob), result=result, message=message)


@pytest.mark.parametrize("result", [Result.DONE, Result.ALREADY_SO])
def test_a_job_that_ray_took_is_pending(result: Result) -> None:
    status = status_after(*submission(result))
    assert (status["jobStatus"], status["jobDeploymentStatus"]) == ("PENDING", "Running")


def test_a_job_that_ray_will_never_take_has_failed() -> None:
    status = status_after(*submission(Result.REFUSED, "no such field"))
    assert (status["jobDeploymentStatus"], status["reason"], status["failed"]) == ("Failed", "SubmissionFailed", 1)
    assert "no such field" in status["message"]
    assert "jobStatus" not in status


@pytest.mark.parametrize("result", [Result.FAILED, Result.AMBIGUOUS, Result.THROTTLED])
def test_a_job_that_could_not_be_sent_is_tried_again_until_the_limit(result: Result) -> None:
    seen, outcome = submission(result, "no agent")
    assert status_after(seen, outcome)["jobStatusCheckFailureStartTime"] == stamp()
    late = dataclasses.replace(seen, job=http(running(jobStatusCheckFailureStartTime=stamp(-299)), known()))
    assert status_after(late, outcome)["jobDeploymentStatus"] == "Running"
    status = status_after(late, outcome, now=at(1))
    assert (status["jobDeploymentStatus"], status["reason"]) == ("Failed", "JobStatusCheckTimeoutExceeded")
    assert "no agent" in status["message"]


def test_a_submission_that_succeeds_late_clears_the_failure() -> None:
    seen, outcome = submission(Result.DONE)
    failing = dataclasses.replace(seen, job=http(running(jobStatusCheckFailureStartTime=stamp(-100)), known()))
    assert "jobStatusCheckFailureStartTime" not in status_after(failing, outcome)


# Complete and Failed


def ended(deployment: str = "Complete", job: str = "SUCCEEDED", seconds: float = 0, **more) -> dict:
    return running(job, jobDeploymentStatus=deployment, endTime=stamp(seconds), **more)


def test_without_shutdown_nothing_is_taken_away() -> None:
    plan = decided(world(ray_job(ended(seconds=-9999)), cluster(), submitter("Complete")))
    assert (plan.actions, plan.wake_at, plan.probes) == ((), None, ())


@pytest.mark.parametrize(
    ("deployment", "job"), [("Complete", "SUCCEEDED"), ("Complete", "STOPPED"), ("Failed", "FAILED"), ("Failed", "")]
)
def test_the_cluster_goes_when_its_time_to_live_is_over(deployment: str, job: str) -> None:
    tidy = ray_job(ended(deployment, job), shutdownAfterJobFinishes=True, ttlSecondsAfterFinished=10)
    early = decided(world(tidy, cluster(), submitter("Complete")), at(9.9))
    assert (early.actions, early.wake_at) == ((), at(10))
    due = decided(world(tidy, cluster(), submitter("Complete")), at(10))
    delete = only(due, DeleteRayCluster)
    assert (delete.uid, delete.propagation) == ("RayCluster-train-c", "Foreground")
    assert delete.announce.done == "DeletedRayCluster"
    assert due.confirm


@pytest.mark.parametrize(
    "objects",
    [
        (),
        (cluster(deletionTimestamp=stamp()),),
        (cluster(ownerReferences=[]),),
    ],
    ids=["gone", "going", "not ours"],
)
def test_only_the_jobs_own_cluster_goes_and_only_once(objects: tuple) -> None:
    plan = decided(world(ray_job(ended(seconds=-99), shutdownAfterJobFinishes=True), *objects))
    assert (plan.actions, plan.wake_at) == ((), None)


def test_the_operator_may_be_set_to_take_the_rayjob_too() -> None:
    policy = dataclasses.replace(POLICY, delete_job_with_cluster=True)
    seen = world(ray_job(ended(seconds=-1), shutdownAfterJobFinishes=True), cluster())
    assert names(decided(seen, policy=policy)) == ["DeleteRayJob", "Reconsider"], "own writes wake nobody"
    assert only(decided(seen, policy=policy), DeleteRayJob).uid == "job-uid"
    assert decided(world(ray_job(ended(seconds=-1)), cluster()), policy=policy).actions == ()


@pytest.mark.parametrize(
    "objects", [(submitter(),), (submitter("Complete"), cluster()), (submitter(), cluster(), service())]
)
def test_the_verdict_stands_whatever_happens_later(objects: tuple) -> None:
    seen = world(ray_job(ended()), *objects, fact={"record": record("RUNNING"), "session": "later"})
    assert concluded(seen).actions == ()


def test_a_submitter_is_kept_from_starting_a_lost_job_again() -> None:
    lost = ended("Failed", "FAILED", reason="AppFailed")
    patch = only(decided(world(ray_job(lost), cluster(), submitter())), PatchJob)
    assert patch.patch == {"spec": {"suspend": True}}
    for end in (submitter("Complete"), submitter("Failed"), submitter(suspend=True)):
        assert decided(world(ray_job(lost), cluster(), end)).actions == ()


SILENT = ended("Failed", "RUNNING", reason="JobStatusCheckTimeoutExceeded")
UNSEEN = ended("Failed", "", reason="JobStatusCheckTimeoutExceeded")
SLOW = ended("Complete", "SUCCEEDED", reason="JobDeploymentStatusTransitionGracePeriodExceeded")


@pytest.mark.parametrize(
    ("status", "pods", "held"),
    [
        (SILENT, (head_pod(),), False),  # it may still run, and its log is followed
        (SILENT, (head_pod("pod-2"),), True),
        (SILENT, (), True),
        (UNSEEN, (head_pod(),), True),
        (SLOW, (head_pod(),), False),
        (SLOW, (head_pod(restarts=1),), True),
    ],
)
def test_after_the_verdict_nothing_is_started_any_more(status: dict, pods: tuple, *, held: bool) -> None:
    plan = decided(world(ray_job(status, known()), cluster(), submitter(), *pods))
    assert names(plan) == (["PatchJob"] if held else [])


def test_a_lost_jobs_cluster_goes_even_where_its_submitter_cannot_be_held() -> None:
    lost = ray_job(ended("Failed", "FAILED", reason="AppFailed"), shutdownAfterJobFinishes=True)
    plan = decided(world(lost, cluster(), submitter()))
    assert [{type(action) for action in step} for step in plan.steps] == [{PatchJob, DeleteRayCluster}]


# Running: what is kept from happening twice


@pytest.mark.parametrize(
    "fact", [{"error": "refused"}, {"session": "s2"}, {"session": "s2", "record": record("SUCCEEDED")}]
)
def test_the_submitter_is_held_before_the_loss_of_the_head_is_told(fact: dict) -> None:
    seen = world(ray_job(running("RUNNING"), known()), cluster(), submitter(), service(), head_pod("pod-2"), fact=fact)
    plan = decided(seen)
    assert names(plan) == ["PatchJob"]
    assert only(plan, PatchJob).patch == {"spec": {"suspend": True}}
    assert bool(plan.confirm) is ("error" in fact)
    assert status_after(seen)["jobDeploymentStatus"] == "Failed"


def test_a_job_that_was_started_again_on_the_next_head_is_stopped() -> None:
    fact = {"session": "s2", "record": record("RUNNING")}
    seen = world(ray_job(running("RUNNING"), known()), cluster(), submitter(), service(), head_pod("pod-2"), fact=fact)
    plan = decided(seen)
    assert set(names(plan)) == {"PatchJob", "StopRayJob"}
    assert len(plan.steps) == 1, "side by side: neither waits for the other"
    assert only(plan, StopRayJob).submission_id == "train-j"


def test_an_ended_job_is_not_started_again_while_its_log_is_followed() -> None:
    done = running("SUCCEEDED", rayJobInfo={"endTime": stamp(-5)})
    same = world(ray_job(done, known()), cluster(), submitter(), service(), head_pod())
    assert decided(same).actions == ()
    gone = world(ray_job(done, known()), cluster(), submitter(), service())
    assert names(decided(gone)) == ["PatchJob"]
    held = world(ray_job(done, known()), cluster(), submitter(suspend=True), service())
    assert decided(held).actions == ()
    assert status_after(held)["jobDeploymentStatus"] == "Complete"


# Deletion


def deleted(status: dict | None, *objects: dict, seconds: float = 0, **spec):
    meta = {"deletionTimestamp": stamp(seconds), "finalizers": ["a/b", "ray.io/rayjob-finalizer"]}
    return world(ray_job(status, meta, **spec), *objects)


def test_the_job_is_stopped_before_the_rayjob_is_let_go() -> None:
    plan = decided(deleted(running("RUNNING"), cluster(), submitter(), head_pod()))
    assert [[type(action) for action in step] for step in plan.steps] == [[StopRayJob], [PatchRayJob]]
    assert only(plan, StopRayJob).submission_id == "train-j"
    assert only(plan, PatchRayJob).patch == {"metadata": {"finalizers": ["a/b"]}}
    assert plan.wake_at == at(60)


def test_after_a_minute_it_is_let_go_whatever_failed() -> None:
    plan = decided(deleted(running("RUNNING"), cluster(), submitter(), head_pod(), seconds=-60))
    assert [set(names(plan))] == [{type(action).__name__ for action in step} for step in plan.steps]
    assert set(names(plan)) == {"StopRayJob", "PatchRayJob"}, "it is asked for once, however late, and holds up nothing"
    assert "in time" in only(plan, PatchRayJob).reason
    assert plan.wake_at is None


@pytest.mark.parametrize("pod", [head_pod("pod-2"), head_pod("pod-2", phase="Pending"), head_pod(restarts=1)])
def test_a_head_that_never_had_the_job_holds_up_no_deletion(pod: dict) -> None:
    meta = {"deletionTimestamp": stamp(), "finalizers": ["ray.io/rayjob-finalizer"], **known()}
    plan = decided(world(ray_job(running("RUNNING"), meta), cluster(), submitter(), pod))
    assert [{type(action) for action in step} for step in plan.steps] == [{StopRayJob, PatchRayJob}]
    assert plan.confirm


NOTHING_RUNS = [
    ("never begun", None, ()),
    ("no address yet", {**running(), "dashboardURL": ""}, (cluster(), head_pod())),
    ("ended", running("SUCCEEDED"), (cluster(), head_pod())),
    ("refused", {"jobDeploymentStatus": "ValidationFailed"}, ()),
]


@pytest.mark.parametrize(("status", "objects"), [row[1:] for row in NOTHING_RUNS], ids=[row[0] for row in NOTHING_RUNS])
def test_without_a_running_job_it_is_let_go_at_once(status: dict | None, objects: tuple) -> None:
    plan = decided(deleted(status, *objects))
    assert names(plan) == ["PatchRayJob"]
    assert not plan.confirm


@pytest.mark.parametrize(
    "objects", [(), (cluster(),), (cluster(), head_pod(phase="Failed"))], ids=["no cluster", "no head", "dead head"]
)
def test_that_there_is_no_head_to_ask_is_confirmed_first(objects: tuple) -> None:
    plan = decided(deleted(running("RUNNING"), *objects))
    assert names(plan) == ["PatchRayJob"]
    assert plan.confirm


def test_without_our_finalizer_nothing_is_left_to_do() -> None:
    seen = world(ray_job(running("RUNNING"), {"deletionTimestamp": stamp(), "finalizers": ["a/b"]}), cluster())
    assert decided(seen).actions == ()
    assert concluded(seen).actions == ()


def test_an_object_that_is_going_gets_no_new_status() -> None:
    seen = deleted(running(), cluster(), submitter(), head_pod())
    assert concluded(seen).actions == ()
    assert concluded(deleted(None, entrypoint="")).actions == ()
