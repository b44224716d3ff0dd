"""Which RayClusters are left alone, and what is said about it. Pure.

What may live here: reasons not to act at all. A refused object is not touched in any other way, its status neither.
"""

from __future__ import annotations

from dataclasses import dataclass

from raybus.decide.reasons import NOT_SUPPORTED, Complaint
from raybus.domain import cluster_spec, cluster_validation, conditions
from raybus_cluster_ctrl.build.target import Cluster
from raybus_cluster_ctrl.decide import reasons, unsupported
from raybus_cluster_ctrl.decide.policy import Policy
from raybus_cluster_ctrl.decide.world import ClusterWorld


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why nothing is done. Without a complaint it is none of our business and nothing is said."""

    words: str
    complaint: Complaint | None = None


def refusal(world: ClusterWorld, policy: Policy) -> Refusal | None:
    """None if the cluster is to be looked after in this pass."""
    if world.cluster is None:
        return Refusal("there is no such RayCluster")
    cluster = world.cluster
    if cluster_spec.managed_elsewhere(cluster.spec):
        return Refusal(f"managed by {cluster.spec['managedBy']!r}")
    problem = cluster_validation.metadata_problem(cluster.name)
    if problem:
        return Refusal(problem, reasons.METADATA)
    if world.unreadable:
        return Refusal(world.unreadable, reasons.SPEC)
    problem = policy.checked.get(cluster.version, lambda: _spec_problem(cluster, policy))
    if problem:
        return Refusal(problem, reasons.SPEC)
    current = world.status.get("conditions")
    if conditions.is_true(current, "RayClusterSuspending") and conditions.is_true(current, "RayClusterSuspended"):
        return Refusal(
            "status.conditions: Suspending and Suspended are both True; set one of them to False", reasons.STATUS
        )
    if "deletionTimestamp" in cluster.root["metadata"]:
        return Refusal("being deleted; Kubernetes removes what it owns")
    problem = unsupported.problem_of(world)
    if problem:
        return Refusal(problem, NOT_SUPPORTED)
    if not world.complete:
        return Refusal("not all pods and Services were read yet")
    return None


def _spec_problem(cluster: Cluster, policy: Policy) -> str:
    problem = cluster_validation.spec_problem(cluster.spec, cluster.annotations, policy.gates)
    return problem or cluster_validation.upgrade_problem(cluster.spec, cluster.labels)
