"""Worker pods of one group: as many as wanted, the right ones. Pure.

What may live here: which pods a group gains or loses in a pass. Pods that are still terminating hold their slot and count as
present, so that a group is never larger than wanted; they are never picked again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import count, islice

from raybus.decide.actions import Action, CreatePod, DeletePod
from raybus.domain import names
from raybus.domain.cluster_spec import WorkerGroup
from raybus_cluster_ctrl.build import pods, target
from raybus_cluster_ctrl.decide import head, markers
from raybus_cluster_ctrl.decide.part import Part
from raybus_cluster_ctrl.decide.policy import Policy
from raybus_cluster_ctrl.decide.world import ClusterWorld, Pod


def decide(world: ClusterWorld, group: WorkerGroup, policy: Policy) -> Part:
    present = world.workers.get(group.name, ())
    live = [pod for pod in present if not pod.terminating]
    deletions = tuple(_delete(world, pod, reason) for pod, reason in _leaving(world, group, live, policy))
    missing = max(group.wanted_pods - len(present), 0)
    creations = tuple(islice(_creations(world, group, present, policy), missing))
    return Part(
        actions=(*deletions, *creations),
        confirm=f"workers of group {group.name} are to be deleted" if deletions else "",
        notes=_notes(group, present),
    )


def _leaving(world: ClusterWorld, group: WorkerGroup, live: list[Pod], policy: Policy) -> Iterator[tuple[Pod, str]]:
    """The pods to be deleted, with the reason: lost ones, named ones of this group, then those above the wanted number."""
    named = frozenset(group.to_delete)
    rest = []
    for pod in live:
        if pod.is_lost:
            yield pod, f"worker {pod.name} {head.ended(pod)}"
        elif pod.name in named:
            yield pod, f"worker {pod.name} is named in workersToDelete of group {group.name}"
        else:
            rest.append(pod)
    if world.present.autoscaling and not policy.random_pod_delete:
        return  # the autoscaler alone says who goes: it knows who is idle
    surplus = max(len(rest) - group.wanted_pods, 0)
    for pod in sorted(rest, key=_first_to_go)[:surplus]:
        yield pod, f"group {group.name} has {len(rest)} workers and wants {group.wanted_pods}"


def _first_to_go(pod: Pod) -> tuple[bool, bool, int, str]:
    """Those that do no work yet, then the last slots: what stays is a group without gaps."""
    return (pod.is_ready, pod.phase == "Running", -(pod.slot if pod.slot is not None else 1 << 31), pod.name)


def _creations(world: ClusterWorld, group: WorkerGroup, present: Iterable[Pod], policy: Policy) -> Iterator[Action]:
    """Creations for the free slots, lowest first; without end."""
    cluster = world.present
    built = target.worker_group(cluster, group.raw, policy)
    prefix = pods.generate_name(cluster, group.name)
    taken = set(world.names).union(*(other.to_delete for other in world.groups))
    used = {pod.slot for pod in present}
    for slot in count():
        if slot in used:
            continue
        place = names.Place(uid=cluster.uid, group=group.name, slot=slot)
        name = names.child_name(prefix, place, world.last_seen.get((group.name, slot), ""), taken)
        taken.add(name)
        yield CreatePod(
            body=pods.pod(built, slot=slot, name=name),
            reason=f"group {group.name} wants {group.wanted_pods} workers",
            marker=markers.CREATE_WORKER,
        )


def _delete(world: ClusterWorld, pod: Pod, reason: str) -> Action:
    return DeletePod(
        namespace=world.present.namespace,
        name=pod.name,
        uid=pod.uid,
        group=pod.group,
        reason=reason,
        marker=markers.DELETE_WORKER,
    )


def _notes(group: WorkerGroup, present: Sequence[Pod]) -> tuple[str, ...]:
    notes = []
    if group.replicas is not None and group.replicas != group.wanted_replicas:
        notes.append(f"group {group.name}: replicas {group.replicas} counts as {group.wanted_replicas}, its bound")
    terminating = sum(pod.terminating for pod in present)
    if terminating and len(present) >= group.wanted_pods:
        notes.append(f"group {group.name}: {terminating} workers are terminating and still count")
    return tuple(notes)
