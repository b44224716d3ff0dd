"""Partition leases on both buses: exclusive, balanced, handed over in order, and given up in time."""

from __future__ import annotations

import asyncio
import time

import pytest

from raybus.bus import streams
from raybus.bus.leases import Leases, free_partitions
from raybus.bus.session import Session, encode_session
from raybus.bus.sessions import SessionWatch
from raybus.bus.transport import Bus
from raybus.decide.routes import FULL, Route, Via
from raybus.domain import kinds
from support.buses import BusBackend, BusContract, MemoryBackend, OnMemory, OnNats
from support.waiting import eventually

P = 6
BUCKET = "lease-rayjob"
ROUTE = Route(root_kind="RayJob", kind=kinds.RAYJOB, via=Via.ROOT, projection=FULL)
JOB_ROUTE = Route(root_kind="RayJob", kind=kinds.JOB, via=Via.OWNER, projection=FULL)


class Replica:
    """A replica that watches over the others: nobody may gain what another one still believes to own."""

    def __init__(self, bus: Bus, name: str, others: list[Replica], ttl_s: int, routes: tuple[Route, ...]) -> None:
        self.bus = bus
        self.name = name
        self.others = others
        self.log: list[tuple[str, int]] = []
        self.overlaps: list[str] = []
        self.drain_s = 0.0
        self.gain_failures = 0
        self.lose_fails = False
        session = Session(replica=name, version="1", started="2026-11-29T10:00:00Z", routes=routes)
        self.leases = Leases(
            bus,
            BUCKET,
            name,
            P,
            session=encode_session(session),
            on_gain=self.gain,
            on_lose=self.lose,
            ttl_s=ttl_s,
        )
        others.append(self)

    async def gain(self, part: int) -> None:
        self.overlaps += [
            f"{part}: {other.name}" for other in self.others if other is not self and other.leases.mine(part)
        ]
        if self.gain_failures:
            self.gain_failures -= 1
            raise RuntimeError("not yet")
        self.log.append(("gain", part))

    async def lose(self, part: int, graceful: bool) -> None:
        if graceful and self.drain_s:
            assert self.leases.mine(part)
            await asyncio.sleep(self.drain_s)
        self.log.append(("release" if graceful else "fence", part))
        if self.lose_fails:
            raise RuntimeError("cannot")

    @property
    def owned(self) -> frozenset[int]:
        return self.leases.owned()

    def count(self, what: str) -> int:
        return sum(entry == what for entry, _ in self.log)


