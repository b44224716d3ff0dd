"""The planted defects: small patches of the product, each of which an invariant has to catch.

A defect is a function with `@defect("name", "X6", "core")` that replaces something in the product's modules; the docstring says
what goes wrong. It runs in a process of its own, before anything is booted.

What may live here: how defects are registered and applied.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module


@dataclass(frozen=True, slots=True)
class Defect:
    """`invariants` are those that may catch it; `scenario` is where it shows, with faults of `groups`."""

    name: str
    invariants: frozenset[str]
    scenario: str
    groups: frozenset[str]
    plant: Callable[[], None]

    @property
    def about(self) -> str:
        return " ".join((self.plant.__doc__ or "").split())


ALL: dict[str, Defect] = {}


def defect(
    name: str, invariants: str, scenario: str = "core", *, groups: str = "ABCDEFGHI"
) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Register a defect; `invariants` are ids, separated by spaces, `groups` the letters of faults that may show it."""

    def register(plant: Callable[[], None]) -> Callable[[], None]:
        assert name not in ALL, name
        ALL[name] = Defect(name, frozenset(invariants.split()), scenario, frozenset(groups), plant)
        return plant

    return register


def apply(name: str) -> None:
    ALL[name].plant()


for _module in ("clusters", "jobs", "news"):
    import_module(f"simulation.sim.defects.{_module}")
