"""The port: what Raybus needs of JetStream, no more. raybus.bus.nats and raybus.bus.memory implement it.

A stream keeps messages by subject; publishing may be bound to the last sequence of the subject (optimistic concurrency);
following delivers the last message of each subject and then every new one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol


class Message(NamedTuple):
    """`seq` is the sequence in the stream, `time` when the server stored it (seconds since the epoch, the server's clock)."""

    subject: str
    body: bytes
    headers: Mapping[str, str]
    seq: int
    time: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamConfig:
    """0 means no limit. `marker_ttl_s` > 0 makes the server leave a marker where a message expired (a key-value bucket)."""

    name: str
    subjects: tuple[str, ...]
    max_msgs_per_subject: int = 1
    max_age_s: int = 0
    max_bytes: int = 0
    marker_ttl_s: int = 0
    deny_delete: bool = False
    deny_purge: bool = False
    compress: bool = False
    replicas: int = 1
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamInfo:
    """`created` tells a stream from one of the same name that was made anew; `last_seq` never goes back in one of them."""

    name: str
    created: str
    messages: int
    last_seq: int
    metadata: Mapping[str, str]


@dataclass(slots=True)
class BusStats:
    """What became of a connection so far, for whoever shows it.

    `rereads` counts follows that were read from the start again, by why: "reconnect", "hole" (in the sequence), "silence" (no
    heartbeat), "ended" (by the server), "asked". `certificate_ends` is when the server's certificate does, seconds since the
    epoch; None without TLS.
    """

    disconnects: int = 0
    rereads: Counter[str] = field(default_factory=Counter)
    certificate_ends: float | None = None


class BusError(Exception):
    """Something NATS did not do. The message names the stream or subject."""


class Unavailable(BusError):
    """Nobody was there to take it: nothing was stored. Try again when connected."""


class BusTimeout(BusError):
    """No answer in time. A publish may have been stored, or not: read the last message to learn which."""


class WrongSequence(BusError):
    """The subject's last sequence is not the expected one: nothing was stored."""


class StreamMissing(BusError):
    """No stream of this name."""


class BodyTooLarge(BusError):
    """The message is larger than the server accepts (Bus.max_payload)."""


class Refused(BusError):
    """The server understood and said no; `code` is its error code."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


class NotAllowed(Refused):
    """The user that this process is for NATS has no right to do that."""


class SettingsDiffer(NotAllowed):
    """The stream is there with other settings, and this user of NATS has no right to change them: it stays as it is."""


class Follower(Protocol):
    """A running follow. `caught_up` is true from the end of the first read on, and false while it is read again."""

    @property
    def caught_up(self) -> bool: ...

    def restart(self) -> None:
        """Read everything again, as after a gap."""
        ...

    async def close(self) -> None: ...


MessageCallback = Callable[[Message], None]
SignalCallback = Callable[[], None]
ConnectionCallback = Callable[[bool], None]


def nothing() -> None:
    """A callback for those who do not want to know."""


class Bus(Protocol):
    """One connection. Every call ends within its timeout with one of the errors above."""

    @property
    def connected(self) -> bool: ...

    @property
    def stats(self) -> BusStats: ...

    @property
    def max_payload(self) -> int:
        """Bytes that headers and body may have together."""
        ...

    async def connect(self, timeout_s: float = 30.0) -> None: ...

    async def close(self) -> None: ...

    @property
    def refusal(self) -> str:
        """What the server refused for want of a right within the last minute, in words; empty: nothing."""
        ...

    def on_connection(self, callback: ConnectionCallback) -> Callable[[], None]:
        """Call `callback(connected)` at each change from now on; the answer takes it off again."""
        ...

    async def ensure_stream(self, config: StreamConfig) -> StreamInfo:
        """Create the stream, or bring it to `config`. Raises SettingsDiffer, or NotAllowed where there is none."""
        ...

    async def stream_info(self, name: str, timeout_s: float = 2.0) -> StreamInfo: ...

    async def publish(
        self,
        subject: str,
        body: bytes,
        headers: Mapping[str, str] | None = None,
        *,
        expect_last_seq: int | None = None,
        ttl_s: int | None = None,
        timeout_s: float = 2.0,
    ) -> int:
        """Store a message and answer its sequence. `expect_last_seq` 0 means that the subject has none.

        Raises WrongSequence, BodyTooLarge, StreamMissing, Unavailable, BusTimeout (it may be stored), Refused.
        """
        ...

    async def last(self, stream: str, subject: str, timeout_s: float = 2.0) -> Message | None:
        """The last message of a subject, as the stream's leader has it."""
        ...

    async def purge(self, stream: str, subject: str | None = None, timeout_s: float = 5.0) -> int:
        """Remove the messages under a subject filter, or all; answers how many."""
        ...

    async def follow(
        self,
        stream: str,
        subjects: Sequence[str],
        *,
        on_message: MessageCallback,
        on_caught_up: SignalCallback = nothing,
        on_gap: SignalCallback = nothing,
        headers_only: bool = False,
    ) -> Follower:
        """The last message of each subject under the filters, then each new one, in the order of the stream.

        `on_caught_up` comes when everything stored has been delivered. Whenever messages may have been missed (reconnect,
        hole in the sequence, server restart) `on_gap` comes, all is delivered again, and `on_caught_up` once more. Callbacks
        run in the event loop and must not block. Following a stream that does not exist (yet) waits for it.
        """
        ...
