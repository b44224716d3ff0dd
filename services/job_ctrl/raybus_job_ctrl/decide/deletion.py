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
    """Stop, then take the finalizer away. A stop that fails is tried again until the limit; the last one holds up nothing."""
    finalizers = world.meta.get("finalizers") or []
    if labels.RAYJOB_FINALIZER not in finalizers:
        return NOTHING
    asked_at = times.parse(world.meta["deletionTimestamp"]) or now
    limit = asked_at + timedelta(seconds=policy.deletion_limit_s)
    # The head that had the job is gone: another one is asked as well, but not waited for.
    stop, patient = _stop(world), now < limit and not world.head_gone
    release = PatchRayJob(
        namespace=world.key.namespace,
        name=world.key.name,
        uid=world.meta["uid"],
        resource_version=world.meta["resourceVersion"],
        patch={"metadata": {"finalizers": [name for name in finalizers if name != labels.RAYJOB_FINALIZER]}},
        reason=f"the RayJob is being deleted and {_words(world, stop, patient=patient)}",
    )
    steps: tuple[tuple[Action, ...], ...] = ((release,),)
    if stop:
        steps = ((stop,), (release,)) if patient else ((stop, release),)
    # Nothing to stop may mean that the cluster has not been seen yet: then only a fresh read lets the RayJob go.
    unseen = _submitted(world) and now < limit and (stop is None or world.head_gone)
    confirm = "a finalizer goes because no cluster or head is there" if unseen else ""
    return Plan(steps=steps, confirm=confirm, wake_at=limit if stop and patient else None, notes=("is being deleted",))


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


def _words(world: JobWorld, stop: StopRayJob | None, *, patient: bool) -> str:
    if stop is None:
        return "no job of it runs"
    if world.head_gone:
        return "the head that had its job is gone"
    return "its job was stopped" if patient else "its job could not be stopped in time"
