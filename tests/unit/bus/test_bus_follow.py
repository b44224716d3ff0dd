"""The follower against a server that the test plays message by message: what a real one does too seldom to be tested with."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from raybus.bus.follow import NatsFollower
from raybus.bus.transport import BusStats, Message, Unavailable
from support.waiting import eventually


class Server:
    """The parts of NatsBus that a follower uses."""

    def __init__(self) -> None:
        self.connected = True
        self.stats = BusStats()
        self.consumers = 0
        self.pending = 0
        self.failures = 0
        self.pulls: list[tuple[str, dict[str, Any], str]] = []
        self.receive: Callable[[Any], Awaitable[None]] | None = None

    def new_inbox(self) -> str:
        return "_INBOX.x"

    def on_connection(self, _callback: Callable[[bool], None]) -> Callable[[], None]:
        return lambda: None

    async def subscribe(self, _subject: str, callback: Callable[[Any], Awaitable[None]]) -> Any:
        self.receive = callback

        async def unsubscribe() -> None:
            self.receive = None

        return SimpleNamespace(unsubscribe=unsubscribe)

    async def api(self, _subject: str, _body: dict[str, Any], _timeout_s: float) -> dict[str, Any]:
        if self.failures:
            self.failures -= 1
            raise Unavailable("not yet")
        self.consumers += 1
        return {"name": f"consumer{self.consumers}", "num_pending": self.pending}

    async def send(self, subject: str, body: bytes, reply: str) -> None:
        self.pulls.append((subject, orjson.loads(body), reply))

    async def deliver(self, number: int, *, consumer: int | None = None, pending: int = 0, domain: str = "") -> None:
        assert self.receive is not None
        prefix = f"$JS.ACK.{domain}.hash" if domain else "$JS.ACK"
        suffix = ".token" if domain else ""
        reply = f"{prefix}.STREAM.consumer{consumer or self.consumers}.1.{100 + number}.{number}.1700000000000000000.{pending}"
        await self.receive(SimpleNamespace(subject="obj.a", data=b"%d" % number, headers=None, reply=reply + suffix))

    async def status(self, code: str, description: str = "", *, of_round: int | None = None) -> None:
        assert self.receive is not None
        headers = {"Status": code, "Description": description}
        subject = f"_INBOX.x.{of_round or self.consumers}"
        await self.receive(SimpleNamespace(subject=subject, data=b"", headers=headers, reply=""))


class Told:
    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.signals: list[str] = []


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
async def follower(server: Server, told: Told) -> AsyncIterator[NatsFollower]:
    server.pending = 2
    follower = NatsFollower(
        server,
        "STREAM",
        ("obj.>",),
        on_message=told.messages.append,
        on_caught_up=lambda: told.signals.append("caught up"),
        on_gap=lambda: told.signals.append("gap"),
        headers_only=False,
        on_close=lambda _follower: None,
    )
    await follower.start()
    await eventually(lambda: server.pulls)
    yield follower
    await follower.close()


async def test_it_is_caught_up_when_nothing_is_pending(server: Server, told: Told, follower: NatsFollower) -> None:
    await server.deliver(1, pending=1)
    assert told.signals == []
    await server.deliver(2, pending=0)
    assert told.signals == ["caught up"]
    assert [(message.body, message.seq, message.time) for message in told.messages] == [
        (b"1", 101, 1700000000.0),
        (b"2", 102, 1700000000.0),
    ]


async def test_a_hole_in_the_sequence_reads_everything_again(
    server: Server, told: Told, follower: NatsFollower
) -> None:
    await server.deliver(1, pending=1)
    await server.deliver(3)
    assert told.signals == ["gap"]
    assert not follower.caught_up
    assert server.stats.rereads == {"hole": 1}
    await eventually(lambda: server.consumers == 2)
    await server.deliver(4, consumer=1)  # of the consumer that had the hole
    await eventually(lambda: len(server.pulls) == 2)
    await server.deliver(1)
    assert [message.body for message in told.messages] == [b"1", b"1"]
    assert told.signals == ["gap", "caught up"]


async def test_replies_of_a_server_with_a_domain(server: Server, told: Told, follower: NatsFollower) -> None:
    await server.deliver(1, domain="hub")
    assert [message.seq for message in told.messages] == [101]


async def test_idle_means_caught_up(server: Server, told: Told, follower: NatsFollower) -> None:
    # What was pending may have been removed before it could be delivered.
    await server.status("100", "Idle Heartbeat")
    assert follower.caught_up


async def test_a_request_that_is_over_is_followed_by_another(
    server: Server, told: Told, follower: NatsFollower
) -> None:
    await server.status("408", "Request Timeout")
    await server.status("409", "Message Size Exceeds MaxBytes")
    assert len(server.pulls) == 3
    assert server.consumers == 1
    assert told.signals == []


async def test_so_is_a_batch_that_is_used_up(server: Server, told: Told, follower: NatsFollower) -> None:
    batch = server.pulls[0][1]["batch"]
    for number in range(1, batch):
        await server.deliver(number)
    assert len(server.pulls) == 1
    await server.deliver(batch)
    assert len(server.pulls) == 2


@pytest.mark.parametrize(
    ("code", "description"),
    [("409", "Consumer Deleted"), ("409", "Leadership Change"), ("409", "Server Shutdown"), ("503", "")],
)
async def test_a_consumer_that_is_gone_is_made_anew(
    server: Server, told: Told, follower: NatsFollower, code: str, description: str
) -> None:
    server.failures = 2
    await server.status(code, description)
    assert told.signals == ["gap"]
    await eventually(lambda: server.consumers == 2 and len(server.pulls) == 2)
    await server.status(code, description, of_round=1)  # late, of the first one
    assert told.signals == ["gap"]


async def test_a_pull_asks_for_a_heartbeat_that_the_server_accepts(server: Server, follower: NatsFollower) -> None:
    subject, request, reply = server.pulls[0]
    assert subject == "$JS.API.CONSUMER.MSG.NEXT.STREAM.consumer1"
    assert reply == "_INBOX.x.1"
    assert 0 < request["idle_heartbeat"] <= request["expires"] / 2
