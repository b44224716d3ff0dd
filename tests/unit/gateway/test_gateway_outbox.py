"""The outbox: how many writes are under way, what settle() promises, and what a failure does."""

from __future__ import annotations

import asyncio

import pytest

from raybus.bus.envelope import Op
from raybus_gateway.holdings import Write
from raybus_gateway.outbox import Outbox


def writes(count: int, first: int = 0) -> list[Write]:
    return [Write("raycluster", f"s{number}", Op.PUT, {}) for number in range(first, first + count)]


class Server:
    """Answers each write when told to."""

    def __init__(self) -> None:
        self.arrived: list[str] = []
        self.gates: dict[str, asyncio.Future[None]] = {}

    async def publish(self, write: Write) -> None:
        self.arrived.append(write.subject)
        self.gates[write.subject] = asyncio.get_running_loop().create_future()
        await self.gates[write.subject]

    async def answer(self, *subjects: str) -> None:
        for subject in subjects:
            self.gates[subject].set_result(None)
        await turn()


async def turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_no_more_under_way_than_slots() -> None:
    server = Server()
    outbox = Outbox(server.publish, in_flight_max=2)
    sending = asyncio.create_task(outbox.send(writes(3)))
    await turn()
    assert server.arrived == ["s0", "s1"]
    assert not sending.done()
    await server.answer("s1")
    assert server.arrived == ["s0", "s1", "s2"]
    assert sending.done()
    await outbox.close()


async def test_settle_waits_for_what_was_given_before_and_for_no_more() -> None:
    server = Server()
    outbox = Outbox(server.publish, in_flight_max=2)
    sending = asyncio.create_task(outbox.send(writes(3)))
    await turn()
    settling = asyncio.create_task(outbox.settle())
    await server.answer("s0", "s1")
    assert not settling.done(), "one of the three had no slot yet when settle() was called"
    await outbox.send(writes(1, first=3))
    await server.answer("s2")
    await asyncio.wait_for(settling, 10)
    assert server.arrived[-1] == "s3"
    await sending
    await outbox.close()


async def test_a_failure_ends_everything() -> None:
    async def refuse(_write: Write) -> None:
        raise ConnectionError("refused")

    outbox = Outbox(refuse, in_flight_max=1)
    with pytest.raises(ConnectionError):
        await outbox.send(writes(5))
    assert outbox.failed.is_set()
    with pytest.raises(ConnectionError):
        await outbox.settle()
    with pytest.raises(ConnectionError):
        await outbox.send(writes(1))
    await outbox.close()


async def test_a_cancelled_sender_loses_nothing() -> None:
    """The catalog has planned with these writes; nobody would plan them again."""
    server = Server()
    outbox = Outbox(server.publish, in_flight_max=1)
    sending = asyncio.create_task(outbox.send(writes(3)))
    await turn()
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)
    await server.answer("s0")
    await server.answer("s1")
    await server.answer("s2")
    assert server.arrived == ["s0", "s1", "s2"]
    await outbox.settle()
    await outbox.close()
