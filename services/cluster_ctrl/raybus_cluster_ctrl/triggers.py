"""The routes of cluster_ctrl: which objects belong to a RayCluster, as data that the gateway serves. A change of any wakes the cluster."""

from __future__ import annotations

from raybus.decide.routes import FULL, POD_STATUS, Route, Via
from raybus.domain import kinds, labels

_ROOT = kinds.RAYCLUSTER.kind

ROUTES = (
    Route(root_kind=_ROOT, kind=kinds.RAYCLUSTER, via=Via.ROOT, projection=FULL),
    Route(
        root_kind=_ROOT,
        kind=kinds.POD,
        via=Via.LABEL,
        label=labels.CLUSTER,
        selector=labels.CLUSTER,
        projection=POD_STATUS,
    ),
    Route(
        root_kind=_ROOT,
        kind=kinds.SERVICE,
        via=Via.LABEL,
        label=labels.CLUSTER,
        selector=labels.CLUSTER,
        projection=FULL,
    ),
)
