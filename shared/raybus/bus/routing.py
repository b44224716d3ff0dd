"""Which trees an object belongs to, by the routes that controllers declare (docs/contracts.md, "Routes"). Pure.

The gateway asks it for every object it publishes, a mirror for every object its own replica wrote: both get the same answer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import orjson

from raybus.decide.actions import Json
from raybus.decide.routes import Projection, Route, Via
from raybus.decide.tree import RootKey
from raybus.domain import labels
from raybus.domain.kinds import Kind

# (root kind, namespace, name of a RayCluster) -> the roots of that kind to which the RayCluster belongs.
ParentsOf = Callable[[str, str, str], Iterable[RootKey]]


class Requirement(NamedTuple):
    """One term of a label selector: `values` empty and `wanted` true means "exists"."""

    key: str
    values: frozenset[str]
    wanted: bool


def no_parents(_root_kind: str, _namespace: str, _cluster: str) -> Iterable[RootKey]:
    return ()


def roots_of(route: Route, obj: Json, parents: ParentsOf = no_parents) -> frozenset[RootKey]:
    """The trees that `obj` belongs to by this route; empty if it is of another kind or does not match."""
    if obj.get("kind") != route.kind.kind or obj.get("apiVersion", route.kind.api_version) != route.kind.api_version:
        return frozenset()
    metadata = obj["metadata"]
    own: Mapping[str, str] = metadata.get("labels") or {}
    if not matches(route.selector, own) or any(own.get(key) != value for key, value in route.label_equals):
        return frozenset()
    namespace = metadata.get("namespace", "")
    match route.via:
        case Via.ROOT:
            names: Iterable[str] = (metadata["name"],)
        case Via.LABEL:
            names = filter(None, (own.get(route.label),))
        case Via.OWNER:
            names = filter(None, (_controller(metadata, route.root_kind),))
        case Via.CLUSTER:
            cluster = own.get(labels.CLUSTER)
            return frozenset(parents(route.root_kind, namespace, cluster)) if cluster else frozenset()
    return frozenset(RootKey(route.root_kind, namespace, name) for name in names)


def trees_of(routes: Iterable[Route], obj: Json, parents: ParentsOf = no_parents) -> dict[RootKey, list[Projection]]:
    """Every tree that `obj` belongs to, with the projections that the routes into it ask for."""
    out: dict[RootKey, list[Projection]] = {}
    for route in routes:
        for key in roots_of(route, obj, parents):
            projections = out.setdefault(key, [])
            if route.projection not in projections:
                projections.append(route.projection)
    return out


def matches(selector: str, own: Mapping[str, str]) -> bool:
    """Whether labels match a Kubernetes label selector; the empty selector matches all."""
    if not selector:
        return True
    for requirement in requirements(selector):
        value = own.get(requirement.key)
        held = value is not None if not requirement.values else value in requirement.values
        if held != requirement.wanted:
            return False
    return True


@lru_cache(maxsize=256)
def requirements(selector: str) -> tuple[Requirement, ...]:
    """Read `a=b,c!=d,e in (x,y),f notin (z),g,!h`. Raises ValueError naming the term that is none of these."""
    return tuple(_requirement(term.strip()) for term in _terms(selector) if term.strip())


def _terms(selector: str) -> list[str]:
    terms, depth, start = [], 0, 0
    for index, char in enumerate(selector):
        depth += (char == "(") - (char == ")")
        if char == "," and depth == 0:
            terms.append(selector[start:index])
            start = index + 1
    return [*terms, selector[start:]]


def _requirement(term: str) -> Requirement:
    for word, wanted in ((" notin ", False), (" in ", True)):
        key, found, values = term.partition(word)
        if found:
            inner = values.strip()
            if not (inner.startswith("(") and inner.endswith(")")):
                break
            return Requirement(key.strip(), frozenset(value.strip() for value in inner[1:-1].split(",")), wanted)
    for sign, wanted in (("!=", False), ("==", True), ("=", True)):
        key, found, value = term.partition(sign)
        if found:
            return Requirement(key.strip(), frozenset((value.strip(),)), wanted)
    key = term.removeprefix("!").strip()
    if not key or any(char in key for char in " ()"):
        raise ValueError(f"label selector: cannot read the term {term!r}")
    return Requirement(key, frozenset(), not term.startswith("!"))


def _controller(metadata: Json, root_kind: str) -> str | None:
    for owner in metadata.get("ownerReferences") or ():
        if owner.get("controller") and owner.get("kind") == root_kind:
            return str(owner["name"])
    return None


def route_to_json(route: Route) -> dict[str, Any]:
    """A route as it stands in a session record."""
    kind = route.kind
    return {
        "root_kind": route.root_kind,
        "kind": {
            "group": kind.group,
            "version": kind.version,
            "kind": kind.kind,
            "plural": kind.plural,
            "namespaced": kind.namespaced,
        },
        "via": route.via.value,
        "projection": {"name": route.projection.name, "paths": list(route.projection.paths)},
        "selector": route.selector,
        "label": route.label,
        "label_equals": [list(pair) for pair in route.label_equals],
    }


def route_id(route: Route) -> str:
    """Names which objects a route brings, and to which trees, in every release: what of their bodies is the projection's business."""
    kind = route.kind
    parts = (route.root_kind, kind.group, kind.plural, route.via, route.selector, route.label, *route.label_equals)
    return hashlib.sha256(orjson.dumps(parts)).hexdigest()[:12]


def route_from_json(data: Json) -> Route:
    """Raises KeyError, TypeError or ValueError on what is no route of this release (an unknown `via`, a missing field)."""
    kind = data["kind"]
    return Route(
        root_kind=str(data["root_kind"]),
        kind=Kind(
            str(kind["group"]),
            str(kind["version"]),
            str(kind["kind"]),
            str(kind["plural"]),
            bool(kind.get("namespaced", True)),
        ),
        via=Via(data["via"]),
        projection=Projection(str(data["projection"]["name"]), tuple(data["projection"].get("paths", ()))),
        selector=str(data.get("selector", "")),
        label=str(data.get("label", "")),
        label_equals=tuple((str(key), str(value)) for key, value in data.get("label_equals", ())),
    )
