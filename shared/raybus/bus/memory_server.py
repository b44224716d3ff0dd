"""The streams of the in-memory twin, and the hooks that do to them what happens to a real server."""

from __future__ import annotations

import asyncio
import functools
import heapq
import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from raybus.bus.clock import SYSTEM, Clock
from raybus.bus.transport import (
    BodyTooLarge,
    BusTimeout,
    Message,
    StreamConfig,
    StreamInfo,
    StreamMissing,
    Unavailable,
    WrongSequence,
)

if TYPE_CHECKING:
    from raybus.bus.memory import MemoryBus, MemoryFollower

DEFAULT_MAX_PAYLOAD = 8 << 20
_MARKER_REASON = "Nats-Marker-Reason"


@functools.lru_cache(maxsize=4096)
def subject_matches(pattern: str, subject: str) -> bool:
    """NATS' own matching: `*` is one token, a last `>` one or more."""
    wanted, given = pattern.split("."), subject.split(".")
    for index, part in enumerate(wanted):
        if part == ">":
            return len(given) > index
        if index >= len(given) or part not in ("*", given[index]):
            return False
    return len(wanted) == len(given)


class _Stream:
    def __init__(self, config: StreamConfig, created: str) -> None:
        self.config = config
        self.created = created
        self.last_seq = 0
        self.subjects: dict[str, list[Message]] = {}

    def takes(self, subject: str) -> bool:
        return any(subject_matches(pattern, subject) for pattern in self.config.subjects)

    def store(self, message: Message) -> None:
        held = self.subjects.setdefault(message.subject, [])
        held.append(message)
        limit = self.config.max_msgs_per_subject
        if limit and len(held) > limit:
            del held[: len(held) - limit]

    def last_seq_of(self, subject: str) -> int:
        held = self.subjects.get(subject)
        return held[-1].seq if held else 0

    def remove(self, subject: str, seq: int) -> bool:
        held = self.subjects.get(subject, [])
        kept = [message for message in held if message.seq != seq]
        if kept:
            self.subjects[subject] = kept
        else:
            self.subjects.pop(subject, None)
        return len(kept) < len(held)

    def last_per_subject(self, patterns: Sequence[str]) -> list[Message]:
        found = (
            held[-1]
            for subject, held in self.subjects.items()
            if any(subject_matches(pattern, subject) for pattern in patterns)
        )
        return sorted(found, key=lambda message: message.seq)


