"""The product's processes: gateways and controllers, wired as their own __main__ wires them, over simulated connections.

A slot is a place for one process, as a Deployment's replica is: who dies there is started again, under a new replica id.

What may live here: wiring and life. Nothing that the product should do itself.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from random import Random
from typing import TYPE_CHECKING, Any

from raybus.bus import streams
from raybus.kube.errors import KubeError
from raybus.kube.events import EventRecorder
from raybus.observe.metrics import ControllerMetrics
from raybus.runtime.replica import Parts, Replica
from raybus_cluster_ctrl import act as cluster_act
from raybus_cluster_ctrl.__main__ import controller_spec as cluster_spec
from raybus_cluster_ctrl.settings import ClusterCtrlSettings
from raybus_gateway.gateway import Gateway
from raybus_gateway.metrics import GatewayMetrics
from raybus_gateway.settings import GatewaySettings
from raybus_gateway.term import TermSettings
from raybus_job_ctrl.__main__ import controller_spec as job_spec
from raybus_job_ctrl.act import RayActions
from raybus_job_ctrl.probe import JobProber, RayAccess
from raybus_job_ctrl.settings import JobCtrlSettings
from simulation.sim.loop import Process
from simulation.sim.ports.decisions import asked_twice
from simulation.sim.ports.kube import SimKube
from simulation.sim.ports.ray import SimDashboards

if TYPE_CHECKING:
    from simulation.sim.world import World

RESTART_S = (1.0, 4.0)
Main = Callable[["Slot", Process], Awaitable[None]]


class Slot:
    """`replica` is the Gateway or Replica that runs here, None before it is up."""

    def __init__(self, world: World, name: str, main: Main) -> None:
        self.world, self.name, self._main = world, name, main
        self.process: Process | None = None
        self.replica: Any = None
        self.replica_id = ""
        self.clock_offset_s = 0.0
        self.down = False  # by a user's wish: not started again
        self._starts = 0

    def start(self) -> None:
        if self.process is not None and self.process.alive:
            return
        self._starts += 1
        self.clock_offset_s = 0.0
        self.replica = None
        self.process = Process(self.world.loop, self.name)
        self.replica_id = f"{self.name}-{self._starts:04x}"
        self.world.slots_by_process[self.process] = self
        self.world.story.tell(self.name, f"starts as {self.replica_id}")
        self.process.spawn(self._run(self.process))

    async def _run(self, process: Process) -> None:
        try:
            await self._main(self, process)
        except (KubeError, streams.BusError, TimeoutError) as error:
            self.world.story.tell(self.name, f"ends: {error!r}")
        self.kill()

    def kill(self, again_after: float | None = None) -> None:
        """kill -9; Kubernetes starts it again."""
        if self.process is None or not self.process.alive:
            return
        self.world.story.mark("kill", self.name)
        self.world.story.tell(self.name, "is dead")
        self.process.kill()
        self.world.nats.forget(self.process)
        self.replica = None
        wait = self.world.between(*RESTART_S) if again_after is None else again_after
        self.world.outside.call_later(wait, self.start)

    async def stop(self, again_after: float) -> None:
        """SIGTERM, as a rolling update sends it: hand over, then end. Runs in the slot's own process."""
        replica, process = self.replica, self.process
        if replica is None or process is None or not process.alive:
            return
        self.world.story.tell(self.name, "is asked to stop")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(30.0):
                await (replica.stop() if isinstance(replica, Gateway) else replica.hand_over())
        if self.process is process:
            self.kill(again_after)


async def gateway(slot: Slot, process: Process) -> None:
    world = slot.world
    settings = TermSettings(
        replica=slot.replica_id,
        partitions=world.partitions,
        generation=1,
        stream_replicas=1,
        history_bytes=1 << 30,
        relist_s=GatewaySettings.model_fields["relist_s"].default,
    )
    bus = world.nats.connect(process)
    await bus.connect()
    active = Gateway(
        bus,
        SimKube(world, process),
        settings,
        GatewayMetrics(),
        clock=world.clock_of(process),
        chance=Random(world.chance.getrandbits(32)),
    )
    async with asyncio.timeout(60.0):
        await active.start()
    slot.replica = active
    await world.for_ever()


CLUSTER_SETTINGS = ClusterCtrlSettings(replica_id="simulated", workers=4)


async def cluster_ctrl(slot: Slot, process: Process) -> None:
    settings = CLUSTER_SETTINGS.model_copy(update={"replica_id": slot.replica_id})
    kube = SimKube(slot.world, process)
    parts = Parts(handlers=cluster_act.handlers(kube, slot.world.api.env.chance.randbytes))
    await _controller(slot, process, cluster_spec(settings.policy()), settings, kube, parts)


JOB_SETTINGS = JobCtrlSettings(replica_id="simulated", workers=4)


async def job_ctrl(slot: Slot, process: Process) -> None:
    settings = JOB_SETTINGS.model_copy(update={"replica_id": slot.replica_id})
    kube = SimKube(slot.world, process)
    access = RayAccess(SimDashboards(slot.world, process), kube)
    parts = Parts(handlers=RayActions(access).handlers(), prober=JobProber(access))
    await _controller(slot, process, job_spec(settings.policy()), settings, kube, parts)


async def _controller(slot: Slot, process: Process, spec: Any, settings: Any, kube: SimKube, parts: Parts) -> None:
    world, clock = slot.world, slot.world.clock_of(process)
    spec = asked_twice(world, slot.name, spec)
    bus = world.nats.connect(process)
    await bus.connect()
    await kube.cluster_uid()
    found = await streams.wait_for_settings(bus, spec.name, timeout_s=settings.nats_wait_s)
    async with EventRecorder(kube, f"{spec.name}-controller", settings.replica_id, clock=clock.now) as events:
        metrics = ControllerMetrics(spec.name)
        replica = Replica(
            spec, settings, metrics, bus=bus, kube=kube, events=events, found=found, parts=parts, clock=clock
        )
        async with replica:
            slot.replica = replica
            await world.for_ever()
