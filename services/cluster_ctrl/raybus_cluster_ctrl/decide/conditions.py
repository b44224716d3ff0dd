"""The conditions of a RayCluster: one pure function for each, from the pods as they are. Pure.

What may live here: when a condition is True or False, and with which reason. Merging and times are raybus.domain.conditions'.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from raybus.decide.outcome import FAILURES, Outcome, Result
from raybus.domain.conditions import Condition, Status
from raybus_cluster_ctrl.decide import markers
from raybus_cluster_ctrl.decide.world import PROVISIONED, ClusterWorld, Pod

HEAD_READY = "HeadPodReady"
REPLICA_FAILURE = "ReplicaFailure"
SUSPENDED = "RayClusterSuspended"
SUSPENDING = "RayClusterSuspending"
_ALL_ONCE = "All Ray pods were running and ready at the same time for the first time"
_NOT_YET = "Not all Ray pods have been running and ready yet"
_STATUSES: Mapping[str, Status] = {"True": "True", "False": "False"}


def all_running(pods: Iterable[Pod]) -> bool:
    """Whether there are pods and every one is running and not said to be unready."""
    given = tuple(pods)
    return bool(given) and all(pod.is_running for pod in given)


def current_head(world: ClusterWorld) -> Pod | None:
    """The head pod that the status tells about: of several the one that stays."""
    heads = [pod for pod in world.heads if pod.ours]
    return min(heads, key=lambda pod: (pod.terminating, not pod.is_ready, pod.created, pod.name), default=None)


def foreign_head(world: ClusterWorld) -> str:
    """Which head pod of somebody else keeps this cluster from having one, and what to do; empty if none does."""
    if not world.heads or any(pod.ours for pod in world.heads):
        return ""
    return f"Pod {world.heads[0].name} has the labels of this cluster's head and another owner, or none: delete it"


def head_pod_ready(world: ClusterWorld) -> Condition:
    head = current_head(world)
    if head is None:
        message = foreign_head(world) or "There is no head pod"
        return Condition(type=HEAD_READY, status="False", reason="HeadPodNotFound", message=message)
    if head.ready is None:
        return Condition(type=HEAD_READY, status="False", reason="Unknown")
    status = _STATUSES.get(str(head.ready.get("status")), "Unknown")
    reason, message = str(head.ready.get("reason") or ""), str(head.ready.get("message") or "")
    if reason == "ContainersNotReady":
        reason, message = _first_not_running(head.status, reason, message)
    default = "HeadPodRunningAndReady" if status == "True" else "Unknown"
    return Condition(type=HEAD_READY, status=status, reason=reason or default, message=message)


def _first_not_running(status: Mapping[str, Any], reason: str, message: str) -> tuple[str, str]:
    """Reason and message of the first container that waits or has ended, which say more than the pod's own."""
    for container in status.get("containerStatuses") or ():
        state = container.get("state") or {}
        detail = state.get("waiting") or state.get("terminated")
        if detail is not None:
            words = f"{container.get('name')}: {detail.get('message', '')}"
            return str(detail.get("reason") or reason), f"{message}; {words}" if message else words
    return reason, message


def provisioned(world: ClusterWorld) -> Condition | None:
    """None where it stays as it is: once True, it says that the cluster has been there."""
    if world.was_provisioned:
        return None
    if all_running(world.pods):
        return Condition(type=PROVISIONED, status="True", reason="AllPodRunningAndReadyFirstTime", message=_ALL_ONCE)
    return Condition(type=PROVISIONED, status="False", reason="RayClusterPodsProvisioning", message=_NOT_YET)


def not_suspended() -> tuple[Condition, Condition]:
    return (
        Condition(type=SUSPENDED, status="False", reason=SUSPENDED),
        Condition(type=SUSPENDING, status="False", reason=SUSPENDING),
    )


def replica_failure(outcomes: Iterable[Outcome]) -> Condition | None:
    """The first pod that could not be created or deleted in this pass."""
    failed = [o for o in outcomes if o.action.marker in markers.ORDER and o.result in FAILURES]
    if not failed:
        return None
    first = min(failed, key=lambda outcome: markers.ORDER.index(outcome.action.marker))
    reason = first.action.marker
    return Condition(type=REPLICA_FAILURE, status="True", reason=reason, message=f"{reason}\n{first.message}")


def had_error(outcomes: Iterable[Outcome]) -> bool:
    """Whether the pass failed in any way; actions that were put off to the next one are no failure."""
    return any(not outcome.ok and outcome.result is not Result.SKIPPED for outcome in outcomes)
