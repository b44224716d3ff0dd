"""The product's decisions, asked by a simulated controller.

What may live here: looking on while decisions are taken.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from simulation.sim.invariants.violation import Violation

if TYPE_CHECKING:
    from simulation.sim.world import World

EVERY = 5  # passes; asking twice costs


def asked_twice(world: World, who: str, spec: Any) -> Any:
    """X9: the spec of a controller whose every fifth decision is taken again from the same tree and must be the same."""

    def decide(seen: Any, /, **given: Any) -> Any:
        plan = spec.decide(seen, **given)
        world.decisions += 1
        if world.decisions % EVERY == 0 and (other := spec.decide(seen, **given)) != plan:
            world.violate(Violation("X9", f"{who} decides otherwise when asked again: {plan.steps} and {other.steps}"))
        return plan

    return replace(spec, decide=decide)
