"""Kubernetes' own controllers that Ray's objects need: localkube's garbage collector and Job controller, as they are.

What may live here: their start.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from raybus_localkube.controllers.manager import Manager
from raybus_localkube.controllers.run import build
from simulation.sim.loop import Process
from simulation.sim.ports.kube import SimKube

if TYPE_CHECKING:
    from simulation.sim.world import World

NAMES = ("garbage-collector", "jobs")


class Builtin:
    """Nothing goes wrong with them, but that they take their time."""

    def __init__(self, world: World) -> None:
        self.process = Process(world.loop, "kubernetes")
        kube = SimKube(world, self.process, faulty=False)
        self.manager = Manager(kube, build(NAMES), clock=world.clock_of(self.process), chance=Random(1))

    def start(self) -> None:
        self.process.spawn(self.manager.run())
