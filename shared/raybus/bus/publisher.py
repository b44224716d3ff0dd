"""The gateway's side of an object stream: every write is bound to the sequence it replaces.

A gateway publishes to a subject only after it has read that subject's last sequence in its own term, so one that lost its lease
is refused by the server, not by its own good will. Whatever it cannot explain to itself ends as Fenced: ask the lease, load the
term anew, list again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import NamedTuple

import orjson
import structlog

from raybus.bus import envelope
from raybus.bus.clock import SYSTEM, Clock
from raybus.bus.envelope import Op
from raybus.bus.projection import identity_only, metadata_only
from raybus.bus.reading import read_last
from raybus.bus.streams import StreamSettings, object_stream
from raybus.bus.subjects import is_marker, marker_subject
from raybus.bus.transport import Bus, BusError, BusTimeout, Message, StreamInfo, Unavailable, WrongSequence
from raybus.decide.actions import Json

log = structlog.get_logger(__name__)

_BACKOFF_S = (0.05, 1.0)
_FORGET_AFTER_S = 3600  # after a tombstone's time to live; the server's clock is not ours
_HEADER_ROOM = 2048  # bytes that headers and subject may take of the server's max_payload
_ID_HEADERS = (envelope.ID, envelope.OP, envelope.PROJECTION, envelope.TERM)


class Held(NamedTuple):
    """What the stream holds under a subject at the start of a term."""

    subject: str
    seq: int
    op: Op
    uid: str
    resource_version: str
    projection: str


class Fenced(BusError):
    """Another gateway wrote, or the stream lost what was written. Nothing of this term may be relied on any more."""


class _Turns:
    """Whose turn it is to publish to a subject; kept only while somebody does."""

    __slots__ = ("lock", "users")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0


class ObjectPublisher:
    """Publishes to one controller's object stream in one term. `term` is the gateway's replica id.

    Call load_term() first. Publishes of one subject run one after the other, of different subjects side by side.
    """

    def __init__(
        self,
        bus: Bus,
        controller: str,
        settings: StreamSettings,
        *,
        term: str,
        clock: Clock = SYSTEM,
        deadline_s: float = 30.0,
    ) -> None:
        self._bus = bus
        self._controller = controller
        self._settings = settings
        self._stream = object_stream(controller)
        self._term = term
        self._clock = clock
        self._deadline_s = deadline_s
        self._source = envelope.source(settings.cluster_uid)
        self._sequences: dict[str, int] = {}
        self._deleted: dict[
            str, float
        ] = {}  # subjects that hold a tombstone, with the monotonic time when it was known
        self._locks: dict[str, _Turns] = {}
        self._created = ""
        self._highest = 0
        self._loaded = False

    async def load_term(self, timeout_s: float = 60.0) -> dict[str, Held]:
        """Read the last sequence of every object subject; answers what the stream holds, by subject, deletions included."""
        self._loaded = False
        info = await self._bus.stream_info(self._stream)
        found = await read_last(
            self._bus,
            self._stream,
            (f"ray.{self._controller}.{self._settings.generation}.>",),
            headers_only=True,
            timeout_s=timeout_s,
        )
        self._sequences = {message.subject: message.seq for message in found}
        self._created, self._highest = info.created, info.last_seq
        self._loaded = True
        held = [item for item in map(_held, found) if item is not None]
        self._deleted = dict.fromkeys((item.subject for item in held if item.op is Op.DELETED), self._clock.monotonic())
        return {item.subject: item for item in held}

    async def put(self, subject: str, obj: Json, *, projection: str, traceparent: str = "") -> int:
        """Publish a version of an object, projected already; answers its sequence.

        A body that the server does not take goes as metadata with `ray-ref`. Raises Fenced, or BusTimeout after the deadline.
        """
        body = orjson.dumps(obj)
        room = self._bus.max_payload - _HEADER_ROOM
        ref = len(body) > room
        if ref:
            body = orjson.dumps(metadata_only(obj))
            body = body if len(body) <= room else orjson.dumps(identity_only(obj))
        headers = self._headers(obj, Op.PUT, projection=projection, ref=ref, traceparent=traceparent)
        seq = await self._publish(subject, body, headers, None)
        self._deleted.pop(subject, None)
        return seq

    async def tombstone(self, subject: str, obj: Json, *, traceparent: str = "") -> int:
        """Publish a deletion. Of `obj` only name, namespace, uid and resourceVersion are used. Raises as put."""
        headers = self._headers(obj, Op.DELETED, traceparent=traceparent)
        seq = await self._publish(subject, b"", headers, envelope.TOMBSTONE_TTL_S)
        self._deleted.pop(subject, None)
        self._deleted[subject] = self._clock.monotonic()
        self._forget_expired()
        return seq

    async def mark(
        self, kind: str, resource_version: str, *, complete: bool = True, routes: Iterable[str] | None = None
    ) -> int:
        """Publish the completeness marker of a kind, as far as these routes (their ids) bring it.

        Raises as put: a gateway that lost its lease cannot vouch for anything.
        """
        now = self._clock.now()
        return await self._publish(
            marker_subject(self._controller, self._settings.generation, kind),
            envelope.marker_body(resource_version, term=self._term, time=now, complete=complete, routes=routes),
            envelope.marker_headers(kind, resource_version, source=self._source, term=self._term, time=now),
            None,
        )

    async def lost_data(self) -> bool:
        """Whether the stream is younger or shorter than what this term saw of it: then list again. Ask after a reconnect."""
        info: StreamInfo = await self._bus.stream_info(self._stream)
        return info.created != self._created or info.last_seq < self._highest

    def _headers(
        self,
        obj: Json,
        op: Op,
        *,
        projection: str = "",
        ref: bool = False,
        traceparent: str = "",
    ) -> dict[str, str]:
        return envelope.object_headers(
            obj,
            op=op,
            source=self._source,
            term=self._term,
            time=self._clock.now(),
            projection=projection,
            ref=ref,
            traceparent=traceparent,
        )

    async def _publish(self, subject: str, body: bytes, headers: dict[str, str], ttl_s: int | None) -> int:
        if not self._loaded:
            raise Fenced(f"{subject}: the last sequences have not been read in this term")
        turns = self._locks.setdefault(subject, _Turns())
        turns.users += 1
        try:
            async with turns.lock:
                seq = await self._attempts(subject, body, headers, ttl_s)
                self._sequences[subject] = seq
        finally:
            turns.users -= 1
            if not turns.users:
                del self._locks[subject]
        self._highest = max(self._highest, seq)
        return seq

    def _forget_expired(self) -> None:
        """Names that were used once must not stay in memory for ever: a day later the stream has forgotten them too."""
        before = self._clock.monotonic() - envelope.TOMBSTONE_TTL_S - _FORGET_AFTER_S
        while self._deleted and self._deleted[oldest := next(iter(self._deleted))] < before:
            del self._deleted[oldest]
            self._sequences.pop(oldest, None)

    async def _attempts(self, subject: str, body: bytes, headers: dict[str, str], ttl_s: int | None) -> int:
        ends = self._clock.monotonic() + self._deadline_s
        pause = _BACKOFF_S[0]
        while True:
            expected = self._sequences.get(subject, 0)
            try:
                return await self._bus.publish(subject, body, headers, expect_last_seq=expected, ttl_s=ttl_s)
            except (WrongSequence, BusTimeout):
                # An own attempt whose answer was lost looks like both: the stream itself knows.
                stored = await self._explain(subject, headers, expected)
                if stored is not None:
                    return stored
            except Unavailable as error:
                log.debug("publish_waits", subject=subject, error=str(error))
            if self._clock.monotonic() >= ends:
                raise BusTimeout(f"{subject}: not published within {self._deadline_s} s")
            await asyncio.sleep(pause)
            pause = min(pause * 2, _BACKOFF_S[1])

    async def _explain(self, subject: str, headers: dict[str, str], expected: int) -> int | None:
        """The sequence if the message is stored, None if it is certainly not (try again); Fenced if somebody else wrote."""
        try:
            last = await self._bus.last(self._stream, subject)
        except (Unavailable, BusTimeout):
            return None
        stored = last.seq if last else 0
        if last is not None and stored > expected and _same(last, headers):
            return stored
        if stored == expected:
            return None
        if stored == 0 and self._deleted.pop(subject, None) is not None:
            self._sequences.pop(subject, None)  # the tombstone expired: the name is as good as new
            return None
        if stored < expected:
            raise Fenced(f"{subject}: the stream lost what this term wrote (sequence {expected}, now {stored})")
        writer = last.headers.get(envelope.TERM, "?") if last else "?"
        raise Fenced(f"{subject}: gateway {writer} wrote sequence {stored}, this term knew {expected}")


def _same(message: Message, headers: dict[str, str]) -> bool:
    return all(message.headers.get(name) == headers.get(name) for name in _ID_HEADERS)


def _held(message: Message) -> Held | None:
    if is_marker(message.subject):
        return None
    headers = message.headers
    try:
        return Held(
            message.subject,
            message.seq,
            Op(headers[envelope.OP]),
            envelope.decode(headers[envelope.UID]),
            envelope.decode(headers[envelope.RV]),
            envelope.decode(headers.get(envelope.PROJECTION, "")),
        )
    except (KeyError, ValueError):
        # Written by somebody else or by a later release: what this gateway knows of the object goes over it.
        return Held(message.subject, message.seq, Op.PUT, "", "", "")
