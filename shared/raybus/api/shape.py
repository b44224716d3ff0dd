"""Whether the spec of an object has the shape that decisions rely on. Pure.

The API server checks a spec against the definition that it serves; KubeRay's or an older one may let more pass. Decisions read the
given dict, so what would make them stumble is found here first, once per version of the spec.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from pydantic import ValidationError

from raybus.api.meta import Json, Wire, problem
from raybus.api.raycluster import RayClusterSpec
from raybus.api.rayjob import RayJobSpec
from raybus.domain.memory import Memory

_SPECS: dict[str, type[Wire]] = {"RayCluster": RayClusterSpec, "RayJob": RayJobSpec}
_REMEMBERED = 20_000
_KEPT = "managedBy"  # who looks after an object is known, whatever else is wrong with it


class Readable(NamedTuple):
    """`root` as decisions may read it, and what is wrong with its spec, naming the field and what it should be; empty if nothing.

    Of a spec that cannot be read only `managedBy` is left.
    """

    root: Json
    trouble: str


class Shapes:
    """Checks specs, each (uid, generation) once."""

    def __init__(self, remembered: int = _REMEMBERED) -> None:
        self._known: Memory[str] = Memory(remembered)

    def readable(self, root: Json) -> Readable:
        meta = root["metadata"]
        generation = meta.get("generation")
        if generation is None:  # not from an API server: nothing says when the spec is another one
            trouble = spec_problem(root)
        else:
            trouble = self._known.get((meta["uid"], generation), lambda: spec_problem(root))
        if not trouble:
            return Readable(root, "")
        spec = root["spec"]
        manager = spec.get(_KEPT) if isinstance(spec, Mapping) else None
        return Readable({**root, "spec": {_KEPT: manager} if isinstance(manager, str) else {}}, trouble)


def spec_problem(root: Json) -> str:
    """The first field at fault and how many more there are; empty if the spec, or that there is none, is fine."""
    model = _SPECS.get(str(root.get("kind")))
    spec: Any = root.get("spec")
    if model is None or spec is None:
        return ""
    try:
        model.model_validate(spec)
    except ValidationError as error:
        first, *more = (problem(each, "spec") for each in error.errors())
        return f"{first}" + (f", and {len(more)} more like it" if more else "")
    return ""
