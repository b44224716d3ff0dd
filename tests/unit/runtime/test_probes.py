"""Probes: one task per watched submission, facts that wake their tree only when they changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from raybus.decide.actions import RayEndpoint
from raybus.decide.plan import WatchRayJob
from raybus.decide.tree import RootKey
from raybus.runtime.clock import SystemClock
from raybus.runtime.probes import ProbePool, fact_name
from support.scripted import key_of

A, B = key_of("a"), key_of("b")


def watch(submission: str, interval_s: float = 0.2, address: str = "head:8265") -> WatchRayJob:
    endpoint = RayEndpoint(address=address, namespace="ns", service="svc")
    return WatchRayJob(endpoint=endpoint, submission_id=submission, interval_s=interval_s)


class Ray:
    """What the dashboards answer. `hang` holds addresses that never do."""

    def __init__(self) -> None:
        self.answer: Mapping[str, Any] = {"record": {"status": "RUNNING"}, "error": None, "session": "s1"}
        self.hang: set[str] = set()
        self.asked: list[str] = []
        self.at_once = 0
        self.most_at_once = 0

    async def probe(self, watch: WatchRayJob) -> Mapping[str, Any]:
        self.asked.append(watch.submission_id)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await asyncio.sleep(60 if watch.endpoint.address in self.hang else 0.005)
        finally:
            self.at_once -= 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Bench:
    def __init__(self, concurrency: int) -> None:
        self.ray = Ray()
        self.woken: list[RootKey] = []
        self.pool = ProbePool(
            self.ray, SystemClock(), lambda key, _why: self.woken.append(key), concurrency=concurrency
        )


@asynccontextmanager
async def probing(concurrency: int = 64) -> AsyncIterator[Bench]:
    bench = Bench(concurrency)
    try:
        yield bench
    finally:
        await bench.pool.close()


async def test_a_watched_submission_becomes_a_fact_with_its_source() -> None:
    async with probing() as bench:
        bench.pool.want(A, (watch("job-1"),))
        await asyncio.sleep(0.05)

        fact = bench.pool.facts(A)[fact_name(watch("job-1"))]
        assert fact_name(watch("job-1")) == "rayjob/job-1"
        assert fact.value == bench.ray.answer
        assert fact.source == "s1"
        assert fact.seen_at.tzinfo is not None


async def test_a_tree_is_woken_by_a_change_and_not_by_the_same_answer_again() -> None:
    async with probing() as bench:
        bench.pool.want(A, (watch("job-1"),))
        await asyncio.sleep(0.5)
        assert bench.ray.asked.count("job-1") >= 2
        assert bench.woken == [A]

        bench.ray.answer = {"record": {"status": "SUCCEEDED"}, "error": None, "session": "s1"}
        await asyncio.sleep(0.3)
        assert bench.woken == [A, A]


async def test_what_no_plan_names_any_more_is_not_asked_and_its_fact_is_forgotten() -> None:
    async with probing() as bench:
        bench.pool.want(A, (watch("job-1"), watch("job-2")))
        await asyncio.sleep(0.05)
        bench.pool.want(A, (watch("job-2"),))
        asked = bench.ray.asked.count("job-1")
        await asyncio.sleep(0.3)

        assert bench.ray.asked.count("job-1") == asked
        assert set(bench.pool.facts(A)) == {"rayjob/job-2"}
        assert len(bench.pool) == 1


async def test_naming_the_same_again_does_not_begin_anew() -> None:
    async with probing() as bench:
        for _ in range(5):
            bench.pool.want(A, (watch("job-1", interval_s=60),))
            await asyncio.sleep(0.01)

        assert bench.ray.asked == ["job-1"]


async def test_another_address_is_asked_at_once_and_the_old_fact_stays_until_then() -> None:
    async with probing() as bench:
        bench.pool.want(A, (watch("job-1", interval_s=60),))
        await asyncio.sleep(0.05)
        bench.pool.want(A, (watch("job-1", interval_s=60, address="other:8265"),))

        assert bench.pool.facts(A)
        await asyncio.sleep(0.05)
        assert bench.ray.asked == ["job-1", "job-1"]


async def test_a_dashboard_that_hangs_keeps_nobody_else_waiting() -> None:
    async with probing() as bench:
        bench.ray.hang.add("dead:8265")
        bench.pool.want(A, (watch("job-1", address="dead:8265"),))
        await asyncio.sleep(0.01)
        bench.pool.want(B, (watch("job-2"),))
        await asyncio.sleep(0.05)

        assert bench.woken == [B]


async def test_no_more_are_asked_at_once_than_allowed() -> None:
    async with probing(concurrency=3) as bench:
        bench.pool.want(A, tuple(watch(f"job-{n}") for n in range(12)))
        await asyncio.sleep(0.1)

        assert bench.ray.most_at_once == 3
        assert len(bench.pool.facts(A)) == 12


async def test_a_probe_that_raises_is_a_fact_too_and_goes_on() -> None:
    async with probing() as bench:
        bench.ray.answer = ValueError("bug")  # what a broken prober does
        bench.pool.want(A, (watch("job-1"),))
        await asyncio.sleep(0.05)
        assert "bug" in bench.pool.facts(A)["rayjob/job-1"].value["error"]

        bench.ray.answer = {"record": None, "error": None, "session": "s1"}
        await asyncio.sleep(0.3)
        assert bench.pool.facts(A)["rayjob/job-1"].value["error"] is None


async def test_dropped_trees_have_neither_probes_nor_facts() -> None:
    async with probing() as bench:
        bench.pool.want(A, (watch("job-1"),))
        bench.pool.want(B, (watch("job-2"),))
        await asyncio.sleep(0.05)

        bench.pool.drop(lambda key: key == A)

        assert bench.pool.facts(A) == {}
        assert len(bench.pool) == 1


async def test_closing_leaves_no_task_behind() -> None:
    before = asyncio.all_tasks()

    async with probing() as bench:
        bench.ray.hang.add("dead:8265")
        bench.pool.want(A, (watch("job-1", address="dead:8265"),))
        await asyncio.sleep(0.02)

    assert asyncio.all_tasks() == before
