"""One pass over a RayJob: who looks after it, is it being deleted, is it valid, and then its state's rules. Pure."""

from __future__ import annotations

import dataclasses
from datetime import datetime

from raybus.decide.actions import Action, PatchRayJobStatus, Reconsider, RecordEvent
from raybus.decide.outcome import Outcome
from raybus.decide.plan import NOTHING, Plan
from raybus.decide.reasons import NOT_SUPPORTED, Complaint
from raybus.domain import cluster_spec
from raybus_job_ctrl.decide import status as made
from raybus_job_ctrl.decide import unsupported, validation
from raybus_job_ctrl.decide.deletion import deletion
from raybus_job_ctrl.decide.modes import MODES
from raybus_job_ctrl.decide.move import Move
from raybus_job_ctrl.decide.policy import Policy
from raybus_job_ctrl.decide.states import STATES
from raybus_job_ctrl.decide.table import TERMINAL, Deployment, allowed
from raybus_job_ctrl.decide.validation import Problem
from raybus_job_ctrl.decide.world import JobWorld


def decide(world: JobWorld, /, *, policy: Policy, now: datetime) -> Plan:
    """What is to be done now; the status is concluded from what became of it."""
    if world.job is None:
        return NOTHING
    if cluster_spec.managed_elsewhere(world.spec):
        return NOTHING
    if text := unsupported.KINDS.get(world.key.kind):
        return NOTHING if world.deleting else _warned(world, NOT_SUPPORTED, text)
    if world.deleting:
        return deletion(world, policy, now)
    if problem := _problem(world, policy):
        news = made.invalid(world.status, problem.text) != world.status
        return _warned(world, problem.complaint, problem.text) if news else NOTHING
    text = unsupported.problem_of(world)
    if text and _out_of_reach(world):
        return _warned(world, NOT_SUPPORTED, text)
    if world.deployment is None:
        word = world.status.get("jobDeploymentStatus")
        return _warned(world, NOT_SUPPORTED, f"not supported yet: status.jobDeploymentStatus: {word}")
    plan = STATES[world.deployment].act(world, policy, now)
    return dataclasses.replace(plan, steps=((_warning(world, NOT_SUPPORTED, text),), *plan.steps)) if text else plan


def conclude(world: JobWorld, outcomes: tuple[Outcome, ...], /, *, policy: Policy, now: datetime) -> Plan:
    """The status that follows, written once and only if it says something new."""
    move = _move(world, outcomes, policy, now)
    if move is None or move.status == world.status:
        return NOTHING
    before, after = world.deployment, Deployment(move.status.get("jobDeploymentStatus") or "")
    assert before is not None, "a state of others is never moved"
    assert allowed(before, after), f"{before or 'New'} does not become {after or 'New'}"
    patch = PatchRayJobStatus(
        namespace=world.key.namespace,
        name=world.key.name,
        uid=world.meta["uid"],
        resource_version=world.meta["resourceVersion"],
        status=move.status,
        previous=world.status,
        reason=move.reason,
    )
    # Own writes wake nobody, and what is to be done next depends on the status.
    again = Reconsider(reason="the status has changed")
    return Plan(steps=((patch,), (again,)), confirm=move.confirm, notes=(move.reason,))


def _move(world: JobWorld, outcomes: tuple[Outcome, ...], policy: Policy, now: datetime) -> Move | None:
    """None where the object is not for Raybus to move."""
    if world.job is None or world.key.kind in unsupported.KINDS or world.deleting:
        return None
    if cluster_spec.managed_elsewhere(world.spec):
        return None
    if problem := _problem(world, policy):
        return Move(status=made.invalid(world.status, problem.text), reason=problem.text)
    if world.deployment is None or (unsupported.problem_of(world) and _out_of_reach(world)):
        return None
    return STATES[world.deployment].move(world, outcomes, policy, now)


def _problem(world: JobWorld, policy: Policy) -> Problem | None:
    """A spec counts until the verdict; afterwards nothing that is written into it changes what has happened."""
    if world.deployment is None or world.deployment in TERMINAL:
        return None
    return validation.problem_of(world, policy, first=not _begun(world))


def _begun(world: JobWorld) -> bool:
    return bool(world.status.get("rayClusterName"))


def _out_of_reach(world: JobWorld) -> bool:
    """Whether what is asked for leaves nothing that Raybus could do right. A job that runs already goes on without it."""
    spec = world.spec
    if not _begun(world) or (spec.get("clusterSelector") and world.cluster is None):
        return True
    if world.deployment in TERMINAL:
        return spec.get("deletionStrategy") is not None
    return world.mode not in MODES


def _warned(world: JobWorld, complaint: Complaint, text: str) -> Plan:
    return Plan(steps=((_warning(world, complaint, text),),), notes=(text,))


def _warning(world: JobWorld, complaint: Complaint, text: str) -> Action:
    return RecordEvent(
        regarding=world.root,
        type="Warning",
        event_reason=complaint.reason,
        action=complaint.verb,
        note=f"{world.key.namespace}/{world.key.name}: {text}",
        rests=True,
        reason=text,
    )
