"""The NATS server: the product's own in-memory twin, and what happens to it.

What may live here: its life. What it answers stands in raybus.bus.memory_server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raybus.bus.memory import MemoryBus, MemoryServer
from raybus.bus.streams import OBJECT_STREAMS, bucket_stream, lease_bucket
from simulation.sim.loop import Process
from simulation.sim.ports.bus import SimBus

if TYPE_CHECKING:
    from simulation.sim.world import World

ROLLED_BACK = 6  # acknowledged messages that a power failure takes


class Nats:
    def __init__(self, world: World) -> None:
        self._world = world
        self.process = Process(world.loop, "nats")
        self.server = MemoryServer(world.clock_of(self.process))
        self.buses: dict[Process, SimBus] = {}
        # The server ends its timers when its last connection goes.
        self.server.buses.append(MemoryBus(self.server))

    def connect(self, process: Process) -> SimBus:
        bus = self.buses[process] = SimBus(self._world, process)
        return bus

    def forget(self, process: Process) -> None:
        """The process died, and its connection with it."""
        if (bus := self.buses.pop(process, None)) is not None:
            bus.lost()

    def _do(self, what: str, call: object, *arguments: object) -> None:
        self._world.story.tell("nats", what)
        self.process.context.copy().run(call, *arguments)  # type: ignore[arg-type] # callables of many shapes

    def disconnect(self, bus: SimBus, seconds: float) -> None:
        """One connection breaks and comes back."""
        self._do(f"loses the connection of {bus._process.name} for {seconds:g} s", bus.cut)
        self.process.call_later(seconds, bus.heal)

    def outage(self, seconds: float) -> None:
        if self.server.up:
            self._do(f"is away for {seconds:g} s", self.server.stop)
            self.process.call_later(seconds, self.up)

    def up(self) -> None:
        if not self.server.up:
            self._do("is back", self.server.start)

    def lose_objects(self, controller: str) -> None:
        stream = OBJECT_STREAMS[controller]
        self._do(f"stream {stream} is deleted", self.server.lose_stream, stream)

    def lose_leases(self, controller: str) -> None:
        stream = bucket_stream(lease_bucket(controller))
        self._do(f"stream {stream} is deleted", self.server.lose_stream, stream)

    def roll_back(self, controller: str) -> None:
        """As after a power failure: the server restarts without its last messages."""
        stream = OBJECT_STREAMS[controller]
        if not self.server.up or not self.server.has(stream):
            return
        last = self.server.info(stream).last_seq
        self.outage(1.0)
        self._do(f"stream {stream} has lost what came after {max(last - ROLLED_BACK, 0)}", self._rolled, stream, last)

    def _rolled(self, stream: str, last: int) -> None:
        self.server.roll_back(stream, max(last - ROLLED_BACK, 0))

    def lose_everything(self) -> None:
        self.outage(1.0)
        for stream in sorted(self.server._streams):
            self._do(f"stream {stream} is lost", self.server.lose_stream, stream)

    def heal(self) -> None:
        self.up()
        for bus in self.buses.values():
            self._do("connections are whole", bus.heal)
