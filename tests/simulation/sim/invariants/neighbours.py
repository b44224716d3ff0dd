"""X11: trouble that is confined to one object delays the passes of others by 1 s at most.

What may live here: what holds between objects that have nothing to do with each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulation.sim.invariants.common import is_product
from simulation.sim.invariants.violation import Violation
from simulation.sim.scenarios.base import USER
from simulation.sim.world import Watcher

if TYPE_CHECKING:
    from simulation.sim.actors.apiserver import Change
    from simulation.sim.world import World

DELAY_S = 1.0
WAYS = 30  # messages one after the other, from a change to the status that answers it


class Undelayed(Watcher):
    """While one RayCluster is sick, what users ask of another one is done, and said in its status, in time."""

    def __init__(self) -> None:
        self._asked: dict[tuple[str, int], float] = {}  # since when, by uid and generation

    def on_change(self, world: World, change: Change) -> None:
        if change.resource != "rayclusters.ray.io" or not world.sick or change.name == world.sick:
            return
        meta = change.obj["metadata"]
        if change.writer.who == USER:
            self._asked[meta["uid"], meta["generation"]] = world.loop.now
        elif is_product(change.writer.who):
            seen = int((change.obj.get("status") or {}).get("observedGeneration") or 0)
            self._asked = {
                (uid, generation): since
                for (uid, generation), since in self._asked.items()
                if uid != meta["uid"] or generation > seen
            }

    def on_second(self, world: World) -> None:
        limit = DELAY_S + WAYS * world.slowest
        for (_, generation), since in self._asked.items() if world.sick else ():
            if world.loop.now - since > limit:
                raise Violation(
                    "X11", f"generation {generation} is not answered after {limit:.1f} s, beside a sick one"
                )


ALL: tuple[type[Watcher], ...] = (Undelayed,)