class LeasesContract(BusContract):
    @pytest.fixture
    async def bus(self, backend: BusBackend) -> Bus:
        bus = await backend.connect()
        await streams.provision_leases(bus, "rayjob")
        return bus

    @pytest.fixture
    async def replicas(self, bus: Bus) -> list[Replica]:
        return []

    @pytest.fixture(autouse=True)
    async def _end(self, replicas: list[Replica]) -> object:
        yield
        for replica in replicas:
            await replica.leases.stop(5)
        assert [overlap for replica in replicas for overlap in replica.overlaps] == []

    async def join(
        self,
        backend: BusBackend,
        replicas: list[Replica],
        name: str,
        *,
        ttl_s: int = 10,
        routes: tuple[Route, ...] = (ROUTE,),
        start: bool = True,
    ) -> Replica:
        replica = Replica(await backend.connect(), name, replicas, ttl_s, routes)
        if start:
            await replica.leases.start()
        return replica

    async def test_the_first_replica_waits_one_time_to_live(self, backend: BusBackend, replicas: list[Replica]) -> None:
        began = time.monotonic()
        one = await self.join(backend, replicas, "one", ttl_s=1)
        assert one.leases.unsettled()
        await eventually(lambda: one.leases.unsettled() == f"waiting to take {list(range(P))}, which nobody owns")
        await eventually(lambda: len(one.owned) == P)
        assert time.monotonic() - began >= 1
        assert one.leases.unsettled() == ""
        assert sorted(one.log) == [("gain", part) for part in range(P)]

    async def test_partitions_known_to_be_free_need_no_wait(
        self, backend: BusBackend, bus: Bus, replicas: list[Replica]
    ) -> None:
        await free_partitions(bus, BUCKET, P)
        one = await self.join(backend, replicas, "one", ttl_s=60)
        await eventually(lambda: len(one.owned) == P)
        await free_partitions(bus, BUCKET, P)  # again, by mistake: what is owned stays owned
        await asyncio.sleep(0.1)
        assert len(one.owned) == P

    async def test_who_has_nothing_to_own_because_others_own_it_has_taken_its_part(
        self, backend: BusBackend, bus: Bus, replicas: list[Replica]
    ) -> None:
        await free_partitions(bus, BUCKET, P)
        one = await self.join(backend, replicas, "one")
        one.drain_s = 1.0
        await eventually(lambda: len(one.owned) == P)
        two = await self.join(backend, replicas, "two")
        assert two.leases.unsettled()
        await eventually(lambda: two.leases.unsettled() == "")
        assert two.owned == frozenset(), "the first one has not handed over yet"
        await eventually(lambda: len(two.owned) == P // 2)
        assert two.leases.unsettled() == ""

    async def test_two_replicas_share_evenly(self, backend: BusBackend, bus: Bus, replicas: list[Replica]) -> None:
        await free_partitions(bus, BUCKET, P)
        one = await self.join(backend, replicas, "one")
        await eventually(lambda: len(one.owned) == P)
        two = await self.join(backend, replicas, "two")
        await eventually(lambda: len(two.owned) == P // 2)
        assert one.owned | two.owned == set(range(P))
        assert not one.owned & two.owned
        assert one.count("release") == P // 2
        assert one.count("fence") == 0

    async def test_a_release_waits_for_what_still_runs(
        self, backend: BusBackend, bus: Bus, replicas: list[Replica]
    ) -> None:
        await free_partitions(bus, BUCKET, P)
        one = await self.join(backend, replicas, "one")
        await eventually(lambda: len(one.owned) == P)
        one.drain_s = 0.3
        two = await self.join(backend, replicas, "two")
        await eventually(lambda: len(two.owned) == P // 2)
        assert one.count("release") == P // 2

    async def test_stopping_hands_over_without_waiting_for_the_time_to_live(
        self, backend: BusBackend, bus: Bus, replicas: list[Replica]
    ) -> None:
        await free_partitions(bus, BUCKET, P)
        one = await self.join(backend, replicas, "one", ttl_s=60)
        two = await self.join(backend, replicas, "two", ttl_s=60)
        await eventually(lambda: len(one.owned) == len(two.owned) == P // 2)
        await one.leases.stop()
        assert one.owned == frozenset()
        assert one.count("release") >= P // 2
        assert one.count("fence") == 0
        await eventually(lambda: len(two.owned) == P)

    async def test_while_one_partition_drains_the_others_have_moved(
        self, backend: BusBackend, bus: Bus, replicas: list[Replica]
    ) -> None:
        await free_partitions(bus, BUCKET, P)
        one = await self.join(backend, replicas, "one", ttl_s=60)
        await eventually(lambda: len(one.owned) == P)
        two = await self.join(backend, replicas, "two", ttl_s=60)
        await eventually(lambda: len(two.owned) == P // 2)
        slow = min(one.owned)
        may_end = asyncio.Event()

        async def lose(part: int, graceful: bool) -> None:
            if part == slow:
                await may_end.wait()
            await one.lose(part, graceful)

        one.leases._on_lose = lose
        stopping = asyncio.create_task(one.leases.stop())
        await eventually(lambda: two.owned == set(range(P)) - {slow})
        assert one.leases.mine(slow)
        may_end.set()
        await stopping
        await eventually(lambda: len(two.owned) == P)

    async def test_a_crashed_replicas_partitions_are_taken_when_its_session_has_expired(
        self, backend: BusBackend, bus: Bus, replicas: list[Replica]
    ) -> None:
        await free_partitions(bus, BUCKET, P)
        one = await self.join(backend, replicas, "one", ttl_s=2)
        two = await self.join(backend, replicas, "two", ttl_s=2)
        await eventually(lambda: len(one.owned) == len(two.owned) == P // 2)
        await backend.crash(one.bus)
        await eventually(lambda: len(two.owned) == P)
        # The crashed one is still there in this test, without its connection: it must have fenced itself before.
        assert one.owned == frozenset()
        assert one.count("fence") == P // 2

    async def test_a_short_outage_costs_nobody_anything(
        self, backend: BusBackend, bus: Bus, replicas: list[Replica]
    ) -> None:
        await free_partitions(bus, BUCKET, P)
        one = await self.join(backend, replicas, "one", ttl_s=30)
        two = await self.join(backend, replicas, "two", ttl_s=30)
        await eventually(lambda: len(one.owned) == len(two.owned) == P // 2)
        owned = (one.owned, two.owned)
        await backend.stop_server()
        await eventually(lambda: not one.bus.connected and not two.bus.connected)
        await asyncio.sleep(0.3)
        assert (one.owned, two.owned) == owned
        await backend.start_server()
        await eventually(lambda: one.bus.connected and two.bus.connected)
        await asyncio.sleep(0.5)
        assert (one.owned, two.owned) == owned
        assert one.count("fence") == two.count("fence") == 0

    async def test_in_a_long_outage_all_fence_themselves_and_come_back(
        self, backend: BusBackend, bus: Bus, replicas: list[Replica]
    ) -> None:
        await free_partitions(bus, BUCKET, P)
        one = await self.join(backend, replicas, "one", ttl_s=2)
        two = await self.join(backend, replicas, "two", ttl_s=2)
        await eventually(lambda: len(one.owned) == len(two.owned) == P // 2)
        await backend.stop_server()
        await eventually(lambda: one.count("fence") == two.count("fence") == P // 2)
        assert one.owned == two.owned == frozenset()
        await backend.start_server()
        await eventually(lambda: one.owned | two.owned == set(range(P)))

    async def test_a_lost_bucket_fences_everybody_first(
        self, backend: BusBackend, bus: Bus, replicas: list[Replica]
    ) -> None:
        await free_partitions(bus, BUCKET, P)
        one = await self.join(backend, replicas, "one", ttl_s=2)
        two = await self.join(backend, replicas, "two", ttl_s=2)
        await eventually(lambda: len(one.owned) == len(two.owned) == P // 2)
        await backend.lose_stream("KV_lease-rayjob")
        await streams.provision_leases(bus, "rayjob")
        await eventually(lambda: one.count("fence") == two.count("fence") == P // 2)
        await eventually(lambda: one.owned | two.owned == set(range(P)))

    async def test_another_owner_in_the_record_evicts_at_once(
        self, backend: BusBackend, bus: Bus, replicas: list[Replica]
    ) -> None:
        await free_partitions(bus, BUCKET, P)
        one = await self.join(backend, replicas, "one", ttl_s=60)
        await eventually(lambda: len(one.owned) == P)
        await bus.publish(
            "$KV.lease-rayjob.session.ghost", encode_session(Session(replica="ghost", version="", started=""))
        )
        await eventually(lambda: one.count("release") == P // 2)  # it makes room for the ghost
        kept = min(one.owned)
        await bus.publish(f"$KV.lease-rayjob.part.{kept}", b'{"replica":"ghost"}')
        await eventually(lambda: ("fence", kept) in one.log)
        assert not one.leases.mine(kept)

    async def test_a_gain_is_tried_until_it_succeeds(
        self, backend: BusBackend, bus: Bus, replicas: list[Replica]
    ) -> None:
        await free_partitions(bus, BUCKET, P)
        one = await self.join(backend, replicas, "one", start=False)
        one.gain_failures = P + 2
        await one.leases.start()
        await eventually(lambda: one.count("gain") == P)

    async def test_a_loser_that_fails_loses_nevertheless(
        self, backend: BusBackend, bus: Bus, replicas: list[Replica]
    ) -> None:
        await free_partitions(bus, BUCKET, P)
        one = await self.join(backend, replicas, "one")
        await eventually(lambda: len(one.owned) == P)
        one.lose_fails = True
        two = await self.join(backend, replicas, "two")
        await eventually(lambda: len(two.owned) == P // 2)

    async def test_a_restarted_replica_has_a_new_name_and_waits_for_its_predecessor(
        self, backend: BusBackend, bus: Bus, replicas: list[Replica]
    ) -> None:
        await free_partitions(bus, BUCKET, P)
        one = await self.join(backend, replicas, "host-aaaa", ttl_s=2)
        await eventually(lambda: len(one.owned) == P)
        await backend.crash(one.bus)
        again = await self.join(backend, replicas, "host-bbbb", ttl_s=2)
        await eventually(lambda: len(again.owned) == P)
        assert one.owned == frozenset()

    async def test_stopping_without_a_server_ends_too(
        self, backend: BusBackend, bus: Bus, replicas: list[Replica]
    ) -> None:
        await free_partitions(bus, BUCKET, P)
        one = await self.join(backend, replicas, "one", ttl_s=60)
        await eventually(lambda: len(one.owned) == P)
        await backend.stop_server()
        await eventually(lambda: not one.bus.connected)
        async with asyncio.timeout(20):
            await one.leases.stop()
        assert one.count("release") == P
        await backend.start_server()

    # --- sessions, as the gateway sees them ---

    async def test_the_gateway_learns_the_routes_of_those_who_live(
        self, backend: BusBackend, bus: Bus, replicas: list[Replica]
    ) -> None:
        seen: list[dict[str, tuple[Route, ...]]] = []
        watch = SessionWatch(bus, ("rayjob",), lambda: seen.append(dict(watch.routes())))
        await watch.start()
        await eventually(lambda: watch.known("rayjob"))
        assert watch.routes() == {"rayjob": ()}
        one = await self.join(backend, replicas, "one", ttl_s=2)
        await eventually(lambda: watch.routes()["rayjob"] == (ROUTE,))
        two = await self.join(backend, replicas, "two", ttl_s=2, routes=(ROUTE, JOB_ROUTE))
        await eventually(lambda: set(watch.routes()["rayjob"]) == {ROUTE, JOB_ROUTE})
        changes = len(seen)
        await asyncio.sleep(1.2)  # renewals are no news
        assert len(seen) == changes
        await two.leases.stop()
        await eventually(lambda: watch.routes()["rayjob"] == (ROUTE,))
        await backend.crash(one.bus)
        await eventually(lambda: watch.routes()["rayjob"] == ())
        await watch.close()

    async def test_sessions_stay_known_over_a_server_restart(
        self, backend: BusBackend, bus: Bus, replicas: list[Replica]
    ) -> None:
        await self.join(backend, replicas, "one", ttl_s=30)
        seen: list[tuple[Route, ...]] = []
        watch = SessionWatch(bus, ("rayjob",), lambda: seen.append(watch.routes()["rayjob"]))
        await watch.start()
        await eventually(lambda: watch.routes()["rayjob"] == (ROUTE,))
        await backend.stop_server()
        await eventually(lambda: not bus.connected)
        await backend.start_server()
        await eventually(lambda: bus.connected)
        await asyncio.sleep(0.5)
        assert watch.routes()["rayjob"] == (ROUTE,)
        assert () not in seen[1:]
        await watch.close()


class TestMemoryLeases(OnMemory, LeasesContract):
    async def test_an_answer_lost_while_renewing_costs_nothing(
        self, memory_backend: MemoryBackend, bus: Bus, replicas: list[Replica]
    ) -> None:
        await free_partitions(bus, BUCKET, P)
        one = await self.join(memory_backend, replicas, "one", ttl_s=2)
        await eventually(lambda: len(one.owned) == P)
        memory_backend.server.lose_next_answers(1)
        await asyncio.sleep(2.5)
        assert len(one.owned) == P
        assert one.count("fence") == 0

    async def test_a_lost_answer_to_a_take_is_found_again(
        self, memory_backend: MemoryBackend, bus: Bus, replicas: list[Replica]
    ) -> None:
        await free_partitions(bus, BUCKET, P)
        one = await self.join(memory_backend, replicas, "one", start=False)
        await one.leases.start()
        await eventually(lambda: one.leases.valid)
        memory_backend.server.lose_next_answers(P)
        await eventually(lambda: len(one.owned) == P)


class TestNatsLeases(OnNats, LeasesContract):
    pass
