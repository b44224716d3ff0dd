"""X9: a decision is a function of what is seen and of the time, and asks for nothing once all is as wanted.

The first half stands in ports/decisions.py, where decisions are asked.

What may live here: how decisions are asked once more at the end.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from raybus.runtime.replica import Replica
from simulation.sim.invariants.violation import Violation
from simulation.sim.world import Watcher

if TYPE_CHECKING:
    from simulation.sim.world import World


class NothingLeft(Watcher):
    """When nobody has written for a while, no owner of a tree would do anything in it."""

    def at_end(self, world: World) -> None:
        for slot in world.slots:
            if not isinstance(slot.replica, Replica):
                continue
            mirror, spec = slot.replica.mirror, slot.replica.controller.spec
            facts = slot.replica.controller.probes.facts if slot.replica.controller.probes else lambda _key: {}
            for key in mirror.roots():
                tree = mirror.tree(key)
                assert tree is not None
                plan = spec.decide(spec.observe(replace(tree, facts=facts(key))), now=world.now())
                if plan.steps:
                    raise Violation("X9", f"{slot.name} has come to rest, and would still do {plan.steps}")


ALL: tuple[type[Watcher], ...] = (NothingLeft,)
