"""Passes of a controller whose decisions are written down by the test: order, confirmation, back-off, ownership, limits.

One module, although long: every class drives the bench that stands first.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

import pytest

from raybus.decide.actions import CreatePod, PatchRayClusterStatus, RayEndpoint, Reconsider, RecordEvent
from raybus.decide.outcome import Outcome, Result
from raybus.decide.plan import NOTHING, Plan, WatchRayJob
from raybus.decide.tree import RootKey, Tree
from raybus.domain.identity import partition
from raybus.kube import errors
from raybus.observe.metrics import ControllerMetrics
from raybus.runtime import controller as controller_module
from raybus.runtime.controller import Controller
from raybus.runtime.spec import ControllerSpec
from support.scripted import Outside, cluster, key_of, pod, scripted
from support.waiting import eventually

PARTITIONS = 4
C1 = key_of("c1")
P1 = partition("ns", "c1", PARTITIONS)


class Bench:
    """A running controller over stand-ins; `leases` are the partitions whose lease holds."""

    def __init__(self, spec: ControllerSpec[Tree], **options: Any) -> None:
        self.outside = Outside()
        self.leases: set[int] = set()
        self.controller = Controller(
            spec,
            self.outside.ports,
            self.outside.clock,
            ControllerMetrics("raycluster"),
            partitions=PARTITIONS,
            mine=lambda part: part in self.leases,
            read=self.outside.mirror.own,
            **{"workers": 4, **options},
        )

    async def gain(self, *parts: int) -> None:
        self.leases.update(parts)
        for part in parts:
            await self.controller.gained(part)

    async def lose(self, part: int, *, graceful: bool) -> None:
        losing = self.controller.lost(part, graceful)
        if not graceful:
            self.leases.discard(part)
        await losing
        self.leases.discard(part)


@asynccontextmanager
async def running(spec: ControllerSpec[Tree], *objects: dict[str, Any], **options: Any) -> AsyncIterator[Bench]:
    bench = Bench(spec, **options)
    for obj in objects:
        bench.outside.exists(obj)
    bench.controller.start()
    try:
        yield bench
    finally:
        await bench.controller.drain(1)
        await bench.controller.close()


def create(tree: Tree, name: str = "p1", **fields: Any) -> CreatePod:
    assert tree.root
    return CreatePod(reason="wanted", body=pod(name, tree.root), **fields)


def status(tree: Tree, **values: Any) -> PatchRayClusterStatus:
    assert tree.root
    meta = tree.root["metadata"]
    return PatchRayClusterStatus(
        reason="changed",
        namespace=meta["namespace"],
        name=meta["name"],
        uid=meta["uid"],
        status=values,
        previous=tree.root["status"],
        resource_version=meta["resourceVersion"],
    )


def one_pod(tree: Tree, _now: datetime) -> Plan:
    return NOTHING if tree.named("Pod", "p1") else Plan(steps=((create(tree),),))


def count_pods(tree: Tree, _outcomes: tuple[Outcome, ...], _now: datetime) -> Plan:
    wanted = {"pods": len(tree.of("Pod"))}
    return NOTHING if tree.root and tree.root["status"] == wanted else Plan(steps=((status(tree, **wanted),),))


async def test_status_is_concluded_last_from_a_tree_that_has_the_own_writes_in_it() -> None:
    async with running(scripted(one_pod, count_pods), cluster("c1")) as bench:
        await bench.gain(P1)
        await eventually(lambda: bench.outside.kube.objects["RayCluster", "ns", "c1"]["status"] == {"pods": 1})

        assert bench.outside.kube.writes == [("create", "Pod/p1"), ("patch", "RayCluster/c1/status")]


async def test_a_second_look_writes_nothing() -> None:
    async with running(scripted(one_pod, count_pods), cluster("c1")) as bench:
        await bench.gain(P1)
        await eventually(lambda: len(bench.outside.kube.writes) == 2)

        bench.controller.on_change(C1, "RayCluster spec changed")
        await asyncio.sleep(0.05)

        assert len(bench.outside.kube.writes) == 2


async def test_status_is_concluded_also_after_a_failed_action() -> None:
    seen: list[tuple[Outcome, ...]] = []

    def conclude(tree: Tree, done: tuple[Outcome, ...], _now: datetime) -> Plan:
        seen.append(done)
        return Plan(steps=((status(tree, failed=done[0].message),),))

    async with running(scripted(one_pod, conclude), cluster("c1")) as bench:
        bench.outside.kube.fail["create"] = [errors.Forbidden(403, "Forbidden", "quota")] * 100
        await bench.gain(P1)
        await eventually(lambda: ("patch", "RayCluster/c1/status") in bench.outside.kube.writes)

        assert seen[0][0].result is Result.REFUSED


class TestConfirmation:
    async def test_creations_of_the_first_pass_after_a_take_over_rest_on_a_fresh_read(self) -> None:
        """The former owner created the pod; its news has not come yet."""
        async with running(scripted(one_pod), cluster("c1")) as bench:
            tree = bench.outside.mirror.tree(C1)
            assert tree
            assert tree.root
            bench.outside.kube.add(pod("p1", tree.root))

            await bench.gain(P1)
            await eventually(lambda: bench.outside.mirror.freshened)
            await asyncio.sleep(0.02)

            assert bench.outside.kube.writes == []

    async def test_trees_that_appear_later_need_none(self) -> None:
        async with running(scripted(one_pod), cluster("c1")) as bench:
            await bench.gain(*range(PARTITIONS))
            await eventually(lambda: bench.outside.kube.writes)
            bench.outside.exists(cluster("c2"))
            bench.controller.on_change(key_of("c2"), "RayCluster seen")
            await eventually(lambda: len(bench.outside.kube.writes) == 2)

            assert bench.outside.mirror.freshened == [C1]

    async def test_a_plan_that_asks_for_it_is_decided_again_on_the_fresh_tree(self) -> None:
        trees: list[Tree] = []

        def decide(tree: Tree, _now: datetime) -> Plan:
            trees.append(tree)
            return Plan(steps=((create(tree),),), confirm="no pod is left") if not tree.of("Pod") else NOTHING

        async with running(scripted(decide), cluster("c1")) as bench:
            tree = bench.outside.mirror.tree(C1)
            assert tree
            assert tree.root
            bench.outside.kube.add(pod("p0", tree.root))
            await bench.gain(P1)
            await eventually(lambda: len(trees) >= 2)

            assert [tree.fresh for tree in trees[:2]] == [False, True]
            assert bench.outside.kube.writes == []

    async def test_without_a_fresh_read_nothing_is_done_and_it_is_tried_again(self) -> None:
        results: list[Result] = []

        def conclude(_tree: Tree, done: tuple[Outcome, ...], _now: datetime) -> Plan:
            results.extend(outcome.result for outcome in done)
            return NOTHING

        async with running(scripted(one_pod, conclude), cluster("c1")) as bench:
            bench.outside.kube.fail["get"] = [errors.NoAnswer("down"), errors.NoAnswer("down")]
            await bench.gain(P1)
            await eventually(lambda: bench.outside.kube.writes)

            assert results == [Result.SKIPPED, Result.SKIPPED, Result.DONE]

    async def test_an_open_outcome_leads_to_a_fresh_read_before_the_next_creation(self) -> None:
        async with running(scripted(one_pod), cluster("c1")) as bench:
            bench.outside.kube.fail["create"] = [errors.NoAnswer("time-out")]
            await bench.gain(P1)
            await eventually(lambda: len(bench.outside.kube.writes) == 2)

            assert bench.outside.mirror.freshened == [C1, C1]

    async def test_after_a_re_read_creations_rest_on_a_fresh_read_too(self) -> None:
        """NATS may have come back with less than it had acknowledged: what it does not show can be there all the same."""
        async with running(scripted(one_pod), cluster("c1")) as bench:
            await bench.gain(P1)
            await eventually(lambda: bench.outside.kube.writes)
            await asyncio.sleep(0.02)
            bench.outside.mirror.objects = {
                uid: o for uid, o in bench.outside.mirror.objects.items() if o["kind"] != "Pod"
            }
            bench.outside.mirror.freshened.clear()

            bench.controller.doubt()
            bench.controller.on_change(C1, "Pod deleted while nobody looked")
            await eventually(lambda: bench.outside.mirror.freshened)
            await asyncio.sleep(0.02)

            assert len(bench.outside.kube.writes) == 1

    async def test_doubt_that_comes_during_a_pass_counts_for_the_next(self) -> None:
        doubted: list[bool] = []

        def conclude(tree: Tree, _done: tuple[Outcome, ...], _now: datetime) -> Plan:
            if not doubted:
                bench.controller.doubt()
            doubted.append(tree.takeover)
            return NOTHING

        async with running(scripted(lambda _tree, _now: NOTHING, conclude), cluster("c1")) as bench:
            await bench.gain(P1)
            await eventually(lambda: doubted)
            bench.controller.on_change(C1, "RayCluster changed")
            await eventually(lambda: len(doubted) == 2)

            assert doubted == [True, True]


class TestLeases:
    async def test_a_pass_that_lost_its_lease_writes_nothing_more(self) -> None:
        async with running(scripted(one_pod, count_pods), cluster("c1")) as bench:
            bench.outside.kube.slow_s = 0.02
            await bench.gain(P1)
            await eventually(lambda: bench.outside.kube.writes)
            await bench.lose(P1, graceful=False)
            await asyncio.sleep(0.1)

            assert bench.outside.kube.writes == [("create", "Pod/p1")]

    async def test_a_graceful_loss_waits_for_the_running_pass(self) -> None:
        async with running(scripted(one_pod, count_pods), cluster("c1")) as bench:
            bench.outside.kube.slow_s = 0.02
            await bench.gain(P1)
            await eventually(lambda: bench.outside.kube.writes)
            await bench.lose(P1, graceful=True)

            assert bench.controller.queue.running == 0
            assert bench.outside.kube.writes[-1] == ("patch", "RayCluster/c1/status")

    async def test_trees_of_other_partitions_are_left_alone(self) -> None:
        async with running(scripted(one_pod), cluster("c1")) as bench:
            await bench.gain((P1 + 1) % PARTITIONS)
            bench.controller.on_change(C1, "RayCluster seen")
            await asyncio.sleep(0.05)

            assert bench.outside.kube.calls == []

    async def test_partitions_gained_together_are_read_together(self) -> None:
        async with running(scripted()) as bench:
            bench.leases.update(range(PARTITIONS))
            await asyncio.gather(*(bench.controller.gained(part) for part in range(PARTITIONS)))

            assert len(bench.outside.mirror.reads) <= 2
            assert bench.controller.ownership.ready == frozenset(range(PARTITIONS))

    async def test_namespaces_that_are_not_ours_are_left_alone(self) -> None:
        async with running(scripted(one_pod), cluster("c1"), namespaces=("other",)) as bench:
            await bench.gain(P1)
            bench.controller.on_change(C1, "RayCluster seen")
            await asyncio.sleep(0.05)

            assert bench.outside.kube.calls == []


class TestWaiting:
    async def test_no_pass_begins_while_the_markers_are_old(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(controller_module, "RECHECK_S", 0.01)
        async with running(scripted(one_pod), cluster("c1")) as bench:
            bench.outside.mirror.marker_age = 31.0
            await bench.gain(P1)
            await asyncio.sleep(0.05)
            assert bench.outside.kube.calls == []
            assert bench.controller.stale_kinds() == {"Pod": 31.0, "RayCluster": 31.0}

            bench.outside.mirror.marker_age = 1.0
            await eventually(lambda: bench.outside.kube.writes)

    async def test_no_pass_begins_while_the_partition_is_read_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(controller_module, "RECHECK_S", 0.01)
        async with running(scripted(one_pod), cluster("c1")) as bench:
            bench.outside.mirror.unread.add(P1)
            await bench.gain(P1)
            await asyncio.sleep(0.05)
            assert bench.outside.kube.calls == []

            bench.outside.mirror.unread.clear()
            await eventually(lambda: bench.outside.kube.writes)

    async def test_the_earlier_wake_up_of_both_plans_counts(self) -> None:
        passes: list[datetime] = []

        def decide(_tree: Tree, now: datetime) -> Plan:
            passes.append(now)
            return Plan(wake_at=now + timedelta(hours=1))

        def conclude(_tree: Tree, _done: tuple[Outcome, ...], now: datetime) -> Plan:
            return Plan(wake_at=now + timedelta(seconds=0.05))

        async with running(scripted(decide, conclude), cluster("c1")) as bench:
            await bench.gain(P1)
            await eventually(lambda: len(passes) >= 2)

            assert passes[1] - passes[0] >= timedelta(seconds=0.05)

    async def test_a_deadline_in_the_past_is_not_spun_on(self) -> None:
        passes: list[datetime] = []

        def decide(_tree: Tree, now: datetime) -> Plan:
            passes.append(now)
            return Plan(wake_at=now - timedelta(hours=1))

        async with running(scripted(decide), cluster("c1")) as bench:
            await bench.gain(P1)
            await asyncio.sleep(0.2)

            assert len(passes) == 1

    async def test_a_costly_tree_sleeps_before_its_next_pass_but_not_for_a_deletion(self) -> None:
        passes: list[str] = []

        def decide(_tree: Tree, _now: datetime) -> Plan:
            passes.append("pass")
            until_s = asyncio.get_running_loop().time() + 0.01
            while asyncio.get_running_loop().time() < until_s:
                pass
            return NOTHING

        async with running(scripted(decide), cluster("c1")) as bench:
            await bench.gain(P1)
            await eventually(lambda: len(passes) == 1)
            await asyncio.sleep(0.02)
            bench.controller.on_change(C1, "Pod changed")
            await asyncio.sleep(0.1)
            assert len(passes) == 1

            bench.controller.on_change(C1, "Pod being deleted")
            await asyncio.sleep(0.05)
            assert len(passes) == 2

    async def test_each_root_is_looked_at_again_in_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(controller_module, "RESYNC_S", 0.12)
        passes: list[RootKey] = []

        def decide(tree: Tree, _now: datetime) -> Plan:
            passes.append(tree.key)
            return NOTHING

        async with running(scripted(decide), cluster("c1")) as bench:
            await bench.gain(P1)
            await eventually(lambda: len(passes) >= 3)


class TestAgain:
    async def test_more_actions_than_a_pass_may_take_go_on_in_the_next(self) -> None:
        def decide(tree: Tree, _now: datetime) -> Plan:
            have = {obj["metadata"]["name"] for obj in tree.of("Pod")}
            missing = [f"p{n}" for n in range(100) if f"p{n}" not in have]
            return Plan(steps=(tuple(create(tree, name) for name in missing),)) if missing else NOTHING

        async with running(scripted(decide), cluster("c1")) as bench:
            await bench.gain(P1)
            await eventually(lambda: len(bench.outside.kube.writes) == 100)
            decisions = [len(r["actions"]) for r in bench.outside.history.of("decision")]

            assert decisions == [100, 36]

    async def test_reconsider_looks_again_at_once(self) -> None:
        passes: list[int] = []

        def decide(_tree: Tree, _now: datetime) -> Plan:
            passes.append(1)
            return Plan(steps=((Reconsider(reason="again"),),)) if len(passes) < 3 else NOTHING

        async with running(scripted(decide), cluster("c1")) as bench:
            await bench.gain(P1)
            await eventually(lambda: len(passes) == 3)


class TestBackOff:
    async def test_failures_wait_longer_and_longer(self) -> None:
        times: list[float] = []

        def decide(tree: Tree, _now: datetime) -> Plan:
            if tree.fresh:
                times.append(asyncio.get_running_loop().time())
            return Plan(steps=((create(tree),),))

        async with running(scripted(decide), cluster("c1")) as bench:
            bench.outside.kube.fail["create"] = [errors.KubeError(500, "InternalError", "boom")] * 50
            await bench.gain(P1)
            await eventually(lambda: len(times) >= 4)
            gaps = [after - before for before, after in itertools.pairwise(times)]

            assert gaps[0] >= 0.05
            assert gaps[1] >= 0.1
            assert gaps[2] >= 0.2

    async def test_the_wait_that_the_server_asks_for_is_kept_whatever_happens(self) -> None:
        async with running(scripted(one_pod), cluster("c1")) as bench:
            bench.outside.kube.fail["create"] = [errors.TooManyRequests(429, "TooManyRequests", "busy", 30.0)]
            await bench.gain(P1)
            await eventually(lambda: bench.outside.kube.writes)
            for _ in range(5):
                bench.controller.on_change(C1, "Pod changed")
                await asyncio.sleep(0.02)

            assert len(bench.outside.kube.writes) == 1


class TestPoison:
    async def test_an_object_that_no_decision_can_be_made_on_is_parked_and_shown_once(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(controller_module.backoff, "BASE_S", 0.001)
        passes: list[RootKey] = []

        def decide(tree: Tree, _now: datetime) -> Plan:
            passes.append(tree.key)
            if tree.key == C1:
                raise KeyError("spec.template")
            return NOTHING

        async with running(scripted(decide), cluster("c1"), cluster("fine")) as bench:
            await bench.gain(*range(PARTITIONS))
            await eventually(lambda: passes.count(C1) == 5)
            await asyncio.sleep(0.1)

            assert passes.count(C1) == 5
            assert bench.controller.backoff.parked_count == 1
            (event,) = bench.outside.events.recorded
            assert event[:2] == ("Warning", "ReconcileParked")
            assert "spec.template" in event[2]
            assert key_of("fine") in passes

            bench.controller.on_change(C1, "RayCluster spec changed")
            await eventually(lambda: passes.count(C1) == 6)
            await asyncio.sleep(0.05)
            assert passes.count(C1) == 6
            assert len(bench.outside.events.recorded) == 1

    async def test_what_rests_leaves_no_trace_at_the_next_look(self) -> None:
        def decide(tree: Tree, _now: datetime) -> Plan:
            assert tree.root is not None
            event = RecordEvent(
                reason="bad",
                regarding=tree.root,
                type="Warning",
                event_reason="Invalid",
                action="Validate",
                note="bad",
                rests=True,
            )
            looks.append(tree.key)
            return Plan(steps=((event,),), notes=("bad",))

        looks: list[RootKey] = []
        async with running(scripted(decide), cluster("c1")) as bench:
            await bench.gain(P1)
            for count in range(1, 4):
                await eventually(lambda count=count: len(looks) >= count)
                bench.controller.on_change(C1, "RayCluster status changed")

            assert len(bench.outside.events.recorded) == 1
            assert len(bench.outside.history.of("action")) == 1
            assert len(bench.outside.history.of("decision")) == 1

    async def test_an_object_that_was_mended_is_worked_on_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(controller_module.backoff, "BASE_S", 0.001)
        broken = [True]

        def decide(tree: Tree, now: datetime) -> Plan:
            if broken:
                raise ValueError("bug")
            return one_pod(tree, now)

        async with running(scripted(decide), cluster("c1")) as bench:
            await bench.gain(P1)
            await eventually(lambda: bench.controller.backoff.parked_count == 1)
            broken.clear()
            bench.controller.on_change(C1, "RayCluster spec changed")
            await eventually(lambda: bench.outside.kube.writes)

            assert bench.controller.backoff.parked_count == 0


class Ray:
    """Every submission runs, until the test says otherwise."""

    status = "RUNNING"

    async def probe(self, watch: WatchRayJob) -> Mapping[str, Any]:
        return {"record": {"id": watch.submission_id, "status": self.status}, "error": None, "session": "s1"}


class TestProbes:
    WATCH = WatchRayJob(
        endpoint=RayEndpoint(address="head:8265", namespace="ns", service="svc"), submission_id="job-1", interval_s=0.2
    )

    async def test_what_a_plan_wants_watched_becomes_a_fact_and_its_change_a_pass(self) -> None:
        ray = Ray()
        seen: list[str] = []

        def decide(tree: Tree, _now: datetime) -> Plan:
            fact = tree.facts.get("rayjob/job-1")
            seen.append(fact.value["record"]["status"] if fact else "unknown")
            return Plan(probes=() if seen[-1] == "SUCCEEDED" else (self.WATCH,))

        async with running(scripted(decide), cluster("c1"), prober=ray) as bench:
            await bench.gain(P1)
            await eventually(lambda: seen[-1:] == ["RUNNING"])
            ray.status = "SUCCEEDED"
            await eventually(lambda: seen[-1:] == ["SUCCEEDED"])

            assert seen == ["unknown", "RUNNING", "SUCCEEDED"]
            assert bench.controller.probes is not None
            assert len(bench.controller.probes) == 0

    async def test_probes_of_a_lost_partition_end(self) -> None:
        def decide(_tree: Tree, _now: datetime) -> Plan:
            return Plan(probes=(self.WATCH,))

        async with running(scripted(decide), cluster("c1"), prober=Ray()) as bench:
            probes = bench.controller.probes
            assert probes is not None
            await bench.gain(P1)
            await eventually(lambda: len(probes) == 1)

            await bench.lose(P1, graceful=False)

            assert len(probes) == 0


class TestHistory:
    async def test_decisions_are_told_with_their_reasons_and_empty_ones_are_not(self) -> None:
        async with running(scripted(one_pod, count_pods), cluster("c1")) as bench:
            await bench.gain(P1)
            await eventually(lambda: len(bench.outside.kube.writes) == 2)
            bench.controller.on_change(C1, "RayCluster spec changed")
            await asyncio.sleep(0.05)

            first, second = bench.outside.history.of("decision")
            assert first["trigger"] == "take-over"
            assert first["actions"] == [{"class": "CreatePod", "target": "Pod/p1", "reason": "wanted"}]
            assert second["stage"] == "conclude"

    async def test_notes_alone_are_told_when_they_are_new(self) -> None:
        notes = ["waiting for the head"]

        def decide(_tree: Tree, _now: datetime) -> Plan:
            return Plan(notes=tuple(notes))

        async with running(scripted(decide), cluster("c1")) as bench:
            await bench.gain(P1)
            for trigger in ("one", "two", "three"):
                bench.controller.on_change(C1, f"spec {trigger}")
                await asyncio.sleep(0.02)
            notes[:] = ["the head is ready"]
            bench.controller.on_change(C1, "spec four")
            await eventually(lambda: len(bench.outside.history.records) == 2)

            assert [r["notes"] for r in bench.outside.history.records] == [
                ["waiting for the head"],
                ["the head is ready"],
            ]


async def test_draining_lets_running_passes_end_and_begins_none() -> None:
    async with running(scripted(one_pod, count_pods), cluster("c1"), cluster("c2")) as bench:
        bench.outside.kube.slow_s = 0.02
        await bench.gain(P1)
        await eventually(lambda: bench.outside.kube.writes)

        drained = await bench.controller.drain(1)
        bench.controller.on_change(C1, "RayCluster spec changed")
        await asyncio.sleep(0.05)

        assert drained
        assert bench.outside.kube.writes == [("create", "Pod/p1"), ("patch", "RayCluster/c1/status")]


async def test_no_task_is_left_behind() -> None:
    before = asyncio.all_tasks()

    async with running(scripted(one_pod, count_pods), cluster("c1")) as bench:
        await bench.gain(P1)
        await eventually(lambda: bench.outside.kube.writes)

    assert asyncio.all_tasks() == before
