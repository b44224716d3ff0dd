"""The connection of a simulated process to NATS: the in-memory server of the product, at the end of a network.

Whatever the server does, it does in its own process, so that the death of a client takes nothing with it that had arrived.

What may live here: what can happen to a message on its way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from raybus.bus.memory import MemoryBus, MemoryServer
from raybus.bus.transport import (
    BusTimeout,
    ConnectionCallback,
    Follower,
    Message,
    MessageCallback,
    SignalCallback,
    StreamConfig,
    StreamInfo,
    Unavailable,
    nothing,
)
from simulation.sim.loop import Process

if TYPE_CHECKING:
    from simulation.sim.world import World

LAG_S = 8.0
NOTICED_S = 5.0  # until a hole is noticed where nothing follows it


def sort_of(subject: str) -> str:
    """A short name of what a subject carries, without the names of objects in it."""
    parts = subject.split(".")
    if parts[0] == "$KV":
        return f"{parts[1]}.{parts[2]}"
    if parts[1] == "hist":
        return "history"
    return f"{parts[1]}.{parts[8]}" if parts[3] == "obj" else f"{parts[1]}.mark"


class SimBus(MemoryBus):
    """One connection of `process`. The server's side runs in `nats`."""

    server: MemoryServer

    def __init__(self, world: World, process: Process) -> None:
        super().__init__(world.nats.server, clock=world.clock_of(process))
        self._world, self._process, self._nats = world, process, world.nats.process

    async def connect(self, timeout_s: float = 30.0) -> None:
        async with asyncio.timeout(timeout_s):
            while not self.server.up:
                await asyncio.sleep(0.5)
        self._at_server(self._connect_now)

    def _connect_now(self) -> None:
        _at_once(super().connect())

    def lost(self) -> None:
        """The process has died."""
        self._followers, followers = [], self._followers
        for follower in followers:
            self.server.followers.remove(follower)
        self._open = False
        self._callbacks.clear()
        if self in self.server.buses:
            self.server.buses.remove(self)

    def _at_server(self, call: Callable[..., Any], *arguments: Any) -> Any:
        return self._nats.context.copy().run(call, *arguments)

    def on_connection(self, callback: ConnectionCallback) -> Callable[[], None]:
        return super().on_connection(lambda connected: self._post(callback, connected))

    def _post(self, callback: Callable[..., object], *arguments: Any) -> None:
        if self._process.alive:
            self._process.call_later(self._world.latency(), callback, *arguments)

    # Calls

    async def _call(self, what: str) -> None:
        await self._world.travel()
        if not self.connected:
            raise Unavailable(f"not connected: {what} was not sent")

    async def _asked(self, what: str, timeout_s: float) -> None:
        fault = self._world.faults.at("bus.ask", f"{what} @{self._process.name}")
        if fault:
            self._world.story.tell("fault", f"{fault}: {self._process.name} asks {what}")
        if fault == "unavailable":
            raise Unavailable(f"not connected: {what} was not sent")
        if fault == "lost":
            await asyncio.sleep(timeout_s)
            raise BusTimeout(f"no answer to {what}")
        await self._call(what)

    async def ensure_stream(self, config: StreamConfig) -> StreamInfo:
        await self._asked(config.name, 2.0)
        found = self._at_server(self.server.ensure, config)
        await self._world.travel()
        return found

    async def stream_info(self, name: str, timeout_s: float = 2.0) -> StreamInfo:
        await self._asked(name, timeout_s)
        found = self.server.info(name)
        await self._world.travel()
        return found

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
        world = self._world
        fault = world.faults.at("bus.publish", f"{sort_of(subject)} @{self._process.name}")
        if fault:
            world.story.tell("fault", f"{fault}: {self._process.name} publishes {subject}")
            await self._on_the_way(fault, subject, timeout_s)
        await self._call(subject)
        seq: int = self._at_server(self.server.store, subject, body, headers or {}, expect_last_seq, ttl_s)
        if fault == "crash-after":
            await world.dies(self._process)
        if fault == "lost-answer":
            await asyncio.sleep(timeout_s)
            raise BusTimeout(f"no answer to {subject}")
        await world.travel()
        return seq

    async def _on_the_way(self, fault: str, subject: str, timeout_s: float) -> None:
        match fault:
            case "lost":
                await asyncio.sleep(timeout_s)
                raise BusTimeout(f"no answer to {subject}")
            case "unavailable":
                raise Unavailable(f"not connected: {subject} was not sent")
            case "slow":
                await asyncio.sleep(min(1.5, timeout_s * 0.75))
            case "crash-before":
                await self._world.dies(self._process)

    async def last(self, stream: str, subject: str, timeout_s: float = 2.0) -> Message | None:
        await self._asked(f"last {sort_of(subject)}", timeout_s)
        held = self.server.stream(stream).subjects.get(subject)
        await self._world.travel()
        return held[-1] if held else None

    async def purge(self, stream: str, subject: str | None = None, timeout_s: float = 5.0) -> int:
        await self._asked(stream, timeout_s)
        return int(self._at_server(self.server.purge, stream, subject or ">"))

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
        await self._world.travel()
        line = _Line(self, stream, on_message, on_caught_up, on_gap)
        follow = super().follow(
            stream,
            subjects,
            on_message=line.take,
            on_caught_up=line.finish,
            on_gap=line.gap,
            headers_only=headers_only,
        )
        line.follower = self._at_server(_at_once, follow)
        return line


