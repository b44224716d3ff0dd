"""What to list and watch so that all declared routes are served. Pure: no clock, nothing that waits.

A kind is watched once per label selector that its routes imply, as narrow as these allow: nothing that no route can want is asked
for. A route whose selector is implied by a wider one of its kind is served by the watch of that one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from raybus.bus.routing import Requirement, requirements
from raybus.decide.routes import Route, Via
from raybus.domain import labels
from raybus.domain.kinds import Kind

Routes = Mapping[str, tuple[Route, ...]]
"""The routes by controller ("rayjob"), as the union over its live sessions."""

LINGER_S = 300.0


class Scope(NamedTuple):
    """One list+watch: a kind in one namespace, or in all with an empty one; of what matches the selector, or of all."""

    kind: str
    namespace: str
    selector: str = ""


@dataclass(frozen=True, slots=True)
class Watch:
    kind: Kind
    namespace: str
    selector: str

    @property
    def scope(self) -> Scope:
        return Scope(self.kind.kind, self.namespace, self.selector)


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


def watches(routes: Routes, namespaces: Iterable[str] = ()) -> dict[Watch, Routes]:
    """What to watch, and the routes that each watch serves. Every route is served by one watch per namespace looked after."""
    by_kind: dict[Kind, list[tuple[str, Route]]] = {}
    for controller, declared in routes.items():
        for route in declared:
            by_kind.setdefault(route.kind, []).append((controller, route))
    places = tuple(namespaces) or ("",)
    found: dict[Watch, Routes] = {}
    for kind, wanting in by_kind.items():
        for selector, served in _by_selector(wanting).items():
            found.update({Watch(kind, namespace, selector): served for namespace in places})
    return found


def _by_selector(wanting: list[tuple[str, Route]]) -> dict[str, Routes]:
    """The routes of a kind by the selector under which they are watched."""
    implied = {pair: _terms(pair[1]) for pair in wanting}
    widest = _widest(implied.values())
    out: dict[str, dict[str, list[Route]]] = {}
    for (controller, route), terms in implied.items():
        chosen = next(selector for selector, wide in widest.items() if _implies(terms, wide))
        out.setdefault(chosen, {}).setdefault(controller, []).append(route)
    return {selector: {name: tuple(found) for name, found in served.items()} for selector, served in out.items()}


def _widest(candidates: Iterable[frozenset[Requirement]]) -> dict[str, frozenset[Requirement]]:
    """Those that no other one makes superfluous, in a fixed order. Of two that imply each other one stays."""
    kept: dict[str, frozenset[Requirement]] = {}
    for selector, terms in sorted((_selector(terms), terms) for terms in set(candidates)):
        if not any(_implies(terms, wide) for wide in kept.values()):
            kept = {text: other for text, other in kept.items() if not _implies(other, terms)} | {selector: terms}
    return kept


def _implies(narrow: frozenset[Requirement], wide: frozenset[Requirement]) -> bool:
    """Whether all labels that satisfy `narrow` satisfy `wide` too, as far as single terms can tell."""
    return all(any(_term_implies(term, asked) for term in narrow) for asked in wide)


def _term_implies(term: Requirement, asked: Requirement) -> bool:
    if term.key != asked.key:
        return False
    if asked.wanted:
        return term.wanted and (not asked.values or (bool(term.values) and term.values <= asked.values))
    if not asked.values:  # must not exist
        return not term.wanted and not term.values
    if term.wanted:
        return bool(term.values) and not term.values & asked.values
    return not term.values or asked.values <= term.values


def needs_clusters(routes: Iterable[Route], kind: str) -> bool:
    """Whether objects of this kind are routed through RayClusters, so that their trees are known only with these."""
    return any(route.via is Via.CLUSTER and route.kind.kind == kind for route in routes)


def _terms(route: Route) -> frozenset[Requirement]:
    """What the labels of any object of this route satisfy; what follows from how it is routed included."""
    terms = set(requirements(route.selector))
    terms.update(Requirement(key, frozenset((value,)), wanted=True) for key, value in route.label_equals)
    if route.via is Via.LABEL:
        terms.add(Requirement(route.label, frozenset(), wanted=True))
    elif route.via is Via.CLUSTER:
        terms.add(Requirement(labels.CLUSTER, frozenset(), wanted=True))
    return frozenset(terms)


def _selector(terms: frozenset[Requirement]) -> str:
    """Without terms that others imply, so that the API server sees the shortest form: always the same for the same terms."""
    needed = [term for term in terms if not any(other != term and _term_implies(other, term) for other in terms)]
    return ",".join(sorted(map(_text, needed)))


def _text(term: Requirement) -> str:
    if not term.values:
        return term.key if term.wanted else f"!{term.key}"
    if len(term.values) == 1:
        return f"{term.key}{'=' if term.wanted else '!='}{next(iter(term.values))}"
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
