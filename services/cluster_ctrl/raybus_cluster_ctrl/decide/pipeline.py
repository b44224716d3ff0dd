"""The two decisions of a pass: what to do, and what to say about it afterwards. Pure.

What may live here: the order of the concerns. Each of them is a module beside this one.
"""

from __future__ import annotations

from datetime import datetime

from raybus.decide.actions import DeletePod, Reconsider, RecordEvent
from raybus.decide.outcome import Outcome
from raybus.decide.plan import NOTHING, Plan
from raybus_cluster_ctrl.decide import access, events, head, head_service, status, validation, workers
from raybus_cluster_ctrl.decide.part import joined
from raybus_cluster_ctrl.decide.policy import Policy
from raybus_cluster_ctrl.decide.validation import Refusal
from raybus_cluster_ctrl.decide.world import ClusterWorld


def decide(world: ClusterWorld, /, *, policy: Policy, now: datetime) -> Plan:  # noqa: ARG001 - every decision is given the time
    """What the cluster lacks or has too much. Service, head and workers come side by side: workers wait for the head."""
    refused = validation.refusal(world, policy)
    if refused:
        return _said(world, refused)
    parts = [head_service.decide(world, policy)]
    held_back = head.held_back(world)
    if not held_back:
        parts += [access.decide(world), head.decide(world, policy)]
        parts += [workers.decide(world, group, policy) for group in world.groups]
    whole = joined(parts)
    return Plan(
        steps=tuple(step for step in (whole.first, whole.actions) if step),
        confirm=whole.confirm,
        notes=(*whole.notes, held_back) if held_back else whole.notes,
    )


def conclude(world: ClusterWorld, outcomes: tuple[Outcome, ...], /, *, policy: Policy, now: datetime) -> Plan:
    """Status and events, from the world as it is after the actions of the pass."""
    if world.cluster is None or validation.refusal(world, policy):
        return NOTHING
    told = events.of_pods(world, outcomes)
    new = status.compute(world, outcomes, policy, now)
    due = None
    if status.worth_writing(world.status, new):
        due = status.due_at(world.status, new, policy.status_interval_s)
        if due is None or due <= now:
            told, due = (status.patch(world, new), *told), None
    # Own writes wake nobody, and what a deleted pod leaves behind has still to be filled.
    deleted = any(isinstance(outcome.action, DeletePod) and outcome.ok for outcome in outcomes)
    again = (Reconsider(reason="pods were deleted; what follows depends on what is left"),) if deleted else ()
    return Plan(steps=tuple(step for step in (told, again) if step), wake_at=due)


def _said(world: ClusterWorld, refused: Refusal) -> Plan:
    if refused.complaint is None:
        return Plan(notes=(refused.words,))
    cluster = world.present
    event = RecordEvent(
        reason=refused.words,
        regarding=cluster.root,
        type="Warning",
        event_reason=refused.complaint.reason,
        action=refused.complaint.verb,
        note=f"{cluster.namespace}/{cluster.name}: {refused.words}"[: events.NOTE_MAX],
        rests=True,
    )
    return Plan(steps=((event,),), notes=(refused.words,))
