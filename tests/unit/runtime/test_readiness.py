"""Readiness of a controller: each reason not to be ready is said in words."""

from __future__ import annotations

import pytest

from raybus.bus.memory import MemoryBus
from raybus.kube.reach import Reach
from raybus.observe.health import Check, Checks, results
from raybus.observe.metrics import ControllerMetrics
from raybus.runtime import readiness
from raybus.runtime.controller import Controller
from support.scripted import Outside, key_of, scripted


class Bench:
    def __init__(self) -> None:
        self.outside = Outside()
        self.bus = MemoryBus()
        self.owned: frozenset[int] = frozenset()
        self.unsettled = ""
        self.metrics = ControllerMetrics("raycluster")
        self.controller = Controller(
            scripted(),
            self.outside.ports,
            self.outside.clock,
            self.metrics,
            partitions=4,
            mine=lambda part: part in self.owned,
            read=self.outside.mirror.own,
            queue_limit=1,
        )
        self.checks: Checks = readiness.checks(
            self.bus, self.outside.mirror, self.controller, lambda: self.owned, lambda: self.unsettled
        )

    async def own(self, *parts: int) -> None:
        self.owned = frozenset(parts)
        for part in parts:
            await self.controller.gained(part)

    def wrong(self) -> dict[str, str]:
        return {name: check.detail for name, check in results(self.checks).items() if not check.ok}


@pytest.fixture
async def bench() -> Bench:
    bench = Bench()
    await bench.bus.connect()
    return bench


async def test_a_stand_by_without_partitions_is_ready(bench: Bench) -> None:
    bench.outside.mirror.marker_age = None

    assert bench.wrong() == {}


async def test_an_owner_that_has_read_its_partitions_is_ready(bench: Bench) -> None:
    await bench.own(0, 1)

    assert bench.wrong() == {}


async def test_a_partition_that_is_not_read_yet(bench: Bench) -> None:
    await bench.own(0, 1)
    bench.outside.mirror.unread.add(1)

    assert bench.wrong() == {"partitions": "owned [0, 1], still reading [1]"}


async def test_a_replica_that_has_not_taken_its_part_yet(bench: Bench) -> None:
    bench.unsettled = "waiting to take [2]"
    assert bench.wrong() == {"partitions": "owned [], waiting to take [2]"}

    await bench.own(0)
    bench.outside.mirror.unread.add(0)
    assert bench.wrong() == {"partitions": "owned [0], still reading [0], waiting to take [2]"}


async def test_old_or_missing_markers(bench: Bench) -> None:
    await bench.own(0)
    bench.outside.mirror.marker_age = 42.0
    assert "Pod: 42 s ago" in bench.wrong()["markers"]

    bench.outside.mirror.marker_age = None
    assert "RayCluster: never" in bench.wrong()["markers"]


async def test_a_lost_connection(bench: Bench) -> None:
    await bench.bus.close()

    assert bench.wrong() == {"nats": "no connection to NATS"}


async def test_more_due_trees_than_the_limit(bench: Bench) -> None:
    for name in ("a", "b"):
        bench.controller.on_change(key_of(name), "seen")

    assert bench.wrong() == {"queue": "2 due, more than 1"}


def test_an_api_server_out_of_reach_is_named_with_what_became_of_the_last_request() -> None:
    reach, metrics = Reach(), ControllerMetrics("raycluster")
    readiness.watch_kubernetes(metrics, reach)
    assert readiness.kubernetes(reach, "https://k:6443") == Check(ok=True)
    assert b"raybus_kubernetes_reachable 1.0" in metrics.render()

    reach.failed("GET /livez: no answer in 5 s", since=0.0, now=5.0)

    said = readiness.kubernetes(reach, "https://k:6443")
    assert said == Check(ok=False, detail="https://k:6443 is out of reach: GET /livez: no answer in 5 s")
    assert b"raybus_kubernetes_reachable 0.0" in metrics.render()
