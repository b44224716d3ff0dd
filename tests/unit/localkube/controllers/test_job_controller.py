"""The Job controller as a pure machine, driven pass by pass by a small world that does what it asks for.

One module, although long: all of it happens in that world.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybus.domain.kinds import JOB, POD
from raybus.kube.errors import AlreadyExists
from raybus_localkube.controllers.controller import Ref
from raybus_localkube.controllers.jobs import indexes
from raybus_localkube.controllers.jobs.controller import Jobs
from raybus_localkube.controllers.jobs.facts import TRACKING
from raybus_localkube.controllers.work import Call, Json, Work
from support.patches import applied

START = datetime(2026, 1, 1, tzinfo=UTC)
Object = dict[str, Any]


def stamp(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


class World:
    """One Job, its pods, a clock; `settle` runs passes until there is nothing left to do now."""

    def __init__(self, **spec: Any) -> None:
        self.now = START
        self.jobs = Jobs()
        self.pods: dict[str, Object] = {}
        self.writes: list[Call] = []
        self.events: list[str] = []
        self.wake_at: datetime | None = None
        self.nodes = False  # pods are on a node: a deleted one stays until it has ended
        self._numbers = count(1)
        template = spec.pop("template", {"spec": {"restartPolicy": "Never", "containers": [{"name": "main"}]}})
        spec = {"parallelism": 1, "completions": 1, "backoffLimit": 6, "template": template, **spec}
        meta = {"name": "j", "namespace": "ns", "uid": "job-uid", "resourceVersion": str(next(self._numbers))}
        self.job: Object | None = {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}
        self.key = self.jobs.key("ns", "job-uid")
        self.tell(JOB, self.job)

    def tell(self, kind: Any, obj: Object) -> None:
        obj["metadata"]["resourceVersion"] = str(next(self._numbers))
        self.jobs.changed(kind, obj)

    def decide(self) -> Work:
        return self.jobs.decide(self.key, self.now)

    def settle(self) -> World:
        for _ in range(50):
            work = self.decide()
            self.wake_at = work.wake_at
            self.events += [event.reason for event in work.events]
            if not work.steps:
                return self
            for step in work.steps:
                for call in step:
                    self.do(call)
        raise AssertionError("no end of passes")

    def do(self, call: Call) -> None:
        self.writes.append(call)
        if call.event:
            self.events.append(call.event.reason)
        name = call.path.split("/")[7 if call.kind == JOB else 6] if call.method != "POST" else ""
        if call.method == "POST":
            assert call.body is not None
            meta = {**call.body["metadata"], "uid": f"pod-{next(self._numbers)}", "creationTimestamp": stamp(self.now)}
            pod = {**call.body, "metadata": meta, "status": {"phase": "Pending"}}
            self.pods[meta["name"]] = pod
            self.tell(POD, pod)
        elif call.kind == JOB and call.method == "PATCH":
            assert self.job is not None
            self.job = applied(self.job, call.body)
            self.tell(JOB, self.job)
        elif call.kind == JOB:
            self.drop_job()
        elif call.method == "PATCH":
            self.pods[name] = applied(self.pods[name], call.body)
            self.update(name)
        else:
            self.delete(name)

    def update(self, name: str) -> None:
        pod = self.pods[name]
        meta = pod["metadata"]
        held = meta.get("finalizers") or (self.nodes and pod["status"]["phase"] not in ("Succeeded", "Failed"))
        if "deletionTimestamp" in meta and not held:
            del self.pods[name]
            self.jobs.gone(POD, Ref(meta["uid"], "ns", name))
        else:
            self.tell(POD, pod)

    def delete(self, name: str) -> None:
        self.pods[name]["metadata"]["deletionTimestamp"] = stamp(self.now)
        self.update(name)

    def phase(self, name: str, phase: str, **status: Any) -> None:
        self.pods[name] = {**self.pods[name], "status": {"phase": phase, **status}}
        self.update(name)

    def end(self, phase: str, name: str | None = None) -> World:
        """A running pod ends now."""
        name = name or next(n for n, pod in self.pods.items() if pod["status"]["phase"] in ("Pending", "Running"))
        ended = {"state": {"terminated": {"finishedAt": stamp(self.now)}}}
        self.phase(name, phase, containerStatuses=[ended])
        return self.settle()

    def spec(self, **changes: Any) -> World:
        assert self.job is not None
        self.job = applied(self.job, {"spec": changes})
        self.tell(JOB, self.job)
        return self.settle()

    def drop_job(self) -> None:
        self.job = None
        self.jobs.gone(JOB, Ref("job-uid", "ns", "j"))

    def later(self, seconds: float) -> World:
        self.now += timedelta(seconds=seconds)
        return self.settle()

    @property
    def status(self) -> Object:
        assert self.job is not None
        found: Object = self.job.get("status") or {}
        return found

    @property
    def conditions(self) -> list[tuple[str, str, str]]:
        return [(each["type"], each["status"], each["reason"]) for each in self.status.get("conditions") or ()]

    @property
    def live(self) -> list[str]:
        return [name for name, pod in self.pods.items() if pod["status"]["phase"] in ("Pending", "Running")]


COMPLETE = [("SuccessCriteriaMet", "True", "CompletionsReached"), ("Complete", "True", "CompletionsReached")]


def failed(reason: str) -> list[tuple[str, str, str]]:
    return [("FailureTarget", "True", reason), ("Failed", "True", reason)]


# --- the plain life


def test_first_pass_makes_a_pod_and_tells_so() -> None:
    world = World(
        template={"metadata": {"labels": {"a": "b"}}, "spec": {"restartPolicy": "Never", "containers": []}}
    ).settle()
    (pod,) = world.pods.values()
    assert pod["metadata"]["generateName"] == "j-"
    assert pod["metadata"]["name"].startswith("j-")
    assert len(pod["metadata"]["name"]) == 7
    assert pod["metadata"]["labels"] == {"a": "b"}
    assert pod["metadata"]["finalizers"] == [TRACKING]
    (owner,) = pod["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"], owner["blockOwnerDeletion"]) == (
        "Job",
        "job-uid",
        True,
        True,
    )
    assert world.status == {
        "startTime": stamp(START), "active": 1, "ready": 0, "terminating": 0, "uncountedTerminatedPods": {},
    }  # fmt: skip
    assert world.events == ["SuccessfulCreate"]


def test_nothing_is_written_at_rest() -> None:
    world = World().settle()
    before = len(world.writes)
    world.later(3600)
    assert len(world.writes) == before


def test_success() -> None:
    world = World().settle().end("Succeeded")
    assert world.conditions == COMPLETE
    assert world.status["succeeded"] == 1
    assert world.status["completionTime"] == stamp(START)
    assert "active" not in world.status
    assert world.status["uncountedTerminatedPods"] == {}
    assert all(not pod["metadata"].get("finalizers") for pod in world.pods.values())
    assert world.events == ["SuccessfulCreate", "Completed"]


def test_pod_is_listed_before_its_finalizer_goes_and_counted_after() -> None:
    world = World().settle()
    (name,) = world.live
    world.phase(name, "Succeeded")
    world.writes.clear()
    world.settle()
    kinds = [(call.kind.kind, sorted((call.body or {}).get("status") or ())) for call in world.writes]
    assert kinds[0] == ("Job", ["active", "conditions", "uncountedTerminatedPods"])
    assert kinds[1] == ("Pod", [])
    assert kinds[2][0] == "Job"
    assert "succeeded" in kinds[2][1]


@pytest.mark.parametrize("crash_after", range(3))
def test_a_pod_counts_once_wherever_the_controller_dies(crash_after: int) -> None:
    world = World(backoffLimit=3).settle()
    (name,) = world.live
    world.phase(name, "Failed")
    calls = 0
    while calls < crash_after:
        for step in world.decide().steps:
            for call in step:
                if calls < crash_after:
                    world.do(call)
                    calls += 1
    reborn = Jobs()
    assert world.job is not None
    reborn.changed(JOB, world.job)
    for pod in world.pods.values():
        reborn.changed(POD, pod)
    world.jobs = reborn
    world.settle()
    assert world.status["failed"] == 1
    assert world.status["uncountedTerminatedPods"] == {}


def test_counters_are_written_once_a_second_and_not_lost() -> None:
    world = World().settle()
    (name,) = world.live
    world.phase(name, "Running", conditions=[{"type": "Ready", "status": "True"}])
    world.settle()
    assert world.status["ready"] == 0
    assert world.wake_at == START + timedelta(seconds=1)
    world.later(1)
    assert world.status["ready"] == 1


# --- failures


def test_retries_with_growing_back_off_and_then_fails() -> None:
    world = World(backoffLimit=2).settle()
    for wait in (10, 20):
        world.end("Failed")
        assert world.live == []
        assert world.wake_at == world.now + timedelta(seconds=wait)
        world.later(wait - 1)
        assert world.live == []
        world.later(1)
        assert len(world.live) == 1
    world.end("Failed")
    assert world.conditions == failed("BackoffLimitExceeded")
    assert world.status["failed"] == 3
    assert len(world.pods) == 3
    assert world.events[-1] == "BackoffLimitExceeded"


def test_no_retry_with_limit_zero() -> None:
    world = World(backoffLimit=0).settle().end("Failed")
    assert world.conditions == failed("BackoffLimitExceeded")
    assert "completionTime" not in world.status


def test_deleted_pod_counts_as_failed_and_is_replaced() -> None:
    world = World().settle()
    (name,) = world.live
    world.delete(name)
    world.settle()
    assert world.status["failed"] == 1
    world.later(10)
    assert len(world.live) == 1


def test_pod_that_terminates_is_replaced_only_after_its_end_if_so_asked() -> None:
    world = World(podReplacementPolicy="Failed")
    world.nodes = True
    world.settle()
    (name,) = world.live
    world.delete(name)
    world.later(60)
    assert world.status["terminating"] == 1
    assert len(world.pods) == 1
    world.end("Failed", name)
    world.later(60)
    assert world.status["failed"] == 1
    assert len(world.live) == 1


def test_restarts_of_containers_count_with_on_failure() -> None:
    template = {"spec": {"restartPolicy": "OnFailure", "containers": [{"name": "main"}]}}
    world = World(backoffLimit=2, template=template).settle()
    (name,) = world.live
    world.phase(name, "Running", containerStatuses=[{"restartCount": 1}])
    world.settle()
    assert world.conditions == []
    world.phase(name, "Running", containerStatuses=[{"restartCount": 2}])
    world.settle()
    assert world.conditions == failed("BackoffLimitExceeded")


def test_verdict_is_final_only_when_all_pods_have_ended() -> None:
    world = World(backoffLimit=0, parallelism=2, completions=2)
    world.nodes = True
    world.settle()
    first, second = world.live
    world.end("Failed", first)
    assert world.conditions == failed("BackoffLimitExceeded")[:1]
    assert "deletionTimestamp" in world.pods[second]["metadata"]
    world.end("Failed", second)
    assert world.conditions == failed("BackoffLimitExceeded")
    assert world.status["failed"] == 2


def test_deadline() -> None:
    world = World(activeDeadlineSeconds=30).settle()
    assert world.wake_at == START + timedelta(seconds=30)
    world.later(29)
    assert world.conditions == []
    world.later(1)
    assert world.conditions == failed("DeadlineExceeded")
    assert world.status["failed"] == 1
    assert world.pods == {}


# --- size


def test_parallelism_bounds_what_runs() -> None:
    world = World(completions=3, parallelism=2).settle()
    assert len(world.live) == 2
    world.end("Succeeded")
    assert len(world.live) == 2
    world.end("Succeeded")
    assert len(world.live) == 1
    world.end("Succeeded")
    assert world.conditions == COMPLETE
    assert world.status["succeeded"] == 3


def test_without_completions_one_success_ends_it_when_the_others_have_ended() -> None:
    world = World(completions=None, parallelism=2).settle()
    world.end("Succeeded")
    assert len(world.live) == 1
    assert world.conditions == []
    world.end("Succeeded")
    assert world.conditions == COMPLETE


def test_smaller_parallelism_deletes_without_counting() -> None:
    world = World(completions=5, parallelism=3).settle()
    world.spec(parallelism=1)
    assert len(world.live) == 1
    assert "failed" not in world.status


def test_no_completions_wanted() -> None:
    assert World(completions=0).settle().conditions == COMPLETE


# --- suspension


def test_suspending_deletes_pods_without_counting_and_stops_the_clock() -> None:
    world = World(activeDeadlineSeconds=30).settle()
    world.later(5)
    world.spec(suspend=True)
    assert world.pods == {}
    assert world.conditions == [("Suspended", "True", "JobSuspended")]
    assert "startTime" not in world.status
    assert "failed" not in world.status
    assert world.status["terminating"] == 1
    world.later(1)
    assert world.status["terminating"] == 0
    world.later(100)
    world.spec(suspend=False)
    assert world.conditions == [("Suspended", "False", "JobResumed")]
    assert world.status["startTime"] == stamp(world.now)
    assert len(world.live) == 1
    assert world.events == ["SuccessfulCreate", "Suspended", "SuccessfulDelete", "Resumed", "SuccessfulCreate"]


def test_born_suspended() -> None:
    world = World(suspend=True).settle()
    assert world.pods == {}
    assert world.conditions == [("Suspended", "True", "JobSuspended")]
    assert "startTime" not in world.status


# --- indexes


def test_indexed_job_gives_each_index_a_pod() -> None:
    template = {
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "env": [{"name": "A", "value": "1"}]}]}
    }
    world = World(completions=2, parallelism=2, completionMode="Indexed", template=template).settle()
    first, second = world.pods.values()
    assert first["metadata"]["generateName"] == "j-0-"
    assert first["metadata"]["annotations"] == {"batch.kubernetes.io/job-completion-index": "0"}
    assert second["spec"]["hostname"] == "j-1"
    assert [each["name"] for each in second["spec"]["containers"][0]["env"]] == ["A", "JOB_COMPLETION_INDEX"]
    world.end("Succeeded")
    world.end("Succeeded")
    assert world.conditions == COMPLETE
    assert world.status["completedIndexes"] == "0,1"
    assert world.status["succeeded"] == 2


def test_failed_index_is_made_again_under_another_name() -> None:
    world = World(completions=2, parallelism=2, completionMode="Indexed").settle()
    first = next(iter(world.live))
    world.end("Failed", first)
    world.later(10)
    again = [pod for name, pod in world.pods.items() if pod["metadata"]["generateName"] == "j-0-" and name != first]
    assert len(again) == 1


@given(st.sets(st.integers(0, 60)))
def test_index_sets_read_back(given_indexes: set[int]) -> None:
    assert indexes.parse(indexes.render(given_indexes)) == given_indexes


def test_index_sets_are_written_as_kubernetes_does() -> None:
    assert indexes.render({0, 1, 3, 4, 5, 7}) == "0,1,3-5,7"


# --- the end


def test_job_goes_after_its_time_to_live() -> None:
    world = World(ttlSecondsAfterFinished=60).settle().end("Succeeded")
    assert world.wake_at == START + timedelta(seconds=60)
    world.later(60)
    assert world.job is None
    call = world.writes[-1]
    assert call.body is not None
    assert (call.method, call.body["propagationPolicy"], call.body["preconditions"]) == (
        "DELETE", "Foreground", {"uid": "job-uid"},
    )  # fmt: skip


def test_pods_of_a_job_that_is_gone_are_let_go() -> None:
    world = World().settle()
    world.drop_job()
    world.settle()
    assert all(not pod["metadata"].get("finalizers") for pod in world.pods.values())


def test_job_under_deletion_makes_no_pods_and_lets_the_ending_ones_go() -> None:
    world = World().settle()
    assert world.job is not None
    world.job["metadata"]["deletionTimestamp"] = stamp(START)
    world.tell(JOB, world.job)
    (name,) = world.live
    world.delete(name)
    world.later(100)
    assert world.pods == {}


def test_orphaned_pods_of_a_job_under_deletion_lose_the_finalizer() -> None:
    world = World().settle()
    assert world.job is not None
    world.job["metadata"]["deletionTimestamp"] = stamp(START)
    world.tell(JOB, world.job)
    (name,) = world.live
    del world.pods[name]["metadata"]["ownerReferences"]
    world.pods[name]["metadata"]["labels"]["batch.kubernetes.io/controller-uid"] = "job-uid"
    world.update(name)
    world.settle()
    assert not world.pods[name]["metadata"].get("finalizers")


# --- names


def test_name_follows_from_the_job_so_that_a_second_creation_meets_the_first() -> None:
    (one,), (other,) = (step for step in (World().decide().steps, World().decide().steps))
    assert one[0].body is not None
    assert other[0].body is not None
    assert one[0].body["metadata"]["name"] == other[0].body["metadata"]["name"]


def test_name_that_somebody_else_has_is_passed_over_after_three_tries() -> None:
    world = World()
    names: list[str] = []
    for _ in range(4):
        ((call,),) = world.decide().steps
        assert call.body is not None
        names.append(call.body["metadata"]["name"])
        world.jobs.answered(world.key, call, AlreadyExists(409, "AlreadyExists", "there is one"))
    assert names[0] == names[1] == names[2] != names[3]


# --- left alone


def test_job_of_another_controller_is_left_alone() -> None:
    world = World(managedBy="kueue.x-k8s.io/multikueue").settle()
    assert world.writes == []


def test_unsupported_field_is_told_and_nothing_done() -> None:
    world = World(podFailurePolicy={"rules": []}).settle()
    assert world.writes == []
    assert world.events == ["UnsupportedField"]


def test_pods_of_others_do_not_matter() -> None:
    world = World()
    foreign: Json = {"metadata": {"name": "x", "namespace": "ns", "uid": "x", "resourceVersion": "1"}, "status": {}}
    assert list(world.jobs.changed(POD, foreign)) == []
