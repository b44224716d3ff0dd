"""The port (raybus.bus.transport.Bus), as memory and a real server keep it."""

from __future__ import annotations

import asyncio
import time

import pytest

from raybus.bus.transport import (
    BodyTooLarge,
    Bus,
    BusError,
    Message,
    StreamConfig,
    StreamMissing,
    Unavailable,
    WrongSequence,
)
from support.buses import BusBackend, BusContract, OnMemory, OnNats
from support.waiting import eventually

OBJECTS = StreamConfig(name="OBJECTS", subjects=("obj.>",), metadata={"raybus.partitions": "8"})
BUCKET = StreamConfig(name="KV_b", subjects=("$KV.b.>",), marker_ttl_s=30)


class Log:
    """What a follower was told, in order."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.signals: list[str] = []

    def message(self, message: Message) -> None:
        self.messages.append(message)
        self.signals.append(message.subject)

    def caught_up(self) -> None:
        self.signals.append("caught up")

    def gap(self) -> None:
        self.messages.clear()
        self.signals.append("gap")

    @property
    def bodies(self) -> dict[str, bytes]:
        return {message.subject: message.body for message in self.messages}


async def follow(bus: Bus, *subjects: str, stream: str = "OBJECTS", headers_only: bool = False) -> Log:
    log = Log()
    await bus.follow(
        stream,
        subjects or ("obj.>",),
        on_message=log.message,
        on_caught_up=log.caught_up,
        on_gap=log.gap,
        headers_only=headers_only,
    )
    return log


class TransportContract(BusContract):
    @pytest.fixture
    async def bus(self, backend: BusBackend) -> Bus:
        bus = await backend.connect()
        await bus.ensure_stream(OBJECTS)
        return bus

    async def test_what_is_published_is_the_last_of_its_subject(self, bus: Bus) -> None:
        await bus.publish("obj.a", b"1", {"ray-op": "PUT"})
        seq = await bus.publish("obj.a", b"2", {"ray-op": "PUT", "ce-id": "u%20/7"})
        last = await bus.last("OBJECTS", "obj.a")
        assert last is not None
        assert (last.body, last.seq, last.headers["ce-id"]) == (b"2", seq, "u%20/7")
        assert abs(last.time - time.time()) < 60
        assert (await bus.stream_info("OBJECTS")).messages == 1
        assert await bus.last("OBJECTS", "obj.b") is None

    async def test_an_expected_sequence_lets_one_writer_through(self, bus: Bus) -> None:
        first = await bus.publish("obj.a", b"1", expect_last_seq=0)
        with pytest.raises(WrongSequence):
            await bus.publish("obj.a", b"other", expect_last_seq=0)
        second = await bus.publish("obj.a", b"2", expect_last_seq=first)
        with pytest.raises(WrongSequence):
            await bus.publish("obj.a", b"stale", expect_last_seq=first)
        last = await bus.last("OBJECTS", "obj.a")
        assert last is not None
        assert (last.body, last.seq) == (b"2", second)

    async def test_of_ten_that_expect_the_same_one_wins(self, bus: Bus) -> None:
        tries = [bus.publish("obj.a", b"%d" % number, expect_last_seq=0) for number in range(10)]
        answers = await asyncio.gather(*tries, return_exceptions=True)
        assert sum(isinstance(answer, int) for answer in answers) == 1
        assert sum(isinstance(answer, WrongSequence) for answer in answers) == 9

    async def test_after_a_purge_the_subject_has_no_last_sequence(self, bus: Bus) -> None:
        await bus.publish("obj.a", b"1")
        await bus.publish("obj.b", b"1")
        assert await bus.purge("OBJECTS", "obj.a") == 1
        assert await bus.last("OBJECTS", "obj.a") is None
        assert await bus.publish("obj.a", b"2", expect_last_seq=0) == 3
        assert await bus.purge("OBJECTS") == 2

    async def test_a_stream_keeps_its_age_and_takes_new_metadata(self, bus: Bus) -> None:
        before = await bus.stream_info("OBJECTS")
        changed = StreamConfig(name="OBJECTS", subjects=("obj.>",), metadata={"raybus.partitions": "16"})
        after = await bus.ensure_stream(changed)
        assert after.created == before.created
        assert before.metadata["raybus.partitions"] == "8"
        assert after.metadata["raybus.partitions"] == "16"

    async def test_a_stream_made_anew_tells_so(self, bus: Bus, backend: BusBackend) -> None:
        before = await bus.stream_info("OBJECTS")
        await backend.lose_stream("OBJECTS")
        with pytest.raises(StreamMissing):
            await bus.stream_info("OBJECTS")
        assert (await bus.ensure_stream(OBJECTS)).created != before.created

    async def test_what_nobody_stores_is_not_sent(self, bus: Bus) -> None:
        with pytest.raises(Unavailable):
            await bus.publish("nowhere.a", b"1")

    async def test_a_body_over_the_limit_is_refused(self, bus: Bus) -> None:
        with pytest.raises(BodyTooLarge):
            await bus.publish("obj.a", bytes(bus.max_payload + 1))

    async def test_history_keeps_as_many_as_it_was_told(self, bus: Bus) -> None:
        await bus.ensure_stream(StreamConfig(name="HIST", subjects=("hist.>",), max_msgs_per_subject=3, compress=True))
        for number in range(5):
            await bus.publish("hist.a", b"%d" % number)
        assert (await bus.stream_info("HIST")).messages == 3

    async def test_expiry_leaves_a_marker_in_a_bucket(self, bus: Bus) -> None:
        await bus.ensure_stream(BUCKET)
        log = await follow(bus, "$KV.b.>", stream="KV_b")
        await eventually(lambda: "caught up" in log.signals)
        seq = await bus.publish("$KV.b.session.x", b"me", ttl_s=1)
        await eventually(lambda: len(log.messages) == 2, "value and marker")
        value, marker = log.messages
        assert (value.body, value.seq) == (b"me", seq)
        assert marker.headers["Nats-Marker-Reason"] == "MaxAge"
        assert marker.seq > seq

    async def test_expiry_leaves_nothing_in_another_stream(self, bus: Bus) -> None:
        await bus.publish("obj.a", b"", ttl_s=1)
        ends = time.monotonic() + 20
        while await bus.last("OBJECTS", "obj.a") is not None:
            assert time.monotonic() < ends
            await asyncio.sleep(0.05)

    async def test_a_newer_message_outlives_the_older_ones_expiry(self, bus: Bus) -> None:
        await bus.ensure_stream(BUCKET)
        log = await follow(bus, "$KV.b.>", stream="KV_b")
        await eventually(lambda: "caught up" in log.signals)
        await bus.publish("$KV.b.session.x", b"1", ttl_s=1)
        await bus.publish("$KV.b.session.x", b"2", ttl_s=60)
        await bus.publish("$KV.b.session.other", b"3", ttl_s=1)
        # Not by their number: a slow machine may make the follower read again, and then some come twice.
        await eventually(
            lambda: any(m.subject.endswith("other") and not m.body for m in log.messages), "the other's marker"
        )
        last = await bus.last("KV_b", "$KV.b.session.x")
        assert last is not None
        assert last.body == b"2"

    async def test_following_an_empty_stream_is_caught_up(self, bus: Bus) -> None:
        log = await follow(bus)
        await eventually(lambda: log.signals == ["caught up"])

    async def test_following_gives_the_last_of_each_subject_and_then_the_new(self, bus: Bus) -> None:
        for subject, body in (("obj.a", b"1"), ("obj.b", b"1"), ("obj.a", b"2")):
            await bus.publish(subject, body)
        log = await follow(bus)
        await eventually(lambda: log.signals == ["obj.b", "obj.a", "caught up"])
        assert log.bodies == {"obj.a": b"2", "obj.b": b"1"}
        seq = await bus.publish("obj.b", b"2", {"ray-op": "PUT"})
        await eventually(lambda: log.signals[3:] == ["obj.b"])
        assert log.messages[-1].seq == seq
        assert log.messages[-1].headers["ray-op"] == "PUT"

    async def test_following_takes_several_filters(self, bus: Bus) -> None:
        for subject in ("obj.1.x", "obj.2.x", "obj.3.x", "obj.mark.Pod"):
            await bus.publish(subject, b"1")
        log = await follow(bus, "obj.1.>", "obj.3.>", "obj.mark.*")
        await eventually(lambda: "caught up" in log.signals)
        await bus.publish("obj.2.x", b"2")
        await bus.publish("obj.3.x", b"2")
        await eventually(lambda: log.signals[4:] == ["obj.3.x"])
        assert set(log.bodies) == {"obj.1.x", "obj.3.x", "obj.mark.Pod"}

    async def test_following_headers_only_brings_no_body(self, bus: Bus) -> None:
        await bus.publish("obj.a", b"1", {"ray-uid": "u"})
        log = await follow(bus, headers_only=True)
        await eventually(lambda: "caught up" in log.signals)
        assert (log.messages[0].body, log.messages[0].headers["ray-uid"]) == (b"", "u")

    async def test_following_more_than_one_batch(self, bus: Bus) -> None:
        for number in range(700):
            await bus.publish(f"obj.{number}", b"%d" % number)
        log = await follow(bus)
        await eventually(lambda: "caught up" in log.signals)
        assert [message.body for message in log.messages] == [b"%d" % number for number in range(700)]
        for number in range(300):
            await bus.publish(f"obj.live.{number}", b"%d" % number)
        await eventually(lambda: len(log.messages) == 1000)

    async def test_following_a_stream_that_comes_later(self, bus: Bus) -> None:
        log = await follow(bus, "$KV.b.>", stream="KV_b")
        await asyncio.sleep(0.2)
        assert log.signals == []
        await bus.ensure_stream(BUCKET)
        await bus.publish("$KV.b.x", b"1")
        await eventually(lambda: "caught up" in log.signals and log.bodies == {"$KV.b.x": b"1"})

    async def test_a_closed_follower_is_silent(self, bus: Bus) -> None:
        log = Log()
        follower = await bus.follow("OBJECTS", ("obj.>",), on_message=log.message, on_caught_up=log.caught_up)
        await eventually(lambda: follower.caught_up)
        await follower.close()
        await bus.publish("obj.a", b"1")
        await asyncio.sleep(0.1)
        assert log.signals == ["caught up"]

    async def test_a_callback_that_fails_does_not_end_the_following(self, bus: Bus) -> None:
        log = Log()

        def fragile(message: Message) -> None:
            if message.body == b"poison":
                raise ValueError("poison")
            log.message(message)

        await bus.follow("OBJECTS", ("obj.>",), on_message=fragile)
        await bus.publish("obj.a", b"poison")
        await bus.publish("obj.b", b"fine")
        await eventually(lambda: log.bodies == {"obj.b": b"fine"})

    async def test_a_restart_of_reading_gives_everything_again(self, bus: Bus) -> None:
        log = Log()
        await bus.publish("obj.a", b"1")
        follower = await bus.follow(
            "OBJECTS",
            ("obj.>",),
            on_message=log.message,
            on_caught_up=log.caught_up,
            on_gap=log.gap,
        )
        await eventually(lambda: follower.caught_up)
        follower.restart()
        assert not follower.caught_up
        await eventually(lambda: log.signals == ["obj.a", "caught up", "gap", "obj.a", "caught up"])

    async def test_a_server_restart_is_a_gap_and_then_all_goes_on(self, bus: Bus, backend: BusBackend) -> None:
        changes: list[bool] = []
        bus.on_connection(changes.append)
        await bus.publish("obj.a", b"1")
        log = await follow(bus)
        await eventually(lambda: "caught up" in log.signals)
        await backend.stop_server()
        await eventually(lambda: changes == [False], "told of the loss")
        assert not bus.connected
        with pytest.raises(Unavailable):
            await bus.publish("obj.a", b"2")
        await backend.start_server()
        await eventually(lambda: changes == [False, True], "told of the return")
        await eventually(lambda: log.signals.count("caught up") == 2, "read again")
        assert log.signals == ["obj.a", "caught up", "gap", "obj.a", "caught up"]
        await bus.publish("obj.a", b"3")
        await eventually(lambda: log.bodies["obj.a"] == b"3")

    async def test_what_was_published_while_one_was_away_arrives(self, bus: Bus, backend: BusBackend) -> None:
        log = await follow(bus)
        await eventually(lambda: "caught up" in log.signals)
        await backend.stop_server()
        await eventually(lambda: not bus.connected)
        await backend.start_server()
        other = await backend.connect()
        await other.publish("obj.a", b"news")
        await eventually(lambda: log.bodies == {"obj.a": b"news"})

    async def test_a_deleted_stream_is_followed_again_when_it_is_back(self, bus: Bus, backend: BusBackend) -> None:
        await bus.publish("obj.a", b"1")
        log = await follow(bus)
        await eventually(lambda: "caught up" in log.signals)
        await backend.lose_stream("OBJECTS")
        await eventually(lambda: "gap" in log.signals, "told of the loss")
        await bus.ensure_stream(OBJECTS)
        await bus.publish("obj.b", b"new")
        await eventually(lambda: log.signals[-1] != "gap" and log.bodies == {"obj.b": b"new"})

    async def test_a_closed_bus_refuses(self, bus: Bus) -> None:
        await bus.close()
        with pytest.raises(BusError):
            await bus.publish("obj.a", b"1")
        assert not bus.connected


class TestMemoryTransport(OnMemory, TransportContract):
    pass


class TestNatsTransport(OnNats, TransportContract):
    pass
