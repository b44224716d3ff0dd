"""Routes of every kind of `via`, for tests of whoever serves or reads them. What the services themselves declare is in their triggers.py."""

from __future__ import annotations

from raybus.decide.routes import FULL, POD_STATUS, Route, Via
from raybus.domain import kinds, labels

CRD_IS_JOB = ((labels.ORIGINATED_FROM_CRD, "RayJob"),)

CLUSTER_ROUTES = (
    Route(root_kind="RayCluster", kind=kinds.RAYCLUSTER, via=Via.ROOT, projection=FULL),
    Route(root_kind="RayCluster", kind=kinds.POD, via=Via.LABEL, projection=POD_STATUS, label=labels.CLUSTER),
)

JOB = Route(root_kind="RayJob", kind=kinds.RAYJOB, via=Via.ROOT, projection=FULL)
CLUSTERS_OF_JOB = Route(
    root_kind="RayJob",
    kind=kinds.RAYCLUSTER,
    via=Via.LABEL,
    projection=FULL,
    label=labels.ORIGINATED_FROM_NAME,
    label_equals=CRD_IS_JOB,
)
SUBMITTERS_OF_JOB = Route(root_kind="RayJob", kind=kinds.JOB, via=Via.OWNER, projection=FULL)
PODS_BY_CLUSTER = Route(root_kind="RayJob", kind=kinds.POD, via=Via.CLUSTER, projection=POD_STATUS)
PODS_OF_JOB = Route(
    root_kind="RayJob",
    kind=kinds.POD,
    via=Via.LABEL,
    projection=POD_STATUS,
    label=labels.ORIGINATED_FROM_NAME,
    label_equals=CRD_IS_JOB,
)
