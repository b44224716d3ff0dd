"""A projection's name says what a body holds, between releases too: it may not come to mean something else."""

from __future__ import annotations

from raybus_cluster_ctrl.triggers import ROUTES as CLUSTER_ROUTES
from raybus_job_ctrl.triggers import ROUTES as JOB_ROUTES

# As released. Add lines; never change one.
RELEASED = {
    "full": (),
    "pod.status": (
        "status",
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.containers[].name",
        "spec.initContainers[].name",
    ),
    "existence": ("spec.managedBy",),
}


def test_every_declared_name_means_what_it_meant() -> None:
    declared = {(route.projection.name, route.projection.paths) for route in (*CLUSTER_ROUTES, *JOB_ROUTES)}

    changed = {name for name, paths in declared if RELEASED.get(name) != paths}

    assert not changed, f"give the projection another name, and add it above: {changed}"
