"""Random lives of a RayJob: whatever happens in whatever order, and wherever a pass is cut off, the invariants hold.

A small truth (what the API server and the heads hold) is played against the decisions: J1 one submission per attempt and head,
J2 names before effects, J3 only the table's edges and pairs, J4 no completion without a record of the head the job was seen on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from raybus.decide.actions import (
    CreateJob,
    CreateRayCluster,
    CreateService,
    DeleteRayCluster,
    PatchJob,
    PatchRayJob,
    PatchRayJobStatus,
    StopRayJob,
    SubmitRayJob,
)
from raybus.decide.outcome import Outcome, Result
from raybus.decide.plan import Plan
from raybus.decide.tree import Fact, Tree
from raybus_job_ctrl.decide.pipeline import conclude, decide
from raybus_job_ctrl.decide.table import PAIRS, Deployment, JobState, allowed
from raybus_job_ctrl.observe import observe
from support.rayjobs import CLUSTER_SPEC, KEY, NOW, POLICY, UID, patched, record, stamp, tree

ENDS = ("SUCCEEDED", "FAILED", "STOPPED")


@dataclass
class Head:
    session: str
    jobs: dict[str, str] = field(default_factory=dict)
    up: bool = True


@dataclass
class Life:
    """The truth, and a controller that looks at it. `cut` cuts a pass off after so many actions, as a kill would."""

    mode: str
    now: Any = NOW
    job: dict[str, Any] = field(default_factory=dict)
    objects: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    head: Head | None = None
    heads: int = 0
    executions: list[tuple[str, str]] = field(default_factory=list)
    ended_as: dict[str, str] = field(default_factory=dict)  # by session: how the job ended there
    fact: Fact | None = None
    watch: Any = None
    cut: int = 99
    version: int = 10

    def __post_init__(self) -> None:
        meta = {"name": "train", "namespace": "ml", "uid": UID, "resourceVersion": "1"}
        spec = {"entrypoint": "x", "rayClusterSpec": CLUSTER_SPEC, "submissionMode": self.mode}
        spec |= {"shutdownAfterJobFinishes": True, "ttlSecondsAfterFinished": 5}
        self.job = {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": meta, "spec": spec}

    # What the world does

    def status(self) -> dict[str, Any]:
        return self.job.get("status") or {}

    def named(self, kind: str) -> dict[str, Any] | None:
        return next((obj for (of, _), obj in self.objects.items() if of == kind), None)

    def cluster_gets_ready(self) -> None:
        cluster = self.named("RayCluster")
        if cluster is not None and self.head is None:
            self.heads += 1
            self.head = Head(f"s{self.heads}")
            self._pod()
            self.objects["RayCluster", cluster["metadata"]["name"]] = {**cluster, "status": {"state": "ready"}}

    def _pod(self) -> None:
        cluster = self.named("RayCluster")
        assert cluster is not None
        reference = {"kind": "RayCluster", "uid": cluster["metadata"]["uid"], "name": "c", "controller": True}
        meta = {
            "name": f"head-{self.heads}",
            "namespace": "ml",
            "uid": f"p{self.heads}",
            "ownerReferences": [reference],
        }
        meta["labels"] = {"ray.io/node-type": "head", "ray.io/cluster": cluster["metadata"]["name"]}
        pod = {"kind": "Pod", "metadata": meta, "spec": {"containers": [{"name": "h"}]}, "status": {"phase": "Running"}}
        self.objects = {key: obj for key, obj in self.objects.items() if key[0] != "Pod"}
        self.objects["Pod", meta["name"]] = pod

    def head_is_replaced(self) -> None:
        if self.head is not None and self.named("RayCluster") is not None:
            self.heads += 1
            self.head = Head(f"s{self.heads}")
            self._pod()

    def head_pod_vanishes(self) -> None:
        if self.head is not None:
            self.head = Head(f"s{self.heads}", up=False)
            self.objects = {key: obj for key, obj in self.objects.items() if key[0] != "Pod"}

    def dashboard_flaps(self) -> None:
        if self.head is not None and self.named("Pod") is not None:
            self.head.up = not self.head.up

    def cluster_is_deleted(self) -> None:
        self.head = None
        self.objects = {key: obj for key, obj in self.objects.items() if key[0] not in ("RayCluster", "Pod")}

    def submitter_submits(self) -> None:
        job, job_id = self.named("Job"), self.status().get("jobId", "")
        if job is None or job["spec"].get("suspend") or job.get("status") or self.head is None or not self.head.up:
            return
        if job_id not in self.head.jobs:
            self._starts(job_id)

    def _starts(self, job_id: str) -> None:
        assert self.head is not None
        self.executions.append((self.head.session, job_id))
        self.head.jobs[job_id] = "PENDING"

    def submitter_ends(self, end: str) -> None:
        job = self.named("Job")
        if job is not None and not job.get("status"):
            condition = {"type": end, "status": "True", "reason": "R", "message": "m", "lastTransitionTime": stamp()}
            self.objects["Job", "train"] = {**job, "status": {"conditions": [condition]}}

    def submitter_is_deleted(self) -> None:
        self.objects.pop(("Job", "train"), None)

    def job_goes_on(self, status: str) -> None:
        if self.head is not None:
            for job_id, before in self.head.jobs.items():
                if before not in ENDS:
                    self.head.jobs[job_id] = status
                    if status in ENDS:
                        self.ended_as[self.head.session] = status

    def probe_answers(self) -> None:
        if self.watch is None:
            return
        value: dict[str, Any] = {"token": self.watch.token, "session": "", "record": None, "error": None, "asked": True}
        if self.head is None or not self.head.up:
            value["error"] = "refused"
        else:
            value["session"] = self.head.session
            status = self.head.jobs.get(self.watch.submission_id)
            value["record"] = record(status) if status else None
        self.fact = Fact(value=value, seen_at=self.now)

    def time_passes(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)

    # What the controller does

    def tree(self, *, fresh: bool) -> Tree:
        facts = {f"rayjob/{self.status().get('jobId')}": self.fact} if self.fact else {}
        return tree(
            self.job, *sorted(self.objects.values(), key=lambda o: o["kind"]), key=KEY, facts=facts, fresh=fresh
        )

    def passes(self) -> None:
        plan = decide(observe(self.tree(fresh=True)), policy=POLICY, now=self.now)
        outcomes = self._carry_out(plan)
        final = conclude(observe(self.tree(fresh=True)), outcomes, policy=POLICY, now=self.now)
        self._carry_out(final)
        self.watch = plan.probes[0] if plan.probes else None

    def restarts(self) -> None:
        self.fact, self.watch = None, None

    def _carry_out(self, plan: Plan) -> tuple[Outcome, ...]:
        done: list[Outcome] = []
        for step in plan.steps:
            for action in step:
                if self.cut <= 0:
                    return tuple(done)
                self.cut -= 1
                done.append(self._one(action))
            if not all(outcome.ok for outcome in done):
                break
        return tuple(done)

    def _one(self, action: Any) -> Outcome:
        status = self.status()
        match action:
            case CreateRayCluster() | CreateJob() | CreateService():
                assert status.get("startTime"), "J2: the start is stored first"
                assert status.get("rayClusterName"), "J2: the names are stored first"
                assert status.get("jobId"), "J2: the names are stored first"
                self._create(action)
            case PatchRayJob() | PatchRayJobStatus():
                if action.resource_version != self.job["metadata"]["resourceVersion"]:
                    return Outcome(action=action, result=Result.CONFLICT)
                if isinstance(action, PatchRayJobStatus):
                    self._check_move(status, action.status)
                self.job = patched(self.job, action)
            case PatchJob():
                job = self.objects["Job", "train"]
                self.objects["Job", "train"] = {**job, "spec": {**job["spec"], **action.patch["spec"]}}
            case DeleteRayCluster():
                assert status.get("jobDeploymentStatus") in ("Complete", "Failed")
                self.cluster_is_deleted()
            case SubmitRayJob():
                return self._submit(action)
            case StopRayJob():
                if self.head is None or not self.head.up:
                    return Outcome(action=action, result=Result.FAILED)
                if self.head.jobs.get(action.submission_id, "SUCCEEDED") not in ENDS:
                    self.head.jobs[action.submission_id] = "STOPPED"
        return Outcome(action=action, result=Result.DONE)

    def _create(self, action: Any) -> None:
        key = (action.kind.kind, action.name)
        self.version += 1
        meta = {**action.body["metadata"], "uid": f"u{self.version}", "resourceVersion": str(self.version)}
        self.objects.setdefault(key, {**action.body, "metadata": {**meta, "creationTimestamp": stamp()}})

    def _submit(self, action: SubmitRayJob) -> Outcome:
        if self.head is None or not self.head.up:
            return Outcome(action=action, result=Result.AMBIGUOUS)
        if action.submission_id in self.head.jobs:
            return Outcome(action=action, result=Result.ALREADY_SO)
        self._starts(action.submission_id)
        return Outcome(action=action, result=Result.DONE)

    def _check_move(self, before: Any, after: Any) -> None:
        was, now = (Deployment(status.get("jobDeploymentStatus") or "") for status in (before, after))
        assert allowed(was, now), f"J3: {was} to {now}"
        assert after.get("jobStatus", "") in PAIRS[now] or now is Deployment.FAILED, (
            f"J3: {now} with {after.get('jobStatus')}"
        )
        assert JobState(after.get("jobStatus", "")) in PAIRS[now], f"J3: {now} with {after.get('jobStatus')}"
        if now is Deployment.COMPLETE:
            session = self.job["metadata"].get("annotations", {}).get("raybus.io/head-session")
            assert self.ended_as.get(session) == after["jobStatus"], "J4: no record of the remembered head says so"
        if was is not now and now in (Deployment.COMPLETE, Deployment.FAILED):
            assert after["endTime"]
            assert after["failed"] == (now is Deployment.FAILED)


LOOKS = [("probe_answers",), ("passes",), ("passes",)]
EVENTS: list[tuple[Any, ...]] = [
    ("cluster_gets_ready",), ("submitter_submits",), ("job_goes_on", "RUNNING"), ("job_goes_on", "SUCCEEDED"),
    ("job_goes_on", "FAILED"), ("job_goes_on", "STOPPED"), ("submitter_ends", "Complete"), ("submitter_ends", "Failed"),
    ("submitter_is_deleted",), ("head_is_replaced",), ("head_pod_vanishes",), ("dashboard_flaps",), ("cluster_is_deleted",),
    ("restarts",), ("time_passes", 1), ("time_passes", 40), ("time_passes", 400), ("cut", 0), ("cut", 1), ("cut", 2),
]  # fmt: skip
LIKELY: list[tuple[Any, ...]] = [
    ("submitter_submits",), ("job_goes_on", "RUNNING"), ("job_goes_on", "SUCCEEDED"), ("submitter_ends", "Complete"),
    ("head_is_replaced",), ("dashboard_flaps",),
]  # fmt: skip
# Each event is followed by none, some or all of what it takes to notice it.
STEPS = st.tuples(st.sampled_from(LIKELY) | st.sampled_from(EVENTS), st.integers(0, 3)).map(
    lambda drawn: [drawn[0], *LOOKS[: drawn[1]]]
)
BEGUN: list[tuple[Any, ...]] = [*[("passes",)] * 3, ("cluster_gets_ready",), *[("passes",)] * 2]
RUNS: list[tuple[Any, ...]] = [
    *BEGUN, *LOOKS, ("submitter_submits",), ("job_goes_on", "RUNNING"), *LOOKS, *LOOKS,
]  # fmt: skip
LIVES = st.tuples(st.sampled_from([[], BEGUN, RUNS, RUNS]), st.lists(STEPS, max_size=25)).map(
    lambda drawn: [*drawn[0], *(step for part in drawn[1] for step in part)]
)


def play(life: Life, steps: list[tuple[Any, ...]]) -> None:
    for name, *arguments in steps:
        if name == "cut":
            # The process dies within its next pass, and another one takes over.
            life.cut = arguments[0]
            life.passes()
            life.cut = 99
            life.restarts()
        else:
            getattr(life, name)(*arguments)
        assert max((life.executions.count(one) for one in life.executions), default=0) <= 1, "J1: twice on one head"


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(["K8sJobMode", "HTTPMode"]), LIVES)
def test_no_life_breaks_the_invariants(mode: str, steps: list[tuple[Any, ...]]) -> None:
    life = Life(mode)
    play(life, steps)
    if mode == "HTTPMode":
        assert len(life.executions) <= 1, "J1: Raybus itself sends an attempt's job to one head only"


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(["K8sJobMode", "HTTPMode"]), LIVES)
def test_every_life_comes_to_an_end_and_then_to_rest(mode: str, steps: list[tuple[Any, ...]]) -> None:
    """After all faults, a job that runs to its end (or a head that does not) leads to a verdict, clean-up and no more writes."""
    life = Life(mode)
    play(life, steps)
    if life.head is not None and life.named("Pod") is not None:
        life.head.up = True
    rest: list[tuple[Any, ...]] = [
        ("passes",), ("passes",), ("passes",), ("cluster_gets_ready",), ("passes",), ("passes",), ("submitter_submits",), ("probe_answers",),
        ("passes",), ("passes",), ("probe_answers",), ("passes",), ("passes",), ("job_goes_on", "SUCCEEDED"), ("probe_answers",), ("passes",),
        ("passes",), ("submitter_ends", "Complete"), ("passes",), ("probe_answers",), ("passes",), ("time_passes", 400), ("probe_answers",),
        ("passes",), ("passes",), ("time_passes", 400), ("passes",), ("passes",),
    ]  # fmt: skip
    play(life, rest)
    assert life.status()["jobDeploymentStatus"] in ("Complete", "Failed")
    assert life.named("RayCluster") is None
    before = (life.job["metadata"]["resourceVersion"], len(life.objects))
    play(life, [("probe_answers",), ("passes",), ("passes",)])
    assert (life.job["metadata"]["resourceVersion"], len(life.objects)) == before


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(["K8sJobMode", "HTTPMode"]), LIVES)
def test_deciding_twice_on_the_same_gives_the_same(mode: str, steps: list[tuple[Any, ...]]) -> None:
    life = Life(mode)
    play(life, steps)
    seen = observe(life.tree(fresh=True))
    assert decide(seen, policy=POLICY, now=life.now) == decide(seen, policy=POLICY, now=life.now)


def lived(mode: str, *steps: Any) -> Life:
    life = Life(mode)
    play(life, [step if isinstance(step, tuple) else (step,) for step in steps])
    return life


def verdict(life: Life) -> tuple[str, str, str]:
    status = life.status()
    return status["jobDeploymentStatus"], status.get("jobStatus", ""), status.get("reason", "")


def test_the_same_work_on_another_head_completes_nothing() -> None:
    """The head dies, its successor is given the job again by the submitter, and there it even succeeds."""
    life = lived("K8sJobMode", *RUNS, "head_is_replaced", "submitter_submits", ("job_goes_on", "SUCCEEDED"), *LOOKS)
    assert len(life.executions) == 2
    assert verdict(life) == ("Failed", "FAILED", "AppFailed")


def test_a_lost_job_is_not_started_again_after_the_verdict() -> None:
    life = lived("K8sJobMode", *RUNS, "head_is_replaced", *LOOKS, *LOOKS, "submitter_submits")
    assert verdict(life) == ("Failed", "FAILED", "AppFailed")
    assert len(life.executions) == 1


def test_an_ended_job_is_not_started_again_by_its_own_submitter() -> None:
    """The head goes while the log of a job that has ended is still followed, and the submitter tries again."""
    life = lived(
        "K8sJobMode", *RUNS, ("job_goes_on", "SUCCEEDED"), *LOOKS, "head_is_replaced", "passes", "submitter_submits"
    )
    assert len(life.executions) == 1
    play(life, [("passes",), *LOOKS])
    assert verdict(life) == ("Complete", "SUCCEEDED", "")


def test_a_job_that_nobody_could_ask_about_is_not_started_again_after_the_verdict() -> None:
    """A lost node: silence first, the verdict, and only then another head."""
    life = lived("K8sJobMode", *RUNS, "dashboard_flaps", *LOOKS, ("time_passes", 400), *LOOKS)
    assert verdict(life)[::2] == ("Failed", "JobStatusCheckTimeoutExceeded")
    play(life, [("head_is_replaced",), ("passes",), ("submitter_submits",)])
    assert len(life.executions) == 1


def test_what_the_submitter_started_on_the_next_head_is_stopped() -> None:
    life = lived("K8sJobMode", *RUNS, "head_is_replaced", "submitter_submits", ("job_goes_on", "RUNNING"), *LOOKS)
    assert verdict(life) == ("Failed", "FAILED", "AppFailed")
    assert life.head is not None
    assert set(life.head.jobs.values()) == {"STOPPED"}


def test_a_submission_whose_answer_was_lost_is_not_repeated_on_the_next_head() -> None:
    """Killed between the submission and its note in the status, and then the head is another one."""
    life = lived("HTTPMode", *BEGUN, "probe_answers", "passes", "probe_answers", ("cut", 1))
    assert len(life.executions) == 1
    assert not life.status().get("jobStatus")
    play(life, [("head_is_replaced",), ("passes",), *LOOKS, *LOOKS])
    assert len(life.executions) == 1
    assert verdict(life)[0] == "Failed"


def test_a_submission_whose_answer_was_lost_is_found_on_the_same_head() -> None:
    life = lived("HTTPMode", *BEGUN, "probe_answers", "passes", "probe_answers", ("cut", 1), "passes", *LOOKS)
    assert len(life.executions) == 1
    assert verdict(life) == ("Running", "PENDING", "")


def test_a_dead_submitter_does_not_end_a_live_job() -> None:
    life = lived("K8sJobMode", *RUNS, ("submitter_ends", "Failed"), *LOOKS, ("time_passes", 400), *LOOKS)
    assert verdict(life) == ("Running", "RUNNING", "")
    play(life, [("job_goes_on", "SUCCEEDED"), *LOOKS])
    assert verdict(life) == ("Complete", "SUCCEEDED", "")
    assert len(life.executions) == 1
