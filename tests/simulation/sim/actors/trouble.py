"""What happens to the world at a moment of its own choosing: to processes and to NATS. Pods and objects are in mishaps.py.

Every write that takes effect is a moment, and so is every two seconds.

What may live here: when a moment is, and what the faults of class `moment` do to what runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulation.sim.actors.apiserver import Change
from simulation.sim.actors.mishaps import WHO

if TYPE_CHECKING:
    from simulation.sim.actors.services import Slot
    from simulation.sim.world import World

TICK_S = 2.0


class Trouble:
    def __init__(self, world: World) -> None:
        self._world = world
        self.aim_at("raycluster")

    def aim_at(self, controller: str) -> None:
        """Whose stream, leases and replicas are meant from now on."""
        self._controller = controller
        self._service = {"raycluster": "cluster-ctrl", "rayjob": "job-ctrl"}[controller]

    def on_change(self, change: Change) -> None:
        if self._world.faults.active and change.resource != "events" and change.writer.who != WHO:
            # Not inside the request that made the change.
            self._world.outside.call_later(self._world.latency(), self._moment, "write")

    def start(self) -> None:
        """Moments come by time as well."""
        self._world.outside.call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        if self._world.faults.active:
            self._moment("tick")
            self.start()

    def _moment(self, what: str) -> None:
        kind = self._world.faults.at("moment", what)
        if kind:
            self._world.story.tell("fault", kind)
            self._world.story.mark("moment", kind)
            name = kind.replace("-", "_")
            getattr(self if hasattr(self, name) else self._world.mishaps, name)()

    # NATS

    def nats_restart(self) -> None:
        self._world.nats.outage(1.0)

    def nats_outage(self) -> None:
        self._world.nats.outage(16.0)

    def nats_loses_objects(self) -> None:
        self._world.nats.lose_objects(self._controller)

    def nats_loses_leases(self) -> None:
        self._world.nats.lose_leases(self._controller)

    def nats_rolls_back(self) -> None:
        self._world.nats.roll_back(self._controller)

    def nats_empty(self) -> None:
        self._world.nats.lose_everything()

    # Processes

    def _slots(self, service: str) -> list[Slot]:
        return [slot for slot in self._world.slots if slot.name.startswith(service)]

    def _owner(self) -> Slot:
        """The replica that owns a partition, as far as one does; the one with most of them."""
        slots = self._slots(self._service)
        return max(slots, key=lambda slot: len(slot.replica.leases.owned()) if slot.replica else -1)

    def _active_gateway(self) -> Slot:
        slots = self._slots("gateway")
        return next((slot for slot in slots if slot.replica is not None and slot.replica.active), slots[0])

    def kill_controller(self) -> None:
        self._owner().kill()

    def kill_all_controllers(self) -> None:
        for slot in self._slots(self._service):
            slot.kill()

    def kill_gateway(self) -> None:
        self._active_gateway().kill()

    def kill_gateways(self) -> None:
        for slot in self._slots("gateway"):
            slot.kill()

    def stop_controller(self) -> None:
        slot = self._owner()
        if slot.process is not None and slot.process.alive:
            slot.process.spawn(slot.stop(5.0))

    def freeze_controller(self) -> None:
        self._freeze(self._owner())

    def freeze_gateway(self) -> None:
        self._freeze(self._active_gateway())

    def _freeze(self, slot: Slot) -> None:
        if slot.process is not None and slot.process.alive and not slot.process.frozen:
            self._world.freeze(slot.process, 20.0)

    def clock_ahead(self) -> None:
        self._owner().clock_offset_s = 90.0

    def clock_behind(self) -> None:
        self._owner().clock_offset_s = -90.0

    def tick_ahead(self) -> None:
        self._owner().clock_offset_s = 1.0

    def tick_behind(self) -> None:
        self._owner().clock_offset_s = -1.0
