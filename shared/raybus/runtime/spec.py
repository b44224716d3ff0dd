"""What a controller is, as data: the pure functions of one service, bound to its policy, and what they may ask for."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Generic, Protocol, TypeVar

from raybus.decide.actions import Action
from raybus.decide.outcome import Outcome
from raybus.decide.plan import Plan
from raybus.decide.routes import Route
from raybus.decide.tree import Tree
from raybus.domain.kinds import Kind

W = TypeVar("W")
W_co = TypeVar("W_co", covariant=True)
W_contra = TypeVar("W_contra", contravariant=True)


class Observe(Protocol[W_co]):
    """Reads a tree into the world that decisions are made on."""

    def __call__(self, tree: Tree, /) -> W_co: ...


class Decide(Protocol[W_contra]):
    """What to do now. `now` is given by name, so that `functools.partial(decide, policy=policy)` fits."""

    def __call__(self, world: W_contra, /, *, now: datetime) -> Plan: ...


class Conclude(Protocol[W_contra]):
    """The status (and what else follows) after the actions of the pass, failed ones included; given the world after them."""

    def __call__(self, world: W_contra, outcomes: tuple[Outcome, ...], /, *, now: datetime) -> Plan: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSpec(Generic[W]):
    """`name` is the controller's in subjects and leases ("raycluster"). `actions` are all it may carry out."""

    name: str
    root_kind: Kind
    routes: tuple[Route, ...]
    observe: Observe[W]
    decide: Decide[W]
    conclude: Conclude[W]
    actions: tuple[type[Action], ...]

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of objects in a tree, the root's included."""
        return frozenset(route.kind.kind for route in self.routes)
