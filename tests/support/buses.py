"""The two implementations of the bus behind one face, so that a contract is written once and run on both."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

import pytest

from raybus.bus.memory import MemoryBus, MemoryServer
from raybus.bus.nats import NatsBus
from raybus.bus.transport import Bus
from support.nats import NatsServer


class BusBackend(Protocol):
    """A server and what may happen to it."""

    async def connect(self) -> Bus:
        """A new connection; closed at the end of the test."""
        ...

    async def stop_server(self) -> None:
        """As kill -9."""
        ...

    async def start_server(self) -> None:
        """On the same store."""
        ...

    async def lose_stream(self, name: str) -> None: ...

    async def crash(self, bus: Bus) -> None:
        """The process behind this connection dies: nothing more is sent, nothing is released."""
        ...

    async def close(self) -> None: ...


class MemoryBackend:
    def __init__(self) -> None:
        self.server = MemoryServer()
        self.buses: list[MemoryBus] = []

    async def connect(self) -> MemoryBus:
        bus = MemoryBus(self.server)
        await bus.connect()
        self.buses.append(bus)
        return bus

    async def stop_server(self) -> None:
        self.server.stop()

    async def start_server(self) -> None:
        self.server.start()

    async def lose_stream(self, name: str) -> None:
        self.server.lose_stream(name)

    async def crash(self, bus: Bus) -> None:
        await bus.close()

    async def close(self) -> None:
        for bus in self.buses:
            await bus.close()
        self.server.shut()


class NatsBackend:
    def __init__(self, server: NatsServer) -> None:
        self.server = server
        self.buses: list[NatsBus] = []

    async def connect(self) -> NatsBus:
        bus = NatsBus(self.server.url, name="test")
        await bus.connect(10.0)
        self.buses.append(bus)
        return bus

    async def stop_server(self) -> None:
        self.server.kill()

    async def start_server(self) -> None:
        self.server.start()

    async def lose_stream(self, name: str) -> None:
        admin = await self.connect()
        await admin.api(f"$JS.API.STREAM.DELETE.{name}", None, 5.0)

    async def crash(self, bus: Bus) -> None:
        await bus.close()

    async def close(self) -> None:
        for bus in self.buses:
            await bus.close()


@pytest.fixture
async def memory_backend() -> AsyncIterator[MemoryBackend]:
    backend = MemoryBackend()
    yield backend
    await backend.close()


@pytest.fixture
async def nats_backend(nats_server: NatsServer) -> AsyncIterator[NatsBackend]:
    backend = NatsBackend(nats_server)
    yield backend
    await backend.close()


class BusContract:
    """What holds on every bus. A contract derives from it and is run by one class for each of the two below."""

    @pytest.fixture
    def backend(self) -> BusBackend:
        raise NotImplementedError  # the class that runs the contract says on which bus


class OnMemory:
    @pytest.fixture
    def backend(self, memory_backend: MemoryBackend) -> BusBackend:
        return memory_backend


class OnNats:
    @pytest.fixture
    def backend(self, nats_backend: NatsBackend) -> BusBackend:
        return nats_backend