class _Line:
    """What a follower is given travels in order, each piece with its own delay."""

    def __init__(
        self, bus: SimBus, stream: str, on_message: MessageCallback, on_caught_up: SignalCallback, on_gap: SignalCallback
    ) -> None:  # fmt: skip
        self._bus, self._world, self._process = bus, bus._world, bus._process
        self._place = f"{stream} @{self._process.name}"
        self._on_message, self._on_caught_up, self._on_gap = on_message, on_caught_up, on_gap
        self._at = 0.0
        self._holed = False
        self._caught_up = False
        self._closed = False
        self.follower: Any = None

    def _post(self, callback: Callable[..., object], *arguments: Any, lag: float = 0.0) -> None:
        self._at = max(self._at, self._world.loop.now + self._world.latency() + lag)
        self._process.loop.call_at(self._at, self._arrive, callback, *arguments, context=self._process.context)

    def _arrive(self, callback: Callable[..., object], *arguments: Any) -> None:
        if not self._closed:
            callback(*arguments)

    def take(self, message: Message) -> None:
        fault = self._world.faults.at("bus.deliver", self._place)
        if fault:
            self._world.story.tell("fault", f"{fault}: delivery of {message.subject} to {self._process.name}")
        if fault == "hole" or self._holed:
            if self._holed:
                self._notice()
            else:
                self._holed = True
                self._process.call_later(NOTICED_S, self._notice)
            return
        if fault == "disconnect":
            self._world.nats.disconnect(self._bus, 2.0)
            return
        self._post(self._on_message, message, lag=LAG_S if fault == "lag" else 0.0)

    def _notice(self) -> None:
        if self._holed and not self._closed:
            self._holed = False
            self._bus._at_server(self.follower.restart)

    def finish(self) -> None:
        self._post(self._now_caught_up)

    def _now_caught_up(self) -> None:
        self._caught_up = True
        self._on_caught_up()

    def gap(self) -> None:
        self._holed = False
        self._post(self._now_gap)

    def _now_gap(self) -> None:
        self._caught_up = False
        self._on_gap()

    @property
    def caught_up(self) -> bool:
        return self._caught_up

    def restart(self) -> None:
        self._bus._at_server(self.follower.restart)

    async def close(self) -> None:
        self._closed = True
        self._bus._at_server(_at_once, self.follower.close())


def _at_once(work: Any) -> Any:
    """The result of a coroutine that never waits."""
    try:
        work.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("the server waits")
