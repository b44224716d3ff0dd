"""Two replicas of a controller share the work over a real NATS server (and over its twin in memory): nobody works on a tree
that is another's, a dead one is followed, and nothing is written when nothing happens.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import datetime

import pytest

from raybus.bus.leases import free_partitions
from raybus.bus.streams import lease_bucket
from raybus.bus.transport import Bus
from raybus.decide.actions import CreatePod, PatchRayClusterStatus
from raybus.decide.outcome import Outcome
from raybus.decide.plan import NOTHING, Plan
from raybus.decide.tree import RootKey, Tree
from raybus.kube import errors
from raybus.observe.metrics import ControllerMetrics
from raybus.runtime.replica import Parts, Replica
from raybus.runtime.settings import ServiceSettings
from raybus.runtime.spec import ControllerSpec
from support.buses import BusBackend
from support.news import News
from support.scripted import ROUTES, Events, Kube, cluster, pod, scripted
from support.waiting import eventually

TTL_S = 2
LONG_TTL_S = 60
CLUSTERS = 12


class Watcher:
    """Notes which replica is in a pass over which tree, and every breach of "one at a time"."""

    def __init__(self) -> None:
        self.running: dict[RootKey, str] = {}
        self.passes: list[tuple[str, RootKey]] = []
        self.breaches: list[str] = []

    def begins(self, replica: str, key: RootKey) -> None:
        other = self.running.get(key)
        if other not in (None, replica):
            self.breaches.append(f"{key.name}: {replica} while {other}")
        self.running[key] = replica
        self.passes.append((replica, key))

    def ends(self, key: RootKey) -> None:
        self.running.pop(key, None)

    def dies(self, replica: str) -> None:
        self.running = {key: of for key, of in self.running.items() if of != replica}


def spec(replica: str, watcher: Watcher) -> ControllerSpec[Tree]:
    """Two pods for each cluster, and their number in the status."""

    def decide(tree: Tree, _now: datetime) -> Plan:
        watcher.begins(replica, tree.key)
        if tree.root is None:
            return NOTHING
        missing = [name for name in ("a", "b") if not tree.named("Pod", f"{tree.key.name}-{name}")]
        creations = (CreatePod(reason="wanted", body=pod(f"{tree.key.name}-{n}", tree.root)) for n in missing)
        return Plan(steps=(tuple(creations),)) if missing else NOTHING

    def conclude(tree: Tree, _done: tuple[Outcome, ...], _now: datetime) -> Plan:
        watcher.ends(tree.key)
        wanted = {"pods": len(tree.of("Pod"))}
        if tree.root is None or tree.root["status"] == wanted:
            return NOTHING
        meta = tree.root["metadata"]
        patch = PatchRayClusterStatus(
            reason="counted",
            namespace=meta["namespace"],
            name=meta["name"],
            uid=meta["uid"],
            status=wanted,
            previous=tree.root["status"],
            resource_version=meta["resourceVersion"],
        )
        return Plan(steps=((patch,),))

    return scripted(decide, conclude)


class House:
    """A server, a gateway, an API server, and replicas as they come and go."""

    def __init__(self, backend: BusBackend) -> None:
        self.backend = backend
        self.kube = Kube()
        self.watcher = Watcher()
        self.replicas: dict[str, Replica[Tree]] = {}
        self.buses: dict[str, Bus] = {}
        self.stack = AsyncExitStack()
        self.news: News

    async def open(self) -> None:
        bus = await self.backend.connect()
        self.news = News(bus, "raycluster", ROUTES)
        await self.news.start()
        self.stack.push_async_callback(self.news.close)
        self.kube.on_write = self.news.say
        await free_partitions(bus, lease_bucket("raycluster"), self.news.settings.partitions)

    async def begin(self, name: str, ttl_s: int = TTL_S) -> Replica[Tree]:
        settings = ServiceSettings(replica_id=name, lease_ttl_s=ttl_s, workers=8, drain_s=5)
        bus = self.buses[name] = await self.backend.connect()
        replica: Replica[Tree] = Replica(
            spec(name, self.watcher),
            settings,
            ControllerMetrics("raycluster"),
            bus=bus,
            kube=self.kube,
            events=Events(),
            found=self.news.settings,
            parts=Parts(),
        )
        self.replicas[name] = await self.stack.enter_async_context(replica)
        return replica

    def clusters(self, count: int = CLUSTERS, namespace: str = "ns") -> None:
        for number in range(count):
            self.kube.add(cluster(f"c{number}", namespace))

    def pods(self) -> list[str]:
        return sorted(name for verb, what in self.kube.writes if verb == "create" for name in [what] if "Pod/" in what)

    def all_settled(self, count: int = CLUSTERS) -> bool:
        states = [o.get("status") for (kind, _, _), o in self.kube.objects.items() if kind == "RayCluster"]
        return len(states) == count and all(state == {"pods": 2} for state in states)

    def owned(self) -> dict[str, frozenset[int]]:
        return {name: replica.leases.owned() for name, replica in self.replicas.items()}

    def ready(self) -> bool:
        return all(check().ok for replica in self.replicas.values() for check in replica.checks().values())


@pytest.fixture(params=["memory_backend", "nats_backend"])
def backend(request: pytest.FixtureRequest) -> BusBackend:
    found: BusBackend = request.getfixturevalue(request.param)
    return found


@pytest.fixture
async def house(backend: BusBackend) -> AsyncIterator[House]:
    house = House(backend)
    await house.open()
    yield house
    await house.stack.aclose()


async def test_two_replicas_share_the_partitions_and_each_child_is_made_once(house: House) -> None:
    await house.begin("r1")
    await house.begin("r2")
    await eventually(lambda: sorted(len(parts) for parts in house.owned().values()) == [2, 2], "half of them each")
    house.clusters()
    await eventually(house.all_settled, "all clusters have their pods")

    assert len(house.pods()) == len(set(house.pods())) == 2 * CLUSTERS
    assert house.watcher.breaches == []
    assert {replica for replica, _ in house.watcher.passes} == {"r1", "r2"}
    assert house.ready()


async def test_an_idle_house_writes_nothing(house: House) -> None:
    await house.begin("r1")
    house.clusters()
    await eventually(house.all_settled)
    await asyncio.sleep(0.5)  # the news of the last writes come in
    writes, passes = len(house.kube.writes), len(house.watcher.passes)

    await asyncio.sleep(3)

    assert len(house.kube.writes) == writes
    assert len(house.watcher.passes) == passes
    assert passes <= 2 * CLUSTERS


async def test_own_writes_count_before_their_news_come(house: House) -> None:
    """The news are so late that every later pass sees only what this replica itself wrote."""
    await house.begin("r1")
    house.clusters(1)
    await eventually(lambda: house.watcher.passes)
    house.news.late_s = 2.0
    await eventually(lambda: house.all_settled(1))
    replica = house.replicas["r1"]

    for _ in range(5):
        replica.controller.on_change(RootKey("RayCluster", "ns", "c0"), "spec changed")
        await asyncio.sleep(0.1)

    assert house.pods() == ["Pod/c0-a", "Pod/c0-b"]
    assert [what for verb, what in house.kube.writes if verb == "patch"] == ["RayCluster/c0/status"]


async def test_a_dead_replica_is_followed_and_what_it_did_is_not_done_again(house: House) -> None:
    await house.begin("r1")
    await house.begin("r2")
    await eventually(lambda: sorted(len(parts) for parts in house.owned().values()) == [2, 2])
    house.kube.slow_s = 0.02
    house.clusters()
    await eventually(lambda: len(house.pods()) >= CLUSTERS // 2, "it is in the middle of its work")

    await house.backend.crash(house.buses["r1"])
    await eventually(lambda: not house.replicas["r1"].leases.owned(), "it fences itself")
    house.watcher.dies("r1")
    await eventually(lambda: len(house.replicas["r2"].leases.owned()) == 4, "the other one takes over")
    await eventually(house.all_settled)

    created = [obj for (kind, _, _), obj in house.kube.objects.items() if kind == "Pod"]
    assert len(created) == 2 * CLUSTERS
    assert house.watcher.breaches == []


async def test_a_replica_that_leaves_hands_over_at_once(house: House) -> None:
    first = await house.begin("r1", LONG_TTL_S)
    await house.begin("r2", LONG_TTL_S)
    await eventually(lambda: sorted(len(parts) for parts in house.owned().values()) == [2, 2])
    house.clusters()

    await first.hand_over()
    await eventually(lambda: len(house.replicas["r2"].leases.owned()) == 4, within_s=LONG_TTL_S / 2)

    await eventually(house.all_settled)
    assert house.watcher.breaches == []
    assert len(house.pods()) == len(set(house.pods()))


async def test_a_server_that_restarts_changes_nothing(house: House) -> None:
    await house.begin("r1")
    house.clusters(CLUSTERS - 1)
    await eventually(lambda: house.all_settled(CLUSTERS - 1))
    writes = len(house.kube.writes)

    await house.backend.stop_server()
    await asyncio.sleep(0.3)
    await house.backend.start_server()
    await eventually(house.ready, "connected, caught up, markers fresh")
    await asyncio.sleep(0.5)
    assert len(house.kube.writes) == writes

    house.kube.add(cluster("late"))
    await eventually(house.all_settled)


async def test_without_the_word_of_the_gateway_no_work_begins(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raybus.runtime.controller.MARKER_AGE_MAX_S", 1.5)
    await house.begin("r1")
    await eventually(house.ready)
    await house.news.silence()
    await asyncio.sleep(0.3)  # what was said before has arrived
    await eventually(lambda: not house.ready())

    house.clusters()
    await asyncio.sleep(1)
    assert house.kube.writes == []

    await house.news.speak()
    await eventually(house.all_settled)


async def test_history_tells_what_was_decided_and_done(house: House) -> None:
    replica = await house.begin("r1")
    house.kube.fail["create"] = [errors.Forbidden(403, "Forbidden", "exceeded quota")]
    house.clusters(1)
    await eventually(lambda: house.all_settled(1))
    await replica.history.flush()

    bus = await house.backend.connect()
    last = await bus.last("RAYHIST", "ray.hist.raycluster.ns.RayCluster.c0")

    assert last is not None
    assert replica.history.recorded >= 5
    assert replica.history.dropped == 0
