"""What happens to the world at a moment of its own choosing: to processes, to NATS, to pods, by people.

Every write that takes effect is a moment, and so is every two seconds.

What may live here: what each kind of fault of class `moment` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from simulation.sim.actors.apiserver import Change, Json, Refused
from simulation.sim.actors.kubelet import path_of

if TYPE_CHECKING:
    from simulation.sim.actors.services import Slot
    from simulation.sim.world import World

WHO = "somebody"
TICK_S = 2.0


class Trouble:
    def __init__(self, world: World) -> None:
        self._world = world
        self._touched = 0
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
            getattr(self, kind.replace("-", "_"))()

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

    # Pods

    def pods(self, node_type: str, *, running: bool = True) -> list[Json]:
        return [
            pod
            for pod in self._world.api.all("pods")
            if (pod["metadata"].get("labels") or {}).get("ray.io/node-type") == node_type
            and "deletionTimestamp" not in pod["metadata"]
            and (not running or pod["status"].get("phase") == "Running")
        ]

    def evict_worker(self) -> None:
        for pod in self.pods("worker")[:1]:
            self._world.kubelet.evict(pod)

    def evict_head(self) -> None:
        for pod in self.pods("head")[:1]:
            self._world.kubelet.evict(pod)

    def crash_worker(self) -> None:
        for pod in self.pods("worker")[:1]:
            self._world.kubelet.crash(pod)

    def unready_head(self) -> None:
        for pod in self.pods("head")[:1]:
            self._world.kubelet.unready(pod, 6.0)

    def stuck_pod(self) -> None:
        for pod in self.pods("worker", running=False)[-1:]:
            self._world.kubelet.stuck.add(pod["metadata"]["name"])

    def delete_worker(self) -> None:
        for pod in self.pods("worker", running=False)[:1]:
            self.ask("DELETE", path_of(pod))

    def delete_head(self) -> None:
        for pod in self.pods("head", running=False)[:1]:
            self.ask("DELETE", path_of(pod))

    # People

    def ask(self, method: str, path: str, body: Any = None) -> Json | None:
        try:
            return self._world.api.ask(WHO, method, path, body)
        except Refused as refused:
            self._world.story.tell(WHO, f"{method} {path}: {refused}")
            return None

    def annotate(self, path: str) -> None:
        self._touched += 1
        self.ask("PATCH", path, {"metadata": {"annotations": {"example.com/touched": str(self._touched)}}})

    def touch(self) -> None:
        for cluster in self._world.api.all("rayclusters.ray.io")[:1]:
            meta = cluster["metadata"]
            self.annotate(f"/apis/ray.io/v1/namespaces/{meta['namespace']}/rayclusters/{meta['name']}")

    def something_changes(self) -> None:
        """Whatever was just read is old now."""
        self.delete_worker()

    def relabel_pod(self) -> None:
        for pod in self.pods("worker", running=False)[:1]:
            self.ask("PATCH", path_of(pod), {"metadata": {"labels": {"ray.io/cluster": None}}})

    def delete_service(self) -> None:
        for service in self._world.api.all("services"):
            meta = service["metadata"]
            if (meta.get("labels") or {}).get("ray.io/cluster"):
                self.ask("DELETE", f"/api/v1/namespaces/{meta['namespace']}/services/{meta['name']}")
