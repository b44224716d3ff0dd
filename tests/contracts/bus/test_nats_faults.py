"""What only a real server and real processes can show: kill -9 under load, a frozen owner, answers to wrong questions."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

import support
from raybus.bus import streams
from raybus.bus.leases import Leases, free_partitions
from raybus.bus.nats import NatsBus
from raybus.bus.transport import BusError, Message, Refused, StreamConfig, Unavailable
from support.buses import NatsBackend
from support.nats import NatsServer, free_port
from support.waiting import eventually

OBJECTS = StreamConfig(name="OBJECTS", subjects=("obj.>",))
SCRIPT = Path(support.__file__).parent / "lease_process.py"
P = 4


class LeaseProcess:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[str] = []
        self._reader = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, url: str, replica: str, ttl_s: int) -> LeaseProcess:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",  # its folder has modules of its own that are called like libraries
            str(SCRIPT),
            url,
            replica,
            str(ttl_s),
            str(P),
            stdout=asyncio.subprocess.PIPE,
        )
        return cls(process)

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.lines.append(line.decode().strip())

    def owned(self) -> set[int]:
        out: set[int] = set()
        for line in self.lines:
            word, _, part = line.partition(" ")
            if word == "gain":
                out.add(int(part))
            elif word in ("fence", "release"):
                out.discard(int(part))
        return out

    async def end(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()
        await self._reader


@pytest.fixture
async def bus(nats_backend: NatsBackend) -> NatsBus:
    return await nats_backend.connect()


@pytest.fixture
async def frozen_to_be(bus: NatsBus, nats_server: NatsServer) -> AsyncIterator[LeaseProcess]:
    await streams.provision_leases(bus, "rayjob")
    await free_partitions(bus, "lease-rayjob", P)
    process = await LeaseProcess.start(nats_server.url, "zombie", 2)
    yield process
    await process.end()


async def test_after_kill_nine_consumers_deliver_again_soon(bus: NatsBus, nats_backend: NatsBackend) -> None:
    await bus.ensure_stream(OBJECTS)
    got: dict[str, Message] = {}
    publisher = await nats_backend.connect()
    for number in range(500):
        await publisher.publish(f"obj.{number}", b"x" * 500)
    follower = await bus.follow(
        "OBJECTS",
        ("obj.>",),
        on_message=lambda message: got.__setitem__(message.subject, message),
    )
    await eventually(lambda: follower.caught_up)
    took = []
    for turn in range(5):
        await nats_backend.stop_server()
        await eventually(lambda: not bus.connected)
        await asyncio.sleep(0.2 * turn)
        await nats_backend.start_server()
        back = time.monotonic()
        body = b"%d" % turn
        await eventually(lambda: publisher.connected)
        while True:
            try:
                await publisher.publish("obj.live", body)
                break
            except BusError:
                await asyncio.sleep(0.02)
        await eventually(lambda body=body: "obj.live" in got and got["obj.live"].body == body)
        took.append(time.monotonic() - back)
    # Typically 0.05 s; the median leaves room for a machine that is busy otherwise.
    assert sorted(took)[2] < 1.0, took


async def test_nothing_acknowledged_is_lost_and_every_last_value_arrives_under_kills(
    bus: NatsBus, nats_backend: NatsBackend
) -> None:
    await bus.ensure_stream(OBJECTS)
    got: dict[str, bytes] = {}
    sequences: list[int] = []

    def take(message: Message) -> None:
        got[message.subject] = message.body
        sequences.append(message.seq)

    follower = await bus.follow("OBJECTS", ("obj.>",), on_message=take, on_gap=sequences.clear)
    await eventually(lambda: follower.caught_up)
    publisher = await nats_backend.connect()
    acknowledged: dict[str, bytes] = {}
    going = True

    async def publish() -> None:
        number = 0
        while going:
            number += 1
            subject, body = f"obj.{number % 20}", b"%d" % number
            try:
                await publisher.publish(subject, body, timeout_s=0.5)
            except BusError:
                await asyncio.sleep(0.02)
                continue
            acknowledged[subject] = body
            await asyncio.sleep(0.002)

    task = asyncio.create_task(publish())
    for _ in range(3):
        await asyncio.sleep(0.3)
        await nats_backend.stop_server()
        await asyncio.sleep(0.1)
        await nats_backend.start_server()
    await asyncio.sleep(0.3)
    going = False
    await task
    assert len(acknowledged) == 20
    await eventually(lambda: all(int(got.get(name, b"0")) >= int(body) for name, body in acknowledged.items()))
    assert sequences == sorted(sequences)


async def test_a_frozen_owner_is_replaced_and_fences_itself_when_it_wakes(
    bus: NatsBus, frozen_to_be: LeaseProcess
) -> None:
    await eventually(lambda: frozen_to_be.owned() == set(range(P)))
    frozen_to_be.process.send_signal(signal.SIGSTOP)
    gained: list[int] = []

    async def gain(part: int) -> None:
        gained.append(part)

    async def lose(part: int, graceful: bool) -> None:
        gained.remove(part)

    leases = Leases(bus, "lease-rayjob", "successor", P, session=b"{}", on_gain=gain, on_lose=lose, ttl_s=2)
    await leases.start()
    await eventually(lambda: sorted(gained) == list(range(P)), "taken after the session expired")
    frozen_to_be.process.send_signal(signal.SIGCONT)
    await eventually(lambda: sum(line.startswith("fence") for line in frozen_to_be.lines) == P, "fenced on waking")
    await eventually(lambda: len(frozen_to_be.owned()) == len(gained) == P // 2, "shared again")
    await leases.stop()


async def test_a_killed_owner_is_replaced(bus: NatsBus, frozen_to_be: LeaseProcess) -> None:
    await eventually(lambda: frozen_to_be.owned() == set(range(P)))
    frozen_to_be.process.kill()
    gained: list[int] = []

    async def gain(part: int) -> None:
        gained.append(part)

    async def lose(part: int, graceful: bool) -> None:
        gained.remove(part)

    leases = Leases(bus, "lease-rayjob", "successor", P, session=b"{}", on_gain=gain, on_lose=lose, ttl_s=2)
    await leases.start()
    await eventually(lambda: sorted(gained) == list(range(P)))
    await leases.stop()


async def test_a_server_that_is_not_there_is_named() -> None:
    bus = NatsBus(f"nats://127.0.0.1:{free_port()}")
    with pytest.raises(Unavailable, match=r"no NATS server answers at nats://127.0.0.1:\d+: is nats-server running"):
        await bus.connect(0.3)
    await bus.close()


async def test_a_server_that_comes_later_is_waited_for(nats_server: NatsServer) -> None:
    nats_server.stop()
    bus = NatsBus(nats_server.url)
    waiting = asyncio.create_task(bus.connect(20))
    await asyncio.sleep(0.3)
    nats_server.start()
    await waiting
    assert bus.connected
    await bus.close()


async def test_history_cannot_be_purged(bus: NatsBus) -> None:
    await streams.provision_history(bus)
    await bus.publish("ray.hist.rayjob.ns.RayJob.j", b"{}")
    with pytest.raises(Refused):
        await bus.purge(streams.HISTORY_STREAM)


async def test_what_an_administrator_set_besides_stays(bus: NatsBus) -> None:
    await bus.ensure_stream(OBJECTS)
    config = (await bus.api("$JS.API.STREAM.INFO.OBJECTS", None, 5.0))["config"]
    await bus.api("$JS.API.STREAM.UPDATE.OBJECTS", {**config, "description": "see the runbook"}, 5.0)
    await bus.ensure_stream(OBJECTS)
    await bus.ensure_stream(replace(OBJECTS, metadata={"raybus.generation": "2"}))
    config = (await bus.api("$JS.API.STREAM.INFO.OBJECTS", None, 5.0))["config"]
    assert config["description"] == "see the runbook"
    assert config["metadata"]["raybus.generation"] == "2"


async def test_a_connection_that_is_closed_while_it_comes_back_stays_closed(nats_server: NatsServer) -> None:
    buses = [NatsBus(nats_server.url) for _ in range(60)]
    for bus in buses:
        await bus.connect()
    nats_server.kill()
    await eventually(lambda: not any(bus.connected for bus in buses))

    async def close_late(bus: NatsBus, wait_s: float) -> None:
        await asyncio.sleep(wait_s)
        await bus.close()

    closing = [asyncio.create_task(close_late(bus, number * 0.004)) for number, bus in enumerate(buses)]
    nats_server.start()
    await asyncio.gather(*closing)
    await asyncio.sleep(0.3)
    assert not any(bus.connected for bus in buses)  # and no task is left, as after every test


async def test_to_close_is_not_to_lose_the_connection(bus: NatsBus) -> None:
    told: list[bool] = []
    bus.on_connection(told.append)
    await bus.close()
    assert (bus.stats.disconnects, told) == (0, [])


async def test_full_files_of_nats_are_the_reason_why_leases_are_lost(tmp_path: Path) -> None:
    server = NatsServer(tmp_path, max_file_store=1 << 20)
    server.start()
    bus = NatsBus(server.url)
    try:
        await bus.connect(10)
        await streams.provision_leases(bus, "rayjob")
        await bus.ensure_stream(OBJECTS)
        leases = Leases(bus, "lease-rayjob", "one", 1, session=b"{}", on_gain=_nothing, on_lose=_nothing, ttl_s=2)
        await leases.start()
        try:
            with pytest.raises(Unavailable, match=r"NATS has no room left; raise its max_file_store"):
                await _fill(bus)
            await eventually(lambda: "NATS has no room left" in leases.unsettled(), within_s=10)
        finally:
            await leases.stop()
    finally:
        await bus.close()
        server.kill()


async def _fill(bus: NatsBus) -> None:
    for number in range(100):
        await bus.publish(f"obj.{number}", b"x" * 100_000)


async def _nothing(*_arguments: object) -> None:
    pass
