"""The executor: one outcome for each action, whatever the server answers; own writes in the mirror; events and history."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from raybus.decide.actions import (
    Action,
    Announce,
    CreatePod,
    DeletePod,
    DeleteRayCluster,
    PatchRayClusterStatus,
    PatchService,
    RayEndpoint,
    Reconsider,
    RecordEvent,
    StopRayJob,
)
from raybus.decide.outcome import Outcome, Result
from raybus.decide.plan import Plan
from raybus.kube import errors
from raybus.observe.metrics import ControllerMetrics
from raybus.runtime import executor as executor_module
from raybus.runtime import outcomes
from raybus.runtime.executor import Executor, Handler, PassContext
from support.scripted import Outside, cluster, key_of, pod

ACTIONS = (CreatePod, DeletePod, DeleteRayCluster, PatchRayClusterStatus, StopRayJob)


class Bench:
    """An executor over stand-ins, and a stored RayCluster to act on."""

    def __init__(self, handlers: dict[type[Action], Handler] | None = None) -> None:
        self.outside = Outside()
        self.root = self.outside.exists(cluster("c1", state="old"))
        self.executor = Executor(
            "raycluster",
            self.outside.ports,
            self.outside.clock,
            ControllerMetrics("raycluster"),
            actions=ACTIONS,
            handlers=handlers,
        )
        self.lease: Callable[[], bool] = lambda: True

    async def run(self, *steps: tuple[Action, ...], budget: int = 64) -> tuple[Outcome, ...]:
        context = PassContext(key_of("c1"), self.root, "test", self.lease)
        return await self.executor.run(Plan(steps=steps), context, budget)

    async def one(self, action: Action) -> Outcome:
        (outcome,) = await self.run((action,))
        return outcome

    def create(self, name: str = "p1", **fields: Any) -> CreatePod:
        return CreatePod(reason="wanted", body=pod(name, self.root), **fields)

    def status(self, **status: Any) -> PatchRayClusterStatus:
        meta = self.root["metadata"]
        return PatchRayClusterStatus(
            reason="changed",
            namespace="ns",
            name="c1",
            uid=meta["uid"],
            previous=self.root["status"],
            status=status,
            resource_version=meta["resourceVersion"],
        )

    def delete(self, obj: dict[str, Any], **fields: Any) -> DeletePod:
        meta = obj["metadata"]
        return DeletePod(reason="too many", namespace="ns", name=meta["name"], uid=meta["uid"], **fields)


@pytest.fixture
def bench() -> Bench:
    return Bench()


class TestCreate:
    async def test_a_created_object_is_in_the_mirror_at_once(self, bench: Bench) -> None:
        outcome = await bench.one(bench.create())

        assert outcome.result is Result.DONE
        assert outcome.body
        assert outcome.body["metadata"]["uid"] in bench.outside.mirror.objects

    async def test_already_there_and_ours_is_success(self, bench: Bench) -> None:
        bench.outside.kube.add(pod("p1", bench.root))

        outcome = await bench.one(bench.create())

        assert outcome.result is Result.ALREADY_SO
        assert outcome.body
        assert outcome.body["metadata"]["uid"] in bench.outside.mirror.objects

    async def test_already_there_and_foreign_is_refused(self, bench: Bench) -> None:
        bench.outside.kube.add(pod("p1", cluster("other")))

        outcome = await bench.one(bench.create())

        assert outcome.result is Result.REFUSED
        assert "other" in outcome.message

    async def test_a_lost_answer_of_a_creation_that_happened_is_found_out(self, bench: Bench) -> None:
        bench.outside.kube.lose_answer.add("create")

        outcome = await bench.one(bench.create())

        assert outcome.result is Result.ALREADY_SO
        assert bench.outside.kube.writes == [("create", "Pod/p1")]

    async def test_a_lost_answer_of_a_creation_that_may_still_happen_stays_open(self, bench: Bench) -> None:
        bench.outside.kube.fail["create"] = [errors.NoAnswer("time-out")]

        assert (await bench.one(bench.create())).result is Result.AMBIGUOUS

    async def test_no_answer_to_the_question_either_stays_open(self, bench: Bench) -> None:
        bench.outside.kube.lose_answer.add("create")
        bench.outside.kube.fail["get"] = [errors.NoAnswer("time-out")]

        assert (await bench.one(bench.create())).result is Result.AMBIGUOUS


class TestDelete:
    async def test_an_object_that_is_gone_at_once_leaves_the_mirror(self, bench: Bench) -> None:
        stored = bench.outside.exists(pod("p1", bench.root))

        outcome = await bench.one(bench.delete(stored))

        assert outcome.result is Result.DONE
        assert stored["metadata"]["uid"] not in bench.outside.mirror.objects

    async def test_an_object_with_a_finalizer_stays_in_the_mirror_as_being_deleted(self, bench: Bench) -> None:
        stored = bench.outside.exists(pod("p1", bench.root, finalizers=["wait"]))

        await bench.one(bench.delete(stored))

        assert "deletionTimestamp" in bench.outside.mirror.objects[stored["metadata"]["uid"]]["metadata"]

    async def test_what_is_gone_already_is_success_and_leaves_the_mirror(self, bench: Bench) -> None:
        stored = bench.outside.exists(pod("p1", bench.root))
        bench.outside.kube.objects.clear()

        outcome = await bench.one(bench.delete(stored))

        assert outcome.result is Result.GONE
        assert outcome.ok
        assert stored["metadata"]["uid"] not in bench.outside.mirror.objects

    async def test_another_object_of_the_same_name_is_left_alone(self, bench: Bench) -> None:
        stored = bench.outside.exists(pod("p1", bench.root))
        bench.outside.kube.objects.clear()
        namesake = bench.outside.kube.add(pod("p1", bench.root))

        outcome = await bench.one(bench.delete(stored))

        assert outcome.result is Result.GONE
        assert namesake in bench.outside.kube.objects.values()
        assert stored["metadata"]["uid"] not in bench.outside.mirror.objects
        assert namesake["metadata"]["uid"] in bench.outside.mirror.objects

    async def test_a_newer_version_than_the_one_decided_on_is_a_conflict_and_becomes_known(self, bench: Bench) -> None:
        stored = bench.outside.exists(pod("p1", bench.root))
        action = bench.delete(stored, resource_version="1")

        outcome = await bench.one(action)

        assert outcome.result is Result.CONFLICT
        assert ("get", "Pod/p1") in bench.outside.kube.calls

    async def test_a_lost_answer_of_a_deletion_that_happened_is_found_out(self, bench: Bench) -> None:
        stored = bench.outside.exists(pod("p1", bench.root))
        bench.outside.kube.lose_answer.add("delete")

        assert (await bench.one(bench.delete(stored))).result is Result.GONE


class TestStatus:
    async def test_only_the_difference_is_sent(self, bench: Bench) -> None:
        outcome = await bench.one(bench.status(state="ready"))

        assert outcome.result is Result.DONE
        assert bench.outside.kube.writes == [("patch", "RayCluster/c1/status")]
        assert bench.outside.mirror.objects[bench.root["metadata"]["uid"]]["status"] == {"state": "ready"}

    async def test_a_status_that_is_so_already_costs_no_request(self, bench: Bench) -> None:
        outcome = await bench.one(bench.status(state="old"))

        assert outcome.result is Result.ALREADY_SO
        assert bench.outside.kube.calls == []

    async def test_a_conflict_brings_the_newer_version_into_the_mirror(self, bench: Bench) -> None:
        newer = {**bench.root, "metadata": {**bench.root["metadata"], "resourceVersion": "999"}}
        bench.outside.kube.objects["RayCluster", "ns", "c1"] = newer

        outcome = await bench.one(bench.status(state="ready"))

        assert outcome.result is Result.CONFLICT
        assert bench.outside.mirror.objects[bench.root["metadata"]["uid"]] is newer

    async def test_the_last_finalizer_of_a_deleted_object_takes_it_out_of_the_mirror(self, bench: Bench) -> None:
        uid = bench.root["metadata"]["uid"]
        bench.root["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"

        await bench.one(bench.status(state="last"))

        assert uid not in bench.outside.mirror.objects


class TestOrder:
    async def test_the_first_step_that_is_not_ok_ends_the_plan(self, bench: Bench) -> None:
        bench.outside.kube.fail["create"] = [errors.Forbidden(403, "Forbidden", "quota")]

        results = await bench.run((bench.create("a"),), (bench.create("b"), bench.create("c")))

        assert [outcome.result for outcome in results] == [Result.REFUSED, Result.SKIPPED, Result.SKIPPED]
        assert bench.outside.kube.writes == [("create", "Pod/a")]

    async def test_actions_of_a_step_run_side_by_side_up_to_eight(self, bench: Bench) -> None:
        bench.outside.kube.slow_s = 0.01

        results = await bench.run(tuple(bench.create(f"p{n}") for n in range(20)))

        assert all(outcome.ok for outcome in results)
        assert bench.outside.kube.most_in_flight == 8

    async def test_a_pass_carries_out_no_more_than_its_budget(self, bench: Bench) -> None:
        results = await bench.run(tuple(bench.create(f"p{n}") for n in range(6)), budget=4)

        assert [outcome.ok for outcome in results] == [True] * 4 + [False] * 2
        assert {outcome.message for outcome in results[4:]} == {outcomes.STEP_LIMIT}
        assert len(bench.outside.kube.writes) == 4

    async def test_reconsidering_ends_the_plan_without_a_failure(self, bench: Bench) -> None:
        results = await bench.run((Reconsider(reason="names are known now"),), (bench.create(),))

        assert [outcome.result for outcome in results] == [Result.DONE, Result.SKIPPED]
        assert outcomes.verdict(results) == outcomes.Verdict(again=True)

    async def test_nothing_is_written_once_the_lease_is_lost(self, bench: Bench) -> None:
        bench.lease = lambda: len(bench.outside.kube.writes) < 1

        results = await bench.run((bench.create("a"),), (bench.create("b"),), (bench.create("c"),))

        assert bench.outside.kube.writes == [("create", "Pod/a")]
        assert [outcome.result for outcome in results] == [Result.DONE, Result.SKIPPED, Result.SKIPPED]


class TestHandlers:
    ENDPOINT = RayEndpoint(address="h:8265", namespace="ns", service="s")

    async def test_a_service_carries_out_its_own_actions(self) -> None:
        async def stop(action: StopRayJob) -> Outcome:
            return Outcome(action=action, result=Result.DONE, detail="stopped")

        outcome = await Bench({StopRayJob: stop}).one(
            StopRayJob(reason="suspended", endpoint=self.ENDPOINT, submission_id="s1")
        )

        assert outcome.detail == "stopped"

    async def test_a_handler_that_raises_gives_an_outcome(self) -> None:
        async def stop(action: StopRayJob) -> Outcome:
            raise ValueError("bug")

        outcome = await Bench({StopRayJob: stop}).one(
            StopRayJob(reason="suspended", endpoint=self.ENDPOINT, submission_id="s1")
        )

        assert outcome.result is Result.FAILED
        assert "bug" in outcome.message

    async def test_a_handler_that_does_not_end_gives_an_open_outcome(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(executor_module, "HANDLER_TIMEOUT_S", 0.01)

        async def stop(action: StopRayJob) -> Outcome:
            await asyncio.sleep(60)
            raise AssertionError

        outcome = await Bench({StopRayJob: stop}).one(
            StopRayJob(reason="suspended", endpoint=self.ENDPOINT, submission_id="s1")
        )

        assert outcome.result is Result.AMBIGUOUS

    async def test_an_action_that_the_controller_did_not_declare_is_not_carried_out(self, bench: Bench) -> None:
        action = PatchService(reason="x", namespace="ns", name="s", uid="u", patch={}, resource_version="1")

        outcome = await bench.one(action)

        assert outcome.result is Result.FAILED
        assert "PatchService" in outcome.message
        assert bench.outside.kube.calls == []


class TestTelling:
    ANNOUNCE = Announce(action="Create", done="CreatedPod", failed="FailedToCreatePod", note="Created pod p1")

    async def test_what_was_done_is_announced_on_the_root(self, bench: Bench) -> None:
        await bench.one(bench.create(announce=self.ANNOUNCE))

        assert bench.outside.events.recorded == [("Normal", "CreatedPod", "Created pod p1")]

    async def test_a_failure_is_announced_with_the_words_of_the_server(self, bench: Bench) -> None:
        bench.outside.kube.fail["create"] = [errors.Forbidden(403, "Forbidden", "exceeded quota: pods=2")]

        await bench.one(bench.create(announce=self.ANNOUNCE))

        assert bench.outside.events.recorded == [
            ("Warning", "FailedToCreatePod", "Created pod p1: exceeded quota: pods=2")
        ]

    async def test_what_was_so_already_is_not_announced_again(self, bench: Bench) -> None:
        bench.outside.kube.add(pod("p1", bench.root))

        await bench.one(bench.create(announce=self.ANNOUNCE))

        assert bench.outside.events.recorded == []

    async def test_equal_events_within_ten_minutes_are_sent_once(self, bench: Bench) -> None:
        event = RecordEvent(
            reason="spec", regarding=bench.root, type="Warning", event_reason="Invalid", action="Validate", note="bad"
        )

        results = [(await bench.one(event)).result for _ in range(3)]

        assert results == [Result.DONE, Result.ALREADY_SO, Result.ALREADY_SO]
        assert bench.outside.events.recorded == [("Warning", "Invalid", "bad")]

    async def test_a_happening_is_told_again_when_it_happens_later(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(executor_module, "EVENT_REPEAT_S", 0.0)
        event = RecordEvent(
            reason="ended", regarding=bench.root, type="Normal", event_reason="Ended", action="Watch", note="p1 ended"
        )
        for _ in range(2):
            await bench.one(event)

        assert len(bench.outside.events.recorded) == 2

    async def test_what_rests_is_told_once_per_version_of_the_object(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(executor_module, "EVENT_REPEAT_S", 0.0)
        meta = bench.root["metadata"]
        for generation in (1, 1, 2):
            root = {**bench.root, "metadata": {**meta, "generation": generation}}
            event = RecordEvent(
                reason="spec",
                regarding=root,
                type="Warning",
                event_reason="Invalid",
                action="Validate",
                note="bad",
                rests=True,
            )
            await bench.one(event)

        assert bench.outside.events.recorded == [("Warning", "Invalid", "bad")] * 2
        assert len(bench.outside.history.of("action")) == 2

    async def test_history_has_each_action_with_its_reason_and_result_but_no_body(self, bench: Bench) -> None:
        await bench.one(bench.create())

        (record,) = bench.outside.history.of("action")
        assert record["class"] == "CreatePod"
        assert record["target"] == "Pod/p1"
        assert record["reason"] == "wanted"
        assert record["result"] == "done"
        assert "spec" not in str(record)
