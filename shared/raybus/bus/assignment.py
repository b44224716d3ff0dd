"""Who should own which partition, and what to do about it. Pure: the clock and the network are in raybus.bus.leases."""

from __future__ import annotations

import functools
import hashlib
import math
from collections import Counter
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import NamedTuple

import orjson

from raybus.bus.transport import Message

DRAINING = "ray-draining"
KV_OPERATION = "KV-Operation"
KV_DELETE = "DEL"
_MARKER_REASON = "Nats-Marker-Reason"


def assign(partitions: int, replicas: Collection[str]) -> Mapping[int, str]:
    """Bounded-load rendezvous hashing: every replica computes the same owners, none has more than its even share rounded up."""
    return _assigned(partitions, frozenset(replicas)) if replicas else {}


@functools.lru_cache(maxsize=64)
def _assigned(partitions: int, replicas: frozenset[str]) -> Mapping[int, str]:
    """Asked at every renewal of a lease, and the replicas are nearly always those of before."""
    limit = math.ceil(partitions / len(replicas))
    load: Counter[str] = Counter()
    out: dict[int, str] = {}
    for part in range(partitions):
        for replica in sorted(replicas, key=lambda name: _weight(part, name), reverse=True):
            if load[replica] < limit:
                out[part] = replica
                load[replica] += 1
                break
    return MappingProxyType(out)


def _weight(part: int, replica: str) -> bytes:
    return hashlib.blake2b(f"{part}|{replica}".encode(), digest_size=8).digest()


def is_gone(message: Message) -> bool:
    """Whether a key's last message says that the key was deleted or has expired."""
    return message.headers.get(KV_OPERATION) in ("DEL", "PURGE") or _MARKER_REASON in message.headers


def owner_of(message: Message) -> str | None:
    """Whom the record of a partition names; None if it was released."""
    if is_gone(message) or not message.body:
        return None
    try:
        return str(orjson.loads(message.body)["replica"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return "?"  # unreadable: nobody whose session lives


class Record(NamedTuple):
    """The record of a partition; `owner` None: released. `seq` is the epoch."""

    owner: str | None
    seq: int


class LiveSession(NamedTuple):
    body: bytes
    draining: bool


class LeaseView:
    """What a bucket is known to hold. `complete` is set by the follower's owner, false while it is being read."""

    def __init__(self) -> None:
        self.sessions: dict[str, LiveSession] = {}
        self.records: dict[int, Record] = {}
        self.complete = False

    def clear(self) -> None:
        self.sessions.clear()
        self.records.clear()
        self.complete = False

    def apply(self, key: str, message: Message) -> None:
        """Take in a message of `key`."""
        kind, _, rest = key.partition(".")
        gone = is_gone(message)
        if kind == "session" and gone:
            self.sessions.pop(rest, None)
        elif kind == "session":
            self.sessions[rest] = LiveSession(message.body, message.headers.get(DRAINING) == "true")
        elif kind == "part" and rest.isdigit():
            held = self.records.get(int(rest))
            if held and held.seq > message.seq:
                return  # our own write was known before this older one was delivered
            self.records[int(rest)] = Record(owner_of(message), message.seq)

    def wanted(self, partitions: int) -> Mapping[int, str]:
        return assign(partitions, [name for name, session in self.sessions.items() if not session.draining])


class Moves(NamedTuple):
    """`take`: by compare-and-set on the record. `release`: owned, hand over in order. `disown`: a record of ours that we do
    not hold (a release whose answer was lost).
    """

    take: tuple[tuple[int, Record | None], ...]
    release: tuple[int, ...]
    disown: tuple[tuple[int, int], ...]


def moves(
    view: LeaseView,
    *,
    me: str,
    partitions: int,
    owned: Mapping[int, int],
    busy: Collection[int],
    grace_over: bool,
) -> Moves:
    """What to do now, given a complete view. `owned` is partition -> epoch, `busy` are those being moved already.

    A partition without any record is taken only with `grace_over`: whoever owned it before the record was lost has fenced
    itself by then. A released one needs no wait.
    """
    wanted = view.wanted(partitions)
    take: list[tuple[int, Record | None]] = []
    release: list[int] = []
    disown: list[tuple[int, int]] = []
    for part in range(partitions):
        if part in busy:
            continue
        record = view.records.get(part)
        mine = wanted.get(part) == me
        if part in owned:
            if not mine:
                release.append(part)
        elif record is not None and record.owner == me and not mine:
            disown.append((part, record.seq))
        elif mine and (grace_over if record is None else _free(record, view, me)):
            take.append((part, record))
    return Moves(tuple(take), tuple(release), tuple(disown))


def untaken(view: LeaseView, *, me: str, partitions: int, owned: Collection[int]) -> tuple[int, ...]:
    """Partitions that should be this replica's and are nobody's: it takes them, or waits until it may.

    What another living replica still owns is not among them: until that one hands over, all is as it should be.
    """
    wanted = view.wanted(partitions)
    out = []
    for part in range(partitions):
        record = view.records.get(part)
        if wanted.get(part) == me and part not in owned and (record is None or _free(record, view, me)):
            out.append(part)
    return tuple(out)


def _free(record: Record, view: LeaseView, me: str) -> bool:
    return record.owner in (None, me) or record.owner not in view.sessions


def evicted(view: LeaseView, me: str, owned: Mapping[int, int]) -> tuple[int, ...]:
    """Owned partitions whose record says otherwise: the lease data was rolled back, or somebody deleted it."""
    out = []
    for part, epoch in owned.items():
        record = view.records.get(part)
        if view.complete and (record is None or (record.owner != me and record.seq != epoch)):
            out.append(part)
    return tuple(out)
