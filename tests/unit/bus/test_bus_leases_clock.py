"""A lease is believed in by the replica's own clock alone: these tests are the clock."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from raybus.bus import streams
from raybus.bus.fake import FakeClock
from raybus.bus.leases import Leases, free_partitions
from raybus.bus.memory import MemoryBus, MemoryServer
from support.waiting import eventually


@pytest.fixture
async def server() -> AsyncIterator[MemoryServer]:
    server = MemoryServer()
    yield server
    server.shut()


class Owner:
    def __init__(self, bus: MemoryBus, clock: FakeClock) -> None:
        self.bus = bus
        self.clock = clock
        self.events: list[str] = []
        self.leases = Leases(
            bus, "lease-rayjob", "one", 2,
            session=b"{}", on_gain=self.gain, on_lose=self.lose, ttl_s=12, clock=clock,
        )  # fmt: skip

    async def gain(self, part: int) -> None:
        self.events.append(f"gain {part}")

    async def lose(self, part: int, graceful: bool) -> None:
        self.events.append(f"{'release' if graceful else 'fence'} {part}")


@pytest.fixture
async def owner(server: MemoryServer) -> AsyncIterator[Owner]:
    bus = MemoryBus(server)
    await bus.connect()
    await streams.provision_leases(bus, "rayjob")
    await free_partitions(bus, "lease-rayjob", 2)
    owner = Owner(bus, FakeClock())
    await owner.leases.start()
    await eventually(lambda: owner.leases.owned() == {0, 1})
    yield owner
    await owner.leases.stop()
    await bus.close()


async def test_the_validity_ends_before_the_time_to_live_without_anything_being_awaited(owner: Owner) -> None:
    owner.clock.advance(9.9)
    assert owner.leases.mine(0)
    assert owner.leases.epoch(0) is not None
    owner.clock.advance(0.2)
    assert not owner.leases.mine(0)
    assert owner.leases.epoch(0) is None
    assert owner.leases.owned() == frozenset()


async def test_the_wall_clock_is_not_asked(owner: Owner) -> None:
    owner.clock.step(3600)
    assert owner.leases.mine(0)


async def test_a_lapse_drops_everything_even_if_the_next_renewal_succeeds(owner: Owner) -> None:
    before = owner.leases.epoch(0)
    owner.clock.advance(11)  # the event loop stood still for eleven seconds
    owner.bus.cut()
    owner.bus.heal()  # a renewal is tried at once
    await eventually(lambda: owner.events.count("fence 0") == 1)
    await eventually(lambda: owner.leases.owned() == {0, 1})
    after = owner.leases.epoch(0)
    assert before is not None
    assert after is not None
    assert after > before


async def test_it_counts_from_before_the_renewal_left(server: MemoryServer, owner: Owner) -> None:
    sent = owner.bus.publish

    async def slow(*arguments: object, **options: object) -> int:
        seq = await sent(*arguments, **options)
        owner.clock.advance(8)  # the answer took eight seconds
        return seq

    owner.bus.publish = slow
    owner.bus.cut()
    owner.bus.heal()
    await eventually(lambda: owner.clock.monotonic() >= 1008)
    owner.bus.publish = sent
    assert owner.leases.mine(0)
    owner.clock.advance(2.1)
    assert not owner.leases.mine(0)
