"""Which objects belong to a RayJob's tree, and so wake it: the routes that job_ctrl declares (docs/contracts.md)."""

from __future__ import annotations

from raybus.decide.routes import FULL, POD_STATUS, Projection, Route, Via
from raybus.domain import kinds, labels

_MADE_FOR_A_RAYJOB = ((labels.ORIGINATED_FROM_CRD, "RayJob"),)
# Submitters and head Services carry these since KubeRay made the first ones. Without a selector the gateway would watch all of a
# cluster's Jobs and Services.
_SUBMITTERS = f"{labels.CREATED_BY}={labels.CREATED_BY_VALUE}"
_OF_RAYJOBS = f"{labels.ORIGINATED_FROM_CRD}=RayJob"
# Kinds that are answered with a warning and nothing else: that they exist is all that need be known.
EXISTENCE = Projection("existence", ("spec.managedBy",))

ROUTES: tuple[Route, ...] = (
    Route(root_kind="RayJob", kind=kinds.RAYJOB, via=Via.ROOT, projection=FULL),
    Route(
        root_kind="RayJob",
        kind=kinds.RAYCLUSTER,
        via=Via.LABEL,
        projection=FULL,
        label=labels.ORIGINATED_FROM_NAME,
        label_equals=_MADE_FOR_A_RAYJOB,
    ),
    Route(root_kind="RayJob", kind=kinds.JOB, via=Via.OWNER, projection=FULL, selector=_SUBMITTERS),
    Route(
        root_kind="RayJob",
        kind=kinds.POD,
        via=Via.LABEL,
        projection=POD_STATUS,
        label=labels.ORIGINATED_FROM_NAME,
        label_equals=_MADE_FOR_A_RAYJOB,
    ),
    Route(root_kind="RayJob", kind=kinds.POD, via=Via.CLUSTER, projection=POD_STATUS),
    Route(root_kind="RayJob", kind=kinds.SERVICE, via=Via.OWNER, projection=FULL, selector=_OF_RAYJOBS),
    Route(root_kind="RayService", kind=kinds.RAYSERVICE, via=Via.ROOT, projection=EXISTENCE),
    Route(root_kind="RayCronJob", kind=kinds.RAYCRONJOB, via=Via.ROOT, projection=EXISTENCE),
)
