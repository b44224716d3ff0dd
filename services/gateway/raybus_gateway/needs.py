"""What to list and watch so that all declared routes are served. Pure: no clock, nothing that waits.

A kind is watched once for all routes that want it, with the label selector on which all of them agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from raybus.bus.routing import Requirement, requirements
from raybus.decide.routes import Route, Via
from raybus.domain import kinds, labels
from raybus.domain.kinds import Kind

Routes = Mapping[str, tuple[Route, ...]]
"""The routes by controller ("rayjob"), as the union over its live sessions."""

LINGER_S = 300.0


class Scope(NamedTuple):
    """One list+watch: a kind in one namespace, or in all with an empty one."""

    kind: str
    namespace: str


@dataclass(frozen=True, slots=True)
class Watch:
    kind: Kind
    namespace: str
    selector: str

    @property
    def scope(self) -> Scope:
        return Scope(self.kind.kind, self.namespace)


def readable(routes: Routes) -> tuple[dict[str, tuple[Route, ...]], list[str]]:
    """The routes whose selector can be read, and complaints about the others: one bad route must not stop all."""
    good: dict[str, tuple[Route, ...]] = {}
    complaints = []
    for controller, declared in routes.items():
        kept = []
        for route in declared:
            try:
                requirements(route.selector)
            except ValueError as error:
                complaints.append(f"{controller}, {route.kind.kind}: {error}")
            else:
                kept.append(route)
        good[controller] = tuple(kept)
    return good, complaints


def watches(routes: Routes, namespaces: Iterable[str] = ()) -> frozenset[Watch]:
    """One per kind that a route names, and per namespace if only some are looked after."""
    by_kind: dict[Kind, list[Route]] = {}
    for declared in routes.values():
        for route in declared:
            by_kind.setdefault(route.kind, []).append(route)
    places = tuple(namespaces) or ("",)
    return frozenset(
        Watch(kind, namespace, _common_selector(wanting)) for kind, wanting in by_kind.items() for namespace in places
    )


def routes_by_kind(routes: Routes) -> dict[str, frozenset[tuple[str, Route]]]:
    """The (controller, route) pairs of each kind: where they differ, the kind must be listed again."""
    out: dict[str, set[tuple[str, Route]]] = {}
    for controller, declared in routes.items():
        for route in declared:
            out.setdefault(route.kind.kind, set()).add((controller, route))
    return {kind: frozenset(pairs) for kind, pairs in out.items()}


def needs_clusters(routes: Iterable[Route], kind: str) -> bool:
    """Whether objects of this kind are routed through RayClusters, so that their trees are known only with these."""
    return any(route.via is Via.CLUSTER and route.kind.kind == kind for route in routes)


def lists_clusters(routes: Iterable[Route]) -> bool:
    return any(route.kind == kinds.RAYCLUSTER for route in routes)


def _common_selector(wanting: list[Route]) -> str:
    return ",".join(sorted(_text(term) for term in frozenset.intersection(*map(_terms, wanting))))


def _terms(route: Route) -> frozenset[Requirement]:
    """What the labels of any object of this route satisfy; what follows from how it is routed included."""
    terms = set(requirements(route.selector))
    terms.update(Requirement(key, frozenset((value,)), wanted=True) for key, value in route.label_equals)
    if route.via is Via.LABEL:
        terms.add(Requirement(route.label, frozenset(), wanted=True))
    elif route.via is Via.CLUSTER:
        terms.add(Requirement(labels.CLUSTER, frozenset(), wanted=True))
    return frozenset(terms)


def _text(term: Requirement) -> str:
    if not term.values:
        return term.key if term.wanted else f"!{term.key}"
    return f"{term.key} {'in' if term.wanted else 'notin'} ({','.join(sorted(term.values))})"


class RouteBook:
    """The routes to serve. What is new counts at once; what nobody declares any more is served on for a while.

    A controller that restarts finds its stream fresh, and nothing is listed again because of it.
    """

    def __init__(self, linger_s: float = LINGER_S) -> None:
        self._linger_s = linger_s
        self._seen: dict[tuple[str, Route], float] = {}  # last time it was declared
        self._live: Routes = {}

    def declare(self, live: Routes, now: float) -> None:
        """The routes of all live sessions, at `now` (the caller's monotonic seconds)."""
        for controller, declared in [*self._live.items(), *live.items()]:
            for route in declared:
                self._seen[controller, route] = now
        self._live = live

    def served(self, now: float) -> dict[str, tuple[Route, ...]]:
        live = {(controller, route) for controller, declared in self._live.items() for route in declared}
        self._seen = {
            pair: seen for pair, seen in self._seen.items() if pair in live or now - seen < self._linger_s
        }  # fmt: skip
        out: dict[str, list[Route]] = {}
        for controller, route in self._seen:
            out.setdefault(controller, []).append(route)
        return {controller: tuple(declared) for controller, declared in sorted(out.items())}

    def next_change(self, now: float) -> float | None:
        """When something that lingers is to be dropped."""
        live = {(controller, route) for controller, declared in self._live.items() for route in declared}
        ends = [seen + self._linger_s for pair, seen in self._seen.items() if pair not in live]
        return max(min(ends), now) if ends else None
