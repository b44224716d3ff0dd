"""History on both buses: everything arrives when it can, and nobody ever waits for it."""

from __future__ import annotations

import asyncio
import time

import orjson
import pytest

from raybus.bus import streams
from raybus.bus.envelope import HistoryMessage, decode_history
from raybus.bus.history import History
from raybus.bus.reading import read_last
from raybus.bus.subjects import HISTORY_FILTER, history_subject
from raybus.bus.transport import Bus
from support.buses import BusBackend, BusContract, OnMemory, OnNats
from support.waiting import eventually


async def recorded(bus: Bus) -> list[HistoryMessage]:
    found = [decode_history(message) for message in await read_last(bus, streams.HISTORY_STREAM, (HISTORY_FILTER,))]
    return [item for item in found if item is not None]


class HistoryContract(BusContract):
    @pytest.fixture
    async def bus(self, backend: BusBackend) -> Bus:
        bus = await backend.connect()
        await streams.provision_history(bus)
        return bus

    async def test_what_is_recorded_is_stored_under_writer_and_object(self, bus: Bus) -> None:
        history = History(bus, "rayjob", instance="h-1", cluster_uid="k1")
        await history.start()
        history.record("ns", "RayJob", "j.1", {"what": "decision", "uid": "u", "notes": ["waiting for the cluster"]})
        assert await history.flush(20)
        (found,) = await recorded(bus)
        assert found.address == ("rayjob", "ns", "RayJob", "j.1")
        assert found.body["notes"] == ["waiting for the cluster"]
        assert found.body["time"].endswith("Z")
        last = await bus.last(streams.HISTORY_STREAM, history_subject("rayjob", "ns", "RayJob", "j.1"))
        assert last is not None
        assert (last.headers["ce-id"], last.headers["ce-source"]) == ("h-1-1", "/clusters/k1/rayjob")
        await history.close()

    async def test_the_order_of_one_object_is_kept(self, bus: Bus) -> None:
        history = History(bus, "rayjob")
        await history.start()
        for number in range(50):
            history.record("ns", "RayJob", "j", {"what": "action", "number": number})
        assert await history.flush(20)
        (found,) = await recorded(bus)
        assert found.body["number"] == 49
        assert (await bus.stream_info(streams.HISTORY_STREAM)).messages == 50
        assert (history.recorded, history.dropped) == (50, 0)
        await history.close()

    async def test_while_nats_is_away_records_wait_and_nobody_else(self, bus: Bus, backend: BusBackend) -> None:
        history = History(bus, "rayjob")
        await history.start()
        await backend.stop_server()
        await eventually(lambda: not bus.connected)
        history.record("ns", "RayJob", "j", {"what": "action"})
        assert not await history.flush(0.1)
        await backend.start_server()
        assert await history.flush(20)
        assert len(await recorded(bus)) == 1
        await history.close()

    async def test_when_too_many_wait_the_oldest_go_and_are_counted(self, bus: Bus, backend: BusBackend) -> None:
        history = History(bus, "rayjob", capacity=10)
        await history.start()
        await backend.stop_server()
        await eventually(lambda: not bus.connected)
        began = time.monotonic()
        for number in range(1000):
            history.record("ns", "RayJob", f"j{number}", {"what": "action"})
        assert time.monotonic() - began < 5
        await backend.start_server()
        assert await history.flush(20)
        names = {item.address.name for item in await recorded(bus)}
        assert names <= {f"j{number}" for number in range(989, 1000)}
        assert history.dropped == 1000 - len(names)
        await history.close()

    async def test_what_is_no_json_is_dropped_and_counted(self, bus: Bus) -> None:
        history = History(bus, "rayjob")
        history.record("ns", "RayJob", "j", {"what": "action", 1: "a key that is no text"})
        assert history.dropped == 1

    async def test_closing_stores_what_waits_but_not_for_ever(self, bus: Bus, backend: BusBackend) -> None:
        history = History(bus, "rayjob")
        await history.start()
        history.record("ns", "RayJob", "j", {"what": "action"})
        await history.close(20)
        assert len(await recorded(bus)) == 1
        again = History(bus, "rayjob")
        await again.start()
        await backend.stop_server()
        await eventually(lambda: not bus.connected)
        again.record("ns", "RayJob", "j", {"what": "action"})
        async with asyncio.timeout(20):
            await again.close(0.1)
        await backend.start_server()

    async def test_a_body_is_stored_as_given(self, bus: Bus) -> None:
        history = History(bus, "gateway")
        await history.start()
        history.record("ns", "Pod", "p", {"what": "object", "time": "2026-01-01T00:00:00Z", "conditions": []})
        assert await history.flush(20)
        last = await bus.last(streams.HISTORY_STREAM, history_subject("gateway", "ns", "Pod", "p"))
        assert last is not None
        assert orjson.loads(last.body) == {"time": "2026-01-01T00:00:00Z", "what": "object", "conditions": []}
        await history.close()


class TestMemoryHistory(OnMemory, HistoryContract):
    pass


class TestNatsHistory(OnNats, HistoryContract):
    pass
