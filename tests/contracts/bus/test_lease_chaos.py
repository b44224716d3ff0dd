"""Random faults one after the other: replicas that join, stop and crash, servers that die, buckets that vanish.

Two things are watched all the time and at the end: no partition ever has two owners, and in the end each has one.
"""

from __future__ import annotations

import asyncio
import contextlib
import random

import pytest

from raybus.bus import streams
from raybus.bus.leases import Leases, free_partitions
from raybus.bus.transport import Bus, BusError
from support.buses import BusBackend, MemoryBackend, NatsBackend
from support.waiting import eventually

P = 8
TTL_S = 2


class Chaos:
    def __init__(self, backend: BusBackend, seed: int) -> None:
        self.backend = backend
        self.random = random.Random(seed)
        self.members: list[tuple[Bus, Leases]] = []
        self.crashed: list[Leases] = []
        self.overlaps: list[str] = []
        self.number = 0

    async def join(self) -> None:
        if len(self.members) >= 4:
            return
        self.number += 1
        try:
            bus = await self.backend.connect()
        except BusError:
            return

        async def gain(_part: int) -> None:
            await asyncio.sleep(self.random.random() / 20)

        async def lose(_part: int, graceful: bool) -> None:
            if graceful:
                await asyncio.sleep(self.random.random() / 10)

        leases = Leases(
            bus,
            "lease-rayjob",
            f"replica-{self.number}",
            P,
            session=b"{}",
            on_gain=gain,
            on_lose=lose,
            ttl_s=TTL_S,
        )
        await leases.start()
        self.members.append((bus, leases))

    async def leave(self) -> None:
        if len(self.members) > 1:
            _, leases = self.members.pop(self.random.randrange(len(self.members)))
            await leases.stop(10)

    async def crash(self) -> None:
        if len(self.members) > 1:
            bus, leases = self.members.pop(self.random.randrange(len(self.members)))
            self.crashed.append(leases)
            await self.backend.crash(bus)

    async def outage(self) -> None:
        await self.backend.stop_server()
        await asyncio.sleep(self.random.choice([0.1, 0.5, TTL_S * 1.3]))
        await self.backend.start_server()

    async def lose_bucket(self) -> None:
        with contextlib.suppress(BusError):
            await self.backend.lose_stream("KV_lease-rayjob")
        await asyncio.sleep(0.1)
        await streams.provision_leases(await self.backend.connect(), "rayjob")

    async def watch(self) -> None:
        while True:
            everybody = [leases for _, leases in self.members] + self.crashed
            for part in range(P):
                if sum(leases.mine(part) for leases in everybody) > 1:
                    self.overlaps.append(f"partition {part} has two owners")
            await asyncio.sleep(0.004)

    async def run(self, faults: int) -> None:
        steps = [self.join, self.join, self.leave, self.crash, self.outage, self.lose_bucket]
        watcher = asyncio.create_task(self.watch())
        for _ in range(2):
            await self.join()
        for _ in range(faults):
            await self.random.choice(steps)()
            await asyncio.sleep(self.random.random())
        await eventually(lambda: sum(len(leases.owned()) for _, leases in self.members) == P, "all owned", within_s=40)
        watcher.cancel()
        await asyncio.gather(watcher, return_exceptions=True)
        for _, leases in self.members:
            await leases.stop(10)
        for leases in self.crashed:
            await leases.stop(1)
        assert self.overlaps == []


async def chaos(backend: BusBackend, seed: int, faults: int) -> None:
    bus = await backend.connect()
    await streams.provision_leases(bus, "rayjob")
    await free_partitions(bus, "lease-rayjob", P)
    await Chaos(backend, seed).run(faults)


@pytest.mark.parametrize("seed", range(3))
async def test_in_memory(memory_backend: MemoryBackend, seed: int) -> None:
    await chaos(memory_backend, seed, 8)


@pytest.mark.timeout(300)
async def test_on_a_real_server(nats_backend: NatsBackend) -> None:
    await chaos(nats_backend, 7, 8)


@pytest.mark.night
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(20, 26))
async def test_on_a_real_server_for_long(nats_backend: NatsBackend, seed: int) -> None:
    await chaos(nats_backend, seed, 25)
