"""Which RayClusters are left alone, and what is said about it. Pure.

What may live here: reasons not to act at all. A refused object is not touched in any other way, its status neither.
"""

from __future__ import annotations

from dataclasses import dataclass

from raybus.domain import cluster_spec, cluster_validation, conditions, labels
from raybus_cluster_ctrl.build.target import Cluster
from raybus_cluster_ctrl.decide.policy import Policy
from raybus_cluster_ctrl.decide.world import ClusterWorld

METADATA = "InvalidRayClusterMetadata"
SPEC = "InvalidRayClusterSpec"
STATUS = "InvalidRayClusterStatus"
UNSUPPORTED = "NotSupported"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why nothing is done. Without an event reason it is none of our business and nothing is said."""

    words: str
    event_reason: str = ""


def refusal(world: ClusterWorld, policy: Policy) -> Refusal | None:
    """None if the cluster is to be looked after in this pass."""
    if world.cluster is None:
        return Refusal("there is no such RayCluster")
    cluster = world.cluster
    if cluster_spec.managed_elsewhere(cluster.spec):
        return Refusal(f"managed by {cluster.spec['managedBy']!r}")
    problem = cluster_validation.metadata_problem(cluster.name)
    if problem:
        return Refusal(problem, METADATA)
    problem = policy.checked.get(cluster.version, lambda: _spec_problem(cluster, policy))
    if problem:
        return Refusal(problem, SPEC)
    current = world.status.get("conditions")
    if conditions.is_true(current, "RayClusterSuspending") and conditions.is_true(current, "RayClusterSuspended"):
        return Refusal("status.conditions: Suspending and Suspended are both True; set one of them to False", STATUS)
    if "deletionTimestamp" in cluster.root["metadata"]:
        return Refusal("being deleted; Kubernetes removes what it owns")
    problem = unsupported(world)
    if problem:
        return Refusal(problem, UNSUPPORTED)
    if not world.complete:
        return Refusal("not all pods and Services were read yet")
    return None


def _spec_problem(cluster: Cluster, policy: Policy) -> str:
    problem = cluster_validation.spec_problem(cluster.spec, cluster.annotations, policy.gates)
    return problem or cluster_validation.upgrade_problem(cluster.spec, cluster.labels)


def unsupported(world: ClusterWorld) -> str:
    """The first thing asked for that this release does not do; empty if there is none."""
    cluster = world.present
    spec = cluster.spec
    several = [group.name for group in world.groups if group.hosts > 1]
    suspended = [group.name for group in world.groups if group.suspended]
    asked = {
        "spec.suspend": bool(spec.get("suspend")),
        "spec.gcsFaultToleranceOptions": cluster_spec.fault_tolerant(spec, cluster.annotations),
        "spec.upgradeStrategy Recreate": (spec.get("upgradeStrategy") or {}).get("type") == "Recreate",
        f"numOfHosts above 1 (group {', '.join(several)})": bool(several),
        f"suspend of a worker group ({', '.join(suspended)})": bool(suspended),
        "spec.networkPolicy": spec.get("networkPolicy") is not None,
        "spec.tlsOptions": bool((spec.get("tlsOptions") or {}).get("enabled")),
        "spec.historyServerOptions": spec.get("historyServerOptions") is not None,
        f"annotation {labels.SERVE_SERVICE}": cluster.annotations.get(labels.SERVE_SERVICE) == "true",
    }
    field = next((name for name, is_asked in asked.items() if is_asked), "")
    return (
        f"{field} is not supported by this release of Raybus yet; remove it, nothing is done until then"
        if field
        else ""
    )
