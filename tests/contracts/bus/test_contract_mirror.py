"""The mirror on both buses: what a gateway publishes becomes trees, whatever happens to the server in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from raybus.bus import streams
from raybus.bus.entry import Ref
from raybus.bus.mirror import Mirror
from raybus.bus.projection import project
from raybus.bus.publisher import ObjectPublisher
from raybus.bus.routing import route_id
from raybus.bus.subjects import object_subject, partition_of
from raybus.bus.transport import Bus
from raybus.decide.routes import FULL, POD_STATUS, Route, Via
from raybus.decide.tree import RootKey, Tree
from raybus.domain import kinds, labels
from support.buses import BusBackend, BusContract, MemoryBackend, OnMemory, OnNats
from support.objects import pod, raycluster
from support.waiting import eventually

P = 4
ROUTES = (
    Route(root_kind="RayCluster", kind=kinds.RAYCLUSTER, via=Via.ROOT, projection=FULL),
    Route(
        root_kind="RayCluster", kind=kinds.POD, via=Via.LABEL, projection=POD_STATUS, label=labels.CLUSTER,
    ),
)  # fmt: skip


class Gateway:
    """As much of a gateway as publishing needs."""

    def __init__(self, bus: Bus, term: str = "gw") -> None:
        self.bus = bus
        self.term = term

    async def start(self) -> Gateway:
        self.settings = await streams.provision(self.bus, "raycluster", cluster_uid="k1", partitions=P)
        self.publisher = ObjectPublisher(self.bus, "raycluster", self.settings, term=self.term)
        await self.publisher.load_term()
        return self

    def subject(self, key: RootKey, obj: dict[str, Any]) -> str:
        return object_subject("raycluster", 1, partition_of(key, P), key, obj["kind"], obj["metadata"]["name"])

    async def put(self, key: RootKey, obj: dict[str, Any], projection: str = "") -> None:
        route = POD_STATUS if obj["kind"] == "Pod" else FULL
        await self.publisher.put(self.subject(key, obj), project(obj, route), projection=projection or route.name)

    async def delete(self, key: RootKey, obj: dict[str, Any]) -> None:
        await self.publisher.tombstone(self.subject(key, obj), obj)

    async def mark(self, *names: str) -> None:
        for name in names or ("RayCluster", "Pod"):
            await self.publisher.mark(name, "100")


def key(name: str) -> RootKey:
    return RootKey("RayCluster", "ns", name)


def names(tree: Tree | None) -> list[str]:
    assert tree is not None
    return [obj["metadata"]["name"] for obj in tree.objects]


class MirrorContract(BusContract):
    @pytest.fixture
    async def bus(self, backend: BusBackend) -> Bus:
        return await backend.connect()

    @pytest.fixture
    async def gateway(self, backend: BusBackend, bus: Bus) -> Gateway:
        return await Gateway(await backend.connect()).start()

    @pytest.fixture
    def changes(self) -> list[tuple[RootKey, str]]:
        return []

    @pytest.fixture
    async def mirror(self, bus: Bus, gateway: Gateway, changes: list[tuple[RootKey, str]]) -> AsyncIterator[Mirror]:
        mirror = Mirror(bus, "raycluster", ROUTES, lambda root, why: changes.append((root, why)))
        yield mirror
        await mirror.close()

    async def own_all(self, mirror: Mirror) -> None:
        async with asyncio.timeout(20):
            await mirror.own(frozenset(range(P)))

    async def test_owned_partitions_are_read_before_own_returns(self, mirror: Mirror, gateway: Gateway) -> None:
        for number in range(40):
            await gateway.put(key(f"c{number}"), raycluster(f"c{number}"))
        mine = frozenset({1, 3})
        async with asyncio.timeout(20):
            await mirror.own(mine)
        wanted = {key(f"c{number}") for number in range(40) if partition_of(key(f"c{number}"), P) in mine}
        assert set(mirror.roots()) == wanted
        assert set(mirror.roots(1)) == {root for root in wanted if partition_of(root, P) == 1}
        assert mirror.caught_up(1)
        assert not mirror.caught_up(0)

    async def test_a_tree_is_root_and_children_by_kind_and_name(self, mirror: Mirror, gateway: Gateway) -> None:
        await gateway.put(key("c1"), raycluster("c1"))
        await gateway.put(key("c1"), pod("b"))
        await self.own_all(mirror)
        await gateway.put(key("c1"), pod("a"))
        await eventually(lambda: names(mirror.tree(key("c1"))) == ["a", "b"])
        tree = mirror.tree(key("c1"))
        assert tree is not None
        assert tree.root is not None
        assert tree.root["metadata"]["name"] == "c1"
        assert tree.objects[0]["spec"] == {
            "nodeName": "n1", "restartPolicy": "Never", "containers": [{"name": "ray"}],
        }  # fmt: skip
        assert mirror.tree(key("c2")) is None

    async def test_it_tells_how_much_it_holds_and_what_it_went_through(self, mirror: Mirror, gateway: Gateway) -> None:
        assert mirror.size() == (0, 0, 0)
        assert mirror.silence_s() is None
        await gateway.put(key("c1"), raycluster("c1"))
        await gateway.put(key("c1"), pod("a"))
        await gateway.put(key("c2"), raycluster("c2"))
        await self.own_all(mirror)

        assert mirror.size() == (2, 3, 0)
        assert [obj["metadata"]["name"] for obj in mirror.kin(key("c1"), "Pod")] == ["a"]
        assert mirror.kin(key("c2"), "Pod") == []
        assert mirror.rereads == {"ownership": 1}
        assert 0 <= (mirror.silence_s() or 0) < 5

        await mirror.own(frozenset())
        assert mirror.size() == (0, 0, 0)
        assert mirror.rereads == {"ownership": 2}

    async def test_it_tells_how_late_live_messages_are(self, bus: Bus, gateway: Gateway) -> None:
        delays: list[float] = []
        mirror = Mirror(bus, "raycluster", ROUTES, lambda _root, _why: None, on_delay=delays.append)
        await gateway.put(key("c1"), raycluster("c1"))  # stored before anybody listened: no delay of the way
        await self.own_all(mirror)
        assert delays == []

        await gateway.put(key("c1"), pod("a"))
        await eventually(lambda: delays)
        assert 0 <= delays[0] < 5
        await mirror.close()

    async def test_before_the_first_marker_nothing_counts_as_absent(self, mirror: Mirror, gateway: Gateway) -> None:
        await gateway.put(key("c1"), raycluster("c1"))
        await self.own_all(mirror)
        tree = mirror.tree(key("c1"))
        assert tree is not None
        assert tree.complete == frozenset()
        assert mirror.marker_age_s("Pod") is None
        await gateway.mark("Pod")
        await eventually(lambda: (mirror.tree(key("c1")) or tree).complete == {"Pod"})
        age = mirror.marker_age_s("Pod")
        assert age is not None
        assert 0 <= age < 20

    async def test_a_marker_for_routes_of_another_release_does_not_count(
        self, mirror: Mirror, gateway: Gateway
    ) -> None:
        """A newer controller declares more of a kind that the gateway has been vouching for: the new part is not there yet."""
        await gateway.put(key("c1"), raycluster("c1"))
        ours = {route_id(route) for route in ROUTES if route.kind == kinds.POD}
        await gateway.publisher.mark("Pod", "100", routes={"another"})
        await gateway.publisher.mark("RayCluster", "100")  # by a gateway that does not say for which
        await self.own_all(mirror)
        tree = mirror.tree(key("c1"))
        assert tree is not None
        assert tree.complete == {"RayCluster"}
        assert mirror.marker_age_s("Pod") is None
        await gateway.publisher.mark("Pod", "101", routes={"another", *ours})
        await eventually(lambda: (mirror.tree(key("c1")) or tree).complete == {"Pod", "RayCluster"})
        await gateway.publisher.mark("Pod", "102", routes={"another"})
        await eventually(lambda: (mirror.tree(key("c1")) or tree).complete == {"RayCluster"})

    async def test_a_stored_marker_counts_for_a_mirror_that_comes_later(self, mirror: Mirror, gateway: Gateway) -> None:
        await gateway.mark()
        await mirror.own(frozenset())
        await eventually(lambda: mirror.marker_age_s("Pod") is not None, "markers without partitions")
        await gateway.put(key("c1"), raycluster("c1"))
        await self.own_all(mirror)
        tree = mirror.tree(key("c1"))
        assert tree is not None
        assert tree.complete == {"Pod", "RayCluster"}

    async def test_changes_wake_their_tree_and_say_why(
        self, mirror: Mirror, gateway: Gateway, changes: list[tuple[RootKey, str]]
    ) -> None:
        await gateway.put(key("c1"), raycluster("c1"))
        await self.own_all(mirror)
        assert changes == []  # who takes over looks at every root anyway
        await gateway.put(key("c1"), pod("a"))
        await gateway.put(key("c1"), raycluster("c1", rv=2, generation=2))
        await gateway.delete(key("c1"), pod("a", rv=3))
        await eventually(lambda: len(changes) == 3)
        assert changes == [
            (key("c1"), "Pod seen"), (key("c1"), "RayCluster spec changed"), (key("c1"), "Pod deleted"),
        ]  # fmt: skip

    async def test_an_own_write_is_seen_at_once_and_its_echo_wakes_nobody(
        self, mirror: Mirror, gateway: Gateway, changes: list[tuple[RootKey, str]]
    ) -> None:
        await gateway.put(key("c1"), raycluster("c1"))
        await self.own_all(mirror)
        mirror.upsert(pod("a", rv=5))
        assert names(mirror.tree(key("c1"))) == ["a"]
        await gateway.put(key("c1"), pod("a", rv=5))
        await gateway.put(key("c1"), pod("a", rv=6, phase="Failed"))
        await eventually(lambda: changes)
        assert changes == [(key("c1"), "Pod failed")]

    async def test_own_writes_survive_a_server_restart(
        self, mirror: Mirror, gateway: Gateway, backend: BusBackend, bus: Bus
    ) -> None:
        await gateway.put(key("c1"), raycluster("c1"))
        await gateway.put(key("c1"), pod("b", rv=2))
        await self.own_all(mirror)
        mirror.upsert(pod("a", rv=5))
        mirror.upsert(pod("b", rv=6, phase="Running"))
        await backend.stop_server()
        await eventually(lambda: not bus.connected)
        await backend.start_server()
        await eventually(lambda: bus.connected and mirror.caught_up(0), "read again")
        tree = mirror.tree(key("c1"))
        assert names(tree) == ["a", "b"]
        assert tree is not None
        assert tree.objects[1]["status"]["phase"] == "Running"

    async def test_what_vanished_unheard_is_gone_after_a_re_read(
        self, mirror: Mirror, gateway: Gateway, backend: BusBackend, bus: Bus, changes: list[tuple[RootKey, str]]
    ) -> None:
        await gateway.put(key("c1"), raycluster("c1"))
        await gateway.put(key("c1"), pod("a"))
        await self.own_all(mirror)
        # A purge makes no news. It stands for anything that the stream lost.
        await gateway.bus.purge("RAYCLUSTER", gateway.subject(key("c1"), pod("a")))
        assert names(mirror.tree(key("c1"))) == ["a"]
        await backend.stop_server()
        await eventually(lambda: not bus.connected)
        await backend.start_server()
        await eventually(lambda: names(mirror.tree(key("c1"))) == [])
        assert changes == [(key("c1"), "Pod deleted while nobody looked")]

    async def test_a_re_read_after_a_gap_is_told_before_what_it_changed(
        self, gateway: Gateway, backend: BusBackend, bus: Bus
    ) -> None:
        told: list[str] = []
        mirror = Mirror(
            bus, "raycluster", ROUTES, lambda _root, why: told.append(why), on_reread=lambda: told.append("read again")
        )
        await gateway.put(key("c1"), raycluster("c1"))
        await gateway.put(key("c1"), pod("a"))
        await self.own_all(mirror)
        assert told == []

        await gateway.bus.purge("RAYCLUSTER", gateway.subject(key("c1"), pod("a")))
        await backend.stop_server()
        await eventually(lambda: not bus.connected)
        await backend.start_server()
        await eventually(lambda: len(told) == 2)

        assert told == ["read again", "Pod deleted while nobody looked"]
        await mirror.close()

    async def test_a_lost_stream_makes_nothing_look_absent(
        self, mirror: Mirror, gateway: Gateway, backend: BusBackend
    ) -> None:
        await gateway.mark()
        await gateway.put(key("c1"), raycluster("c1"))
        await self.own_all(mirror)
        mirror.upsert(pod("own", rv=9))
        await backend.lose_stream("RAYCLUSTER")
        again = await Gateway(await backend.connect(), "gw-2").start()
        await again.put(key("c1"), pod("a"))
        await eventually(lambda: "a" in names(mirror.tree(key("c1"))))
        tree = mirror.tree(key("c1"))
        assert tree is not None
        assert tree.complete == frozenset()
        assert mirror.marker_age_s("Pod") is None
        assert names(tree) == ["a", "own"]

    async def test_moving_partitions_reads_the_new_and_forgets_the_old(
        self, mirror: Mirror, gateway: Gateway, changes: list[tuple[RootKey, str]]
    ) -> None:
        for number in range(40):
            await gateway.put(key(f"c{number}"), raycluster(f"c{number}"))
        async with asyncio.timeout(20):
            await mirror.own(frozenset({0, 1}))
            await mirror.own(frozenset({1, 2}))
        assert {partition_of(root, P) for root in mirror.roots()} == {1, 2}
        assert not mirror.caught_up(0)
        lost = next(key(f"c{number}") for number in range(40) if partition_of(key(f"c{number}"), P) == 0)
        await gateway.put(lost, raycluster(lost.name, rv=2))
        kept = next(key(f"c{number}") for number in range(40) if partition_of(key(f"c{number}"), P) == 2)
        await gateway.put(kept, raycluster(kept.name, rv=2))
        await eventually(lambda: changes)
        assert changes == [(kept, "RayCluster changed")]
        mirror.upsert(raycluster(lost.name, rv=3))
        assert mirror.tree(lost) is None

    async def test_several_gains_at_once_are_read_together(self, mirror: Mirror, gateway: Gateway) -> None:
        for number in range(20):
            await gateway.put(key(f"c{number}"), raycluster(f"c{number}"))
        async with asyncio.timeout(20):
            await asyncio.gather(*(mirror.own(frozenset(range(count))) for count in range(1, P + 1)))
        assert len(mirror.roots()) == 20
        assert all(mirror.caught_up(part) for part in range(P))

    async def test_before_anything_is_owned_nothing_is_held(self, mirror: Mirror) -> None:
        mirror.upsert(raycluster("c1"))
        mirror.fresh(key("c1"), [raycluster("c1")])
        assert mirror.tree(key("c1")) is None
        assert mirror.roots(1) == []

    async def test_a_body_with_less_than_declared_counts_as_not_seen(self, mirror: Mirror, gateway: Gateway) -> None:
        await gateway.mark()
        await gateway.put(key("c1"), raycluster("c1"))
        await gateway.put(key("c1"), pod("a"), projection="pod.names")
        await self.own_all(mirror)
        tree = mirror.tree(key("c1"))
        assert tree is not None
        assert (names(tree), tree.complete) == ([], {"RayCluster"})
        await gateway.put(key("c1"), pod("a", rv=2), projection="pod.names+pod.status")
        await eventually(lambda: names(mirror.tree(key("c1"))) == ["a"])
        tree = mirror.tree(key("c1"))
        assert tree is not None
        assert tree.complete == {"RayCluster", "Pod"}

    async def test_news_of_another_cluster_are_not_believed(self, mirror: Mirror, gateway: Gateway) -> None:
        await self.own_all(mirror)
        other = streams.StreamSettings(partitions=P, generation=1, cluster_uid="k2")
        foreign = ObjectPublisher(gateway.bus, "raycluster", other, term="gw-x")
        await foreign.load_term()
        await foreign.put(gateway.subject(key("c1"), raycluster("c1")), raycluster("c1"), projection="full")
        await foreign.mark("RayCluster", "1")
        await eventually(lambda: mirror.skipped == 2)
        assert mirror.tree(key("c1")) is None
        assert mirror.marker_age_s("RayCluster") is None

    async def test_an_object_that_did_not_fit_is_asked_for(
        self, bus: Bus, gateway: Gateway, changes: list[tuple[RootKey, str]]
    ) -> None:
        asked: list[tuple[RootKey, Ref]] = []
        mirror = Mirror(
            bus, "raycluster", ROUTES,
            lambda root, why: changes.append((root, why)), on_ref=lambda root, ref: asked.append((root, ref)),
        )  # fmt: skip
        await gateway.mark()
        await gateway.put(key("c1"), raycluster("c1"))
        await self.own_all(mirror)
        large = pod("a", rv=5)
        large["status"]["message"] = "x" * (9 << 20)
        await gateway.put(key("c1"), large)
        await eventually(lambda: asked)
        assert asked == [(key("c1"), Ref("Pod", "ns", "a", "uid-a", "5"))]
        tree = mirror.tree(key("c1"))
        assert tree is not None
        assert (names(tree), tree.complete, changes) == ([], {"RayCluster"}, [])
        mirror.learned(large)
        tree = mirror.tree(key("c1"))
        assert tree is not None
        assert (names(tree), tree.complete, changes) == (["a"], {"RayCluster", "Pod"}, [(key("c1"), "Pod read")])
        await mirror.close()

    async def test_settings_are_read_from_the_stream_and_awaited_no_longer_than_asked(
        self, bus: Bus, gateway: Gateway
    ) -> None:
        jobs = Mirror(bus, "rayjob", (), lambda _root, _why: None)
        with pytest.raises(streams.StreamMissing):
            await jobs.own(frozenset({0}))
        await streams.provision(bus, "rayjob", cluster_uid="k1", partitions=P)
        async with asyncio.timeout(20):
            await jobs.own(frozenset({0}))
        assert jobs.caught_up(0)
        await jobs.close()


class TestMemoryMirror(OnMemory, MirrorContract):
    async def test_a_lost_delivery_is_noticed_by_the_next(
        self, memory_backend: MemoryBackend, mirror: Mirror, gateway: Gateway
    ) -> None:
        await gateway.put(key("c1"), raycluster("c1"))
        await self.own_all(mirror)
        memory_backend.buses[0].skip_delivery()
        await gateway.put(key("c1"), pod("a"))
        await eventually(lambda: names(mirror.tree(key("c1"))) == ["a"])


class TestNatsMirror(OnNats, MirrorContract):
    pass