class MemoryServer:
    """What a nats-server process is to its clients."""

    def __init__(self, clock: Clock = SYSTEM, max_payload: int = DEFAULT_MAX_PAYLOAD) -> None:
        self.clock = clock
        self.max_payload = max_payload
        self.up = True
        self.buses: list[MemoryBus] = []
        self.followers: list[MemoryFollower] = []
        self._streams: dict[str, _Stream] = {}
        self._created = itertools.count(1)
        self._expiries: list[tuple[float, str, str, int]] = []  # time, which stream was made, subject, sequence
        self._timer: asyncio.TimerHandle | None = None
        self._lost_answers = 0
        self._lost_publishes = 0

    # --- what a real server does ---

    def stream(self, name: str) -> _Stream:
        try:
            return self._streams[name]
        except KeyError:
            raise StreamMissing(f"no stream {name}") from None

    def has(self, name: str) -> bool:
        return name in self._streams

    def ensure(self, config: StreamConfig) -> StreamInfo:
        held = self._streams.get(config.name)
        if held is None:
            self._streams[config.name] = _Stream(config, f"created-{next(self._created)}")
            for follower in self.followers:
                follower.stream_made(config.name)
        else:
            held.config = config
        return self.info(config.name)

    def info(self, name: str) -> StreamInfo:
        stream = self.stream(name)
        return StreamInfo(
            name=name,
            created=stream.created,
            messages=sum(map(len, stream.subjects.values())),
            last_seq=stream.last_seq,
            metadata=dict(stream.config.metadata),
        )

    def store(
        self,
        subject: str,
        body: bytes,
        headers: Mapping[str, str],
        expect_last_seq: int | None,
        ttl_s: int | None,
    ) -> int:
        stream = next((stream for stream in self._streams.values() if stream.takes(subject)), None)
        if stream is None:
            raise Unavailable(f"no stream takes {subject}")
        if len(body) > self.max_payload:
            raise BodyTooLarge(f"{subject}: {len(body)} bytes, the server takes {self.max_payload}")
        if self._lost_publishes:
            self._lost_publishes -= 1
            raise BusTimeout(f"no answer to {subject}")
        last = stream.last_seq_of(subject)
        if expect_last_seq is not None and expect_last_seq != last:
            raise WrongSequence(f"{subject}: wrong last sequence: {last}")
        seq = self._append(stream, subject, body, headers, ttl_s)
        if self._lost_answers:
            self._lost_answers -= 1
            raise BusTimeout(f"no answer to {subject}")
        return seq

    def _append(self, stream: _Stream, subject: str, body: bytes, headers: Mapping[str, str], ttl_s: int | None) -> int:
        stream.last_seq += 1
        message = Message(subject, body, dict(headers), stream.last_seq, self.clock.now().timestamp())
        stream.store(message)
        if ttl_s:
            heapq.heappush(
                self._expiries,
                (self.clock.monotonic() + ttl_s, stream.created, subject, message.seq),
            )
            self._arm()
        for follower in list(self.followers):
            follower.offer(stream.config.name, message)
        return message.seq

    def purge(self, name: str, pattern: str) -> int:
        stream = self.stream(name)
        gone = [subject for subject in stream.subjects if subject_matches(pattern, subject)]
        return sum(len(stream.subjects.pop(subject)) for subject in gone)

    def expire(self) -> None:
        """Remove what is over its time to live; called by a timer, or by a test that moved the clock."""
        now = self.clock.monotonic()
        while self._expiries and self._expiries[0][0] <= now:
            _, created, subject, seq = heapq.heappop(self._expiries)
            stream = next((item for item in self._streams.values() if item.created == created), None)
            if stream is None or not stream.remove(subject, seq) or not stream.config.marker_ttl_s:
                continue
            self._append(stream, subject, b"", {_MARKER_REASON: "MaxAge"}, None)
        self._arm()

    def _arm(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if self._expiries and self.up:
            delay = max(self._expiries[0][0] - self.clock.monotonic(), 0.0)
            self._timer = asyncio.get_running_loop().call_later(delay, self.expire)

    def shut(self) -> None:
        """End its timer; call it at the end of a test."""
        if self._timer:
            self._timer.cancel()
            self._timer = None

    # --- what happens to a real server ---

    def stop(self) -> None:
        """Die: every connection is lost, nothing is answered. What was stored stays stored."""
        self.up = False
        self.shut()
        for bus in list(self.buses):
            bus.connection_changed()

    def start(self) -> None:
        """Come back on the same store."""
        self.up = True
        self.expire()
        for bus in list(self.buses):
            bus.connection_changed()

    def lose_stream(self, name: str) -> None:
        """The stream is deleted, as by an administrator or with the server's disk."""
        self._streams.pop(name, None)
        for follower in list(self.followers):
            follower.stream_lost(name)

    def roll_back(self, name: str, last_seq: int) -> None:
        """Lose acknowledged messages, as after a power failure: everything after `last_seq` never was."""
        stream = self.stream(name)
        for subject, held in list(stream.subjects.items()):
            kept = [message for message in held if message.seq <= last_seq]
            if kept:
                stream.subjects[subject] = kept
            else:
                del stream.subjects[subject]
        stream.last_seq = last_seq

    def lose_next_answers(self, count: int = 1) -> None:
        """The next publishes are stored, but their answers are lost."""
        self._lost_answers = count

    def lose_next_publishes(self, count: int = 1) -> None:
        """The next publishes never arrive."""
        self._lost_publishes = count
