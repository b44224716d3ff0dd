"""New: the finalizer first, then names and start time are stored, and only then is anything made. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from raybus.decide.actions import PatchRayJob
from raybus.decide.plan import Plan
from raybus.domain import identity, labels, times
from raybus_job_ctrl.decide import status as made
from raybus_job_ctrl.decide.move import Move
from raybus_job_ctrl.decide.policy import Policy
from raybus_job_ctrl.decide.states.state import Outcomes
from raybus_job_ctrl.decide.table import Deployment
from raybus_job_ctrl.decide.world import JobWorld

_REMEMBERED = (labels.HEAD_SESSION, labels.HEAD_POD)


def act(world: JobWorld, policy: Policy, now: datetime) -> Plan:  # noqa: ARG001 - the shape of a state
    patch = _patch(world)
    if not patch:
        return Plan(notes=("begins: names and start time are stored",))
    action = PatchRayJob(
        namespace=world.key.namespace,
        name=world.key.name,
        uid=world.meta["uid"],
        resource_version=world.meta["resourceVersion"],
        patch={"metadata": patch},
        reason="whoever deletes the RayJob must be able to rely on its job being stopped",
    )
    return Plan(steps=((action,),), notes=("begins: finalizer",))


def move(world: JobWorld, outcomes: Outcomes, policy: Policy, now: datetime) -> Move:  # noqa: ARG001 - the shape of a state
    if _patch(world):
        return Move(status=world.status, reason="the finalizer comes first")
    uid, name, attempt = world.meta["uid"], world.meta["name"], world.status.get("failed") or 0
    cluster = f"{name}-{identity.suffix(uid, attempt, 'cluster')}"
    job_id = world.spec.get("jobId") or f"{name}-{identity.suffix(uid, attempt, 'job')}"
    status = made.put(
        made.base(world.status),
        jobDeploymentStatus=Deployment.INITIALIZING,
        rayClusterName=cluster,
        jobId=job_id,
        startTime=times.rfc3339(now),
    )
    return Move(status=status, reason=f"begins with RayCluster {cluster} and job {job_id}")


def _patch(world: JobWorld) -> dict[str, Any]:
    """Metadata to set right: the finalizer, and what another object's manifest brought along about its head."""
    patch: dict[str, Any] = {}
    finalizers = world.meta.get("finalizers") or []
    if labels.RAYJOB_FINALIZER not in finalizers:
        patch["finalizers"] = [*finalizers, labels.RAYJOB_FINALIZER]
    if foreign := [key for key in _REMEMBERED if key in world.annotations]:
        patch["annotations"] = dict.fromkeys(foreign)
    return patch
