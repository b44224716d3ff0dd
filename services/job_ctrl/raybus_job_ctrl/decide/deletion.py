"""A RayJob that is being deleted: its job is stopped, then it is let go, stopped or not. Pure.

What it owns goes with it by garbage collection.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from raybus.decide.actions import Action, PatchRayJob, StopRayJob
from raybus.decide.plan import NOTHING, Plan
from raybus.domain import labels, times
from raybus_job_ctrl.build.head_service import endpoint
from raybus_job_ctrl.decide.policy import Policy
from raybus_job_ctrl.decide.table import ENDED
from raybus_job_ctrl.decide.world import JobWorld


def deletion(world: JobWorld, policy: Policy, now: datetime) -> Plan:
    """Stop, then take the finalizer away. A stop that fails is tried again until the limit, then left."""
    finalizers = world.meta.get("finalizers") or []
    if labels.RAYJOB_FINALIZER not in finalizers:
        return NOTHING
    asked_at = times.parse(world.meta["deletionTimestamp"]) or now
    limit = asked_at + timedelta(seconds=policy.deletion_limit_s)
    stop = _stop(world) if now < limit else None
    release = PatchRayJob(
        namespace=world.key.namespace,
        name=world.key.name,
        uid=world.meta["uid"],
        resource_version=world.meta["resourceVersion"],
        patch={"metadata": {"finalizers": [name for name in finalizers if name != labels.RAYJOB_FINALIZER]}},
        reason="the RayJob is being deleted and " + ("its job was stopped" if stop else _words(world, now, limit)),
    )
    steps: tuple[tuple[Action, ...], ...] = ((stop,), (release,)) if stop else ((release,),)
    # Nothing to stop may mean that the cluster has not been seen yet: then only a fresh read lets the RayJob go.
    unseen = stop is None and now < limit and _submitted(world)
    confirm = "a finalizer goes because no cluster or head is there" if unseen else ""
    return Plan(steps=steps, confirm=confirm, wake_at=limit if stop else None, notes=("is being deleted",))


def _stop(world: JobWorld) -> StopRayJob | None:
    if not _may_run(world) or world.cluster is None:
        return None
    return StopRayJob(
        endpoint=endpoint(world.cluster, world.address),
        submission_id=world.submission_id,
        reason="the RayJob is being deleted while its job may run",
    )


def _may_run(world: JobWorld) -> bool:
    """A job can run once it could be submitted, and until its head is gone."""
    return _submitted(world) and not ("Pod" in world.complete and not world.head)


def _submitted(world: JobWorld) -> bool:
    """The job may have reached Ray, and Ray has not said that it ended."""
    return bool(world.address and world.submission_id) and world.job_state not in ENDED


def _words(world: JobWorld, now: datetime, limit: datetime) -> str:
    if now >= limit and _may_run(world):
        return "its job could not be stopped in time"
    return "no job of it runs"
