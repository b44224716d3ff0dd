"""What Raybus does not do yet, as data: a field that asks for it is named in one Warning, and nothing is begun.

Pure. A feature that arrives takes its line away.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from raybus_job_ctrl.decide.table import Mode
from raybus_job_ctrl.decide.world import JobWorld

Json = Mapping[str, Any]

EVENT = "NotSupported"
KINDS: Mapping[str, str] = {
    "RayService": "kind RayService is not supported yet: nothing is done with this object",
    "RayCronJob": "kind RayCronJob is not supported yet: nothing is done with this object",
}

_Test = Callable[[Json], bool]
_FIELDS: tuple[tuple[str, _Test], ...] = (
    ("clusterSelector", lambda spec: bool(spec.get("clusterSelector"))),
    ("submissionMode", lambda spec: spec.get("submissionMode") in (Mode.INTERACTIVE, Mode.SIDECAR)),
    ("suspend", lambda spec: bool(spec.get("suspend"))),
    ("backoffLimit", lambda spec: (spec.get("backoffLimit") or 0) > 0),
    ("activeDeadlineSeconds", lambda spec: spec.get("activeDeadlineSeconds") is not None),
    ("preRunningDeadlineSeconds", lambda spec: spec.get("preRunningDeadlineSeconds") is not None),
    ("deletionStrategy", lambda spec: spec.get("deletionStrategy") is not None),
)


def problem_of(world: JobWorld) -> str:
    """What is asked for and not supported; empty if nothing is."""
    spec = world.spec
    asked = [f"spec.{field}: {_shown(spec[field])}" for field, test in _FIELDS if test(spec)]
    return f"not supported yet: {', '.join(asked)}; leave it out" if asked else ""


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value) if isinstance(value, str | int) else "set"
