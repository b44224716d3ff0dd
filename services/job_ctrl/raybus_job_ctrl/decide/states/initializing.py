"""Initializing: the cluster is made and awaited, then what submits the job. Pure."""

from __future__ import annotations

from datetime import datetime

from raybus.decide.actions import CreateRayCluster
from raybus.decide.plan import Plan
from raybus_job_ctrl.build.cluster import ray_cluster
from raybus_job_ctrl.build.head_service import dashboard_address
from raybus_job_ctrl.decide import reasons
from raybus_job_ctrl.decide import status as made
from raybus_job_ctrl.decide.modes import mode_of
from raybus_job_ctrl.decide.move import Move
from raybus_job_ctrl.decide.policy import Policy
from raybus_job_ctrl.decide.states.state import Outcomes
from raybus_job_ctrl.decide.table import Deployment
from raybus_job_ctrl.decide.world import JobWorld


def act(world: JobWorld, policy: Policy, now: datetime) -> Plan:  # noqa: ARG001 - the shape of a state
    name = world.status["rayClusterName"]
    if world.cluster_gone:
        create = CreateRayCluster(
            body=ray_cluster(world.root, name),
            reason="the job's cluster does not exist",
            announce=reasons.CREATE_CLUSTER.announced(f"RayCluster {world.key.namespace}/{name}"),
        )
        return Plan(steps=((create,),), notes=(f"RayCluster {name} is made",))
    address = _address(world, policy)
    if not address:
        return Plan(notes=(f"RayCluster {name} is not ready yet",))
    actions = mode_of(world).before_running(world, policy, address)
    return Plan(steps=(actions,) if actions else (), notes=(f"RayCluster {name} is ready",))


def move(world: JobWorld, outcomes: Outcomes, policy: Policy, now: datetime) -> Move:  # noqa: ARG001 - the shape of a state
    status = made.with_cluster(world.status, world.cluster)
    address = _address(world, policy)
    if not address:
        return Move(status=status, reason="the cluster is not ready")
    if not mode_of(world).prepared(world):
        return Move(status=status, reason="nothing submits the job yet")
    running = made.put(status, jobDeploymentStatus=Deployment.RUNNING, dashboardURL=address)
    return Move(status=running, reason="the cluster is ready")


def _address(world: JobWorld, policy: Policy) -> str:
    """Where the dashboard is, once the cluster has said that it is ready; it stays true to that word afterwards."""
    if world.cluster is None or not (world.cluster_ready or world.address):
        return ""
    return world.address or dashboard_address(world.cluster, policy.cluster_domain)
