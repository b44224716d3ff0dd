"""The head pod: exactly one. Pure.

What may live here: when a head is created, deleted, or left alone. Two heads would be two clusters under one name, so none
is created while any head pod is there, be it terminating.
"""

from __future__ import annotations

from raybus.decide.actions import Action, CreatePod, DeletePod
from raybus.domain import labels, names
from raybus_cluster_ctrl.build import pods, target
from raybus_cluster_ctrl.decide import conditions, markers
from raybus_cluster_ctrl.decide.part import Part
from raybus_cluster_ctrl.decide.policy import Policy
from raybus_cluster_ctrl.decide.world import ClusterWorld, Pod

_SLOT = 0


def held_back(world: ClusterWorld) -> str:
    """Why a lost head, and with it all pods, are not made again; empty if they are."""
    asked = world.present.annotations.get(labels.DISABLE_HEAD_RESTART) == "true"
    if asked and world.was_provisioned and not world.heads:
        return f"the head is gone and annotation {labels.DISABLE_HEAD_RESTART} says that it stays so"
    return ""


def decide(world: ClusterWorld, policy: Policy) -> Part:
    if not world.heads:
        return Part(actions=(_create(world, policy),))
    mine = [pod for pod in world.heads if pod.ours]
    live = [pod for pod in mine if not pod.terminating]
    lost = [pod for pod in live if pod.is_lost]
    surplus = sorted((pod for pod in live if not pod.is_lost), key=_keep_first)[1:]
    deletions: list[Action] = [_delete(world, pod, f"head pod {pod.name} {ended(pod)}") for pod in lost]
    deletions += [_delete(world, pod, f"head pod {pod.name} is one too many") for pod in surplus]
    notes = []
    if not mine:
        notes.append(f"no head is created beside another: {conditions.foreign_head(world)}")
    elif not live:
        notes.append(f"head pod {mine[0].name} is terminating; its successor waits until it is gone")
    return Part(
        actions=tuple(deletions), confirm="a head pod is to be deleted" if deletions else "", notes=tuple(notes)
    )


def ended(pod: Pod) -> str:
    """What became of a lost pod, in words; an eviction is named."""
    if pod.phase in ("Failed", "Succeeded"):
        reason, message = pod.status.get("reason", ""), pod.status.get("message", "")
        details = ": ".join(part for part in (reason, message) if part)
        return f"has phase {pod.phase}" + (f" ({details})" if details else "")
    return f"has ended its Ray container, which restart policy {pod.restart_policy} does not start again"


def _keep_first(pod: Pod) -> tuple[bool, bool, str, str]:
    return (not pod.is_ready, pod.phase != "Running", pod.created, pod.name)


def _create(world: ClusterWorld, policy: Policy) -> Action:
    group = target.head_group(world.present, policy)
    body = pods.pod(group, slot=_SLOT, name=_name(world, group, policy))
    reason = "there is no head pod" if world.status else "a new cluster needs its head"
    return CreatePod(body=body, reason=reason, marker=markers.CREATE_HEAD)


def _name(world: ClusterWorld, group: target.Group, policy: Policy) -> str:
    cluster = world.present
    if policy.fixed_head_name:
        return names.pod_name(cluster.name, "head", generate=False)
    given = (group.template.get("metadata") or {}).get("name")
    if given:
        return str(given)
    place = names.Place(uid=cluster.uid, group=group.name, slot=_SLOT)
    salt = world.last_seen.get((group.name, _SLOT), "")
    return names.child_name(pods.generate_name(cluster, group.name), place, salt, world.names)


def _delete(world: ClusterWorld, pod: Pod, reason: str) -> Action:
    return DeletePod(
        namespace=world.present.namespace,
        name=pod.name,
        uid=pod.uid,
        group=pod.group,
        reason=reason,
        marker=markers.DELETE_HEAD,
    )
