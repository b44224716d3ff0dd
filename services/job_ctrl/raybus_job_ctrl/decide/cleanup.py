"""What is taken away after the end, and when. Pure.

The submitter Job stays, for its log; the RayJob stays, for its verdict. Only this RayJob's own cluster is ever deleted.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from raybus.decide.actions import Action, DeleteRayCluster, DeleteRayJob, Reconsider
from raybus.decide.plan import NOTHING, Plan
from raybus.domain import times
from raybus_job_ctrl.decide import reasons
from raybus_job_ctrl.decide.policy import Policy
from raybus_job_ctrl.decide.world import JobWorld


def cleanup(world: JobWorld, policy: Policy, now: datetime) -> Plan:
    """`shutdownAfterJobFinishes`: the cluster goes `ttlSecondsAfterFinished` after the end, with all that belongs to it."""
    ended_at = times.parse(world.status.get("endTime"))
    if not world.spec.get("shutdownAfterJobFinishes") or ended_at is None:
        return NOTHING
    if not policy.delete_job_with_cluster and _cluster_done(world):
        return NOTHING
    due = ended_at + timedelta(seconds=world.spec.get("ttlSecondsAfterFinished") or 0)
    if now < due:
        return Plan(wake_at=due, notes=(f"the cluster goes at {times.rfc3339(due)}",))
    if not policy.delete_job_with_cluster:
        action = _delete_cluster(world)
        return Plan(steps=((action,),), confirm="a deletion", notes=(action.reason,))
    action = _delete_job(world)
    # Own writes wake nobody, and a RayJob that is being deleted waits for its finalizer to be taken away.
    again = Reconsider(reason="the RayJob is being deleted")
    return Plan(steps=((action,), (again,)), confirm="a deletion", notes=(action.reason,))


def _cluster_done(world: JobWorld) -> bool:
    return world.cluster is None or bool(world.cluster["metadata"].get("deletionTimestamp"))


def _delete_cluster(world: JobWorld) -> Action:
    assert world.cluster is not None
    meta = world.cluster["metadata"]
    return DeleteRayCluster(
        namespace=meta["namespace"],
        name=meta["name"],
        uid=meta["uid"],
        propagation="Foreground",  # gone means that its Pods are gone
        reason="the job has ended and its cluster's time to live is over",
        announce=reasons.DELETE_CLUSTER.announced(f"RayCluster {meta['namespace']}/{meta['name']}"),
    )


def _delete_job(world: JobWorld) -> Action:
    return DeleteRayJob(
        namespace=world.key.namespace,
        name=world.key.name,
        uid=world.meta["uid"],
        reason="the job has ended, its time to live is over, and the operator is set to take the RayJob as well",
    )
