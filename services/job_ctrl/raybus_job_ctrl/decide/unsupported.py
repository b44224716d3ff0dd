"""What Raybus does not do yet, as data: a field that asks for it is named in one Warning, and nothing is begun.

Pure. A feature that arrives takes its line away.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from raybus_job_ctrl.decide.table import Mode
from raybus_job_ctrl.decide.world import JobWorld

Json = Mapping[str, Any]

KINDS: Mapping[str, str] = {
    "RayService": "kind RayService is not supported yet: nothing is done with this object",
    "RayCronJob": "kind RayCronJob is not supported yet: nothing is done with this object",
}

# The field, when it asks for something that is not there, and how to find that in the spec.
FIELDS: tuple[tuple[str, str, Callable[[Json], bool]], ...] = (
    ("clusterSelector", "given", lambda spec: bool(spec.get("clusterSelector"))),
    (
        "submissionMode",
        f"{Mode.INTERACTIVE} or {Mode.SIDECAR}",
        lambda spec: spec.get("submissionMode") in (Mode.INTERACTIVE, Mode.SIDECAR),
    ),
    ("suspend", "true", lambda spec: bool(spec.get("suspend"))),
    ("backoffLimit", "above 0", lambda spec: (spec.get("backoffLimit") or 0) > 0),
    ("activeDeadlineSeconds", "given", lambda spec: spec.get("activeDeadlineSeconds") is not None),
    ("preRunningDeadlineSeconds", "given", lambda spec: spec.get("preRunningDeadlineSeconds") is not None),
    ("deletionStrategy", "given", lambda spec: spec.get("deletionStrategy") is not None),
)


def problem_of(world: JobWorld) -> str:
    """What is asked for and not supported; empty if nothing is."""
    spec = world.spec
    asked = [f"spec.{field}: {_shown(spec[field])}" for field, _, test in FIELDS if test(spec)]
    return f"not supported yet: {', '.join(asked)}; leave it out" if asked else ""


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value) if isinstance(value, str | int) else "set"
