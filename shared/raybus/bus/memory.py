"""The port in memory: the semantics of a real server without one, for tests, simulations and one-process runs.

A MemoryServer holds the streams; each MemoryBus is one connection to it. Beside the port there are hooks that do what happens
to real servers and connections: going down, losing data, losing an answer, losing a delivery.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from raybus.bus.clock import SYSTEM, Clock
from raybus.bus.memory_server import MemoryServer, subject_matches
from raybus.bus.transport import (
    BusStats,
    ConnectionCallback,
    Message,
    MessageCallback,
    SignalCallback,
    StreamConfig,
    StreamInfo,
    Unavailable,
    nothing,
)

__all__ = ["MemoryBus", "MemoryServer"]


class MemoryBus:
    """One connection. Without a server of its own it makes one, which `server` names."""

    def __init__(self, server: MemoryServer | None = None, *, clock: Clock = SYSTEM) -> None:
        self.server = server or MemoryServer(clock)
        self._callbacks: list[ConnectionCallback] = []
        self._followers: list[MemoryFollower] = []
        self._open = False
        self._cut = False
        self._was_connected = False
        self.stats = BusStats()

    @property
    def connected(self) -> bool:
        return self._open and not self._cut and self.server.up

    @property
    def refusal(self) -> str:
        return ""

    @property
    def max_payload(self) -> int:
        return self.server.max_payload

    async def connect(self, timeout_s: float = 30.0) -> None:  # noqa: ARG002 - memory is there at once
        self._open = True
        self.server.buses.append(self)
        self._was_connected = self.connected

    async def close(self) -> None:
        for follower in list(self._followers):
            await follower.close()
        self._open = False
        if self in self.server.buses:
            self.server.buses.remove(self)
        if not self.server.buses:
            self.server.shut()

    def on_connection(self, callback: ConnectionCallback) -> Callable[[], None]:
        self._callbacks.append(callback)

        def off() -> None:
            if callback in self._callbacks:
                self._callbacks.remove(callback)

        return off

    def cut(self) -> None:
        """Lose this connection alone; `heal` brings it back."""
        self._cut = True
        self.connection_changed()

    def heal(self) -> None:
        self._cut = False
        self.connection_changed()

    def connection_changed(self) -> None:
        if self.connected == self._was_connected:
            return
        self._was_connected = self.connected
        self.stats.disconnects += not self.connected
        for callback in list(self._callbacks):
            callback(self.connected)

    def skip_delivery(self) -> None:
        """Lose one delivered message on its way to each follower: the next one shows a hole."""
        for follower in self._followers:
            follower.skip()

    async def _call(self, what: str) -> None:
        await asyncio.sleep(0)
        if not self.connected:
            raise Unavailable(f"not connected: {what} was not sent")

    async def ensure_stream(self, config: StreamConfig) -> StreamInfo:
        await self._call(config.name)
        return self.server.ensure(config)

    async def stream_info(self, name: str, timeout_s: float = 2.0) -> StreamInfo:  # noqa: ARG002 - answers at once
        await self._call(name)
        return self.server.info(name)

    async def publish(
        self,
        subject: str,
        body: bytes,
        headers: Mapping[str, str] | None = None,
        *,
        expect_last_seq: int | None = None,
        ttl_s: int | None = None,
        timeout_s: float = 2.0,  # noqa: ARG002 - answers at once
    ) -> int:
        await self._call(subject)
        return self.server.store(subject, body, headers or {}, expect_last_seq, ttl_s)

    async def last(self, stream: str, subject: str, timeout_s: float = 2.0) -> Message | None:  # noqa: ARG002 - the port's signature
        await self._call(subject)
        held = self.server.stream(stream).subjects.get(subject)
        return held[-1] if held else None

    async def purge(self, stream: str, subject: str | None = None, timeout_s: float = 5.0) -> int:  # noqa: ARG002 - the port's signature
        await self._call(stream)
        return self.server.purge(stream, subject or ">")

    async def follow(
        self,
        stream: str,
        subjects: Sequence[str],
        *,
        on_message: MessageCallback,
        on_caught_up: SignalCallback = nothing,
        on_gap: SignalCallback = nothing,
        headers_only: bool = False,
    ) -> MemoryFollower:
        follower = MemoryFollower(
            self,
            stream,
            tuple(subjects),
            on_message=on_message,
            on_caught_up=on_caught_up,
            on_gap=on_gap,
            headers_only=headers_only,
        )
        self._followers.append(follower)
        self.server.followers.append(follower)
        follower.start()
        return follower

    def forget(self, follower: MemoryFollower) -> None:
        self._followers.remove(follower)
        self.server.followers.remove(follower)


class MemoryFollower:
    """See Bus.follow. Delivers in turns of the event loop, never inside the publisher's call."""

    def __init__(
        self,
        bus: MemoryBus,
        stream: str,
        subjects: tuple[str, ...],
        *,
        on_message: MessageCallback,
        on_caught_up: SignalCallback,
        on_gap: SignalCallback,
        headers_only: bool,
    ) -> None:
        self._bus = bus
        self._stream = stream
        self._subjects = subjects
        self._on_message = on_message
        self._on_caught_up = on_caught_up
        self._on_gap = on_gap
        self._headers_only = headers_only
        self._round = 0
        self._reading = False  # a read from the start is under way or done; before it live messages are not wanted
        self._caught_up = False
        self._closed = False
        self._skip = False
        self._off: Callable[[], None] | None = None

    @property
    def caught_up(self) -> bool:
        return self._caught_up

    def start(self) -> None:
        self._off = self._bus.on_connection(self._connection)
        self._read()

    def restart(self, why: str = "asked") -> None:
        if self._closed:
            return
        self._bus.stats.rereads[why] += 1
        self._caught_up = self._reading = False
        self._on_gap()
        self._read()

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._caught_up = False
        if self._off:
            self._off()
        self._bus.forget(self)

    def skip(self) -> None:
        self._skip = True

    def _connection(self, connected: bool) -> None:
        if connected:
            self.restart("reconnect")

    def stream_made(self, name: str) -> None:
        if name == self._stream and not self._reading:
            self._read()

    def stream_lost(self, name: str) -> None:
        if name == self._stream:
            self.restart("ended")

    def _read(self) -> None:
        self._round += 1
        self._reading = False
        if not self._bus.connected or not self._bus.server.has(self._stream):
            return  # the connection's return or the stream's making starts it again
        self._reading = True
        loop = asyncio.get_running_loop()
        for message in self._bus.server.stream(self._stream).last_per_subject(self._subjects):
            loop.call_soon(self._deliver, self._round, message)
        loop.call_soon(self._finish, self._round)

    def offer(self, name: str, message: Message) -> None:
        """A message was stored; called by the server."""
        wanted = name == self._stream and self._reading and self._bus.connected and not self._closed
        if not wanted or not any(subject_matches(pattern, message.subject) for pattern in self._subjects):
            return
        loop = asyncio.get_running_loop()
        if self._skip:
            self._skip = False
            loop.call_soon(self._hole, self._round)
        else:
            loop.call_soon(self._deliver, self._round, message)

    def _hole(self, of_round: int) -> None:
        if of_round == self._round:
            self.restart("hole")

    def _deliver(self, of_round: int, message: Message) -> None:
        if of_round != self._round or self._closed or not self._bus.connected:
            return
        self._on_message(message._replace(body=b"") if self._headers_only else message)

    def _finish(self, of_round: int) -> None:
        if of_round == self._round and not self._closed and self._bus.connected:
            self._caught_up = True
            self._on_caught_up()
