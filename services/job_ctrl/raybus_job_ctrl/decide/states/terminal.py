"""Complete and Failed: the verdict stands; what is left to do is tidying. Pure."""

from __future__ import annotations

import dataclasses
from datetime import datetime

from raybus.decide.plan import Plan
from raybus_job_ctrl.decide.cleanup import cleanup
from raybus_job_ctrl.decide.modes import MODES
from raybus_job_ctrl.decide.move import Move
from raybus_job_ctrl.decide.policy import Policy
from raybus_job_ctrl.decide.states.state import Outcomes
from raybus_job_ctrl.decide.table import Deployment, Reason
from raybus_job_ctrl.decide.world import JobWorld


def act(world: JobWorld, policy: Policy, now: datetime) -> Plan:
    plan = cleanup(world, policy, now)
    mode = MODES.get(world.mode)
    held = mode.hold_back(world) if mode is not None and _might_start_again(world) else ()
    # Side by side: a submitter that cannot be held back must not keep the cluster.
    return dataclasses.replace(plan, steps=((*held, *plan.actions),)) if held else plan


def _might_start_again(world: JobWorld) -> bool:
    """Whether what submits would find no such job and start it, now that the verdict stands."""
    lost = world.deployment is Deployment.FAILED and world.status.get("reason") == Reason.APP_FAILED
    return lost or world.head_gone or not world.job_state


def move(world: JobWorld, outcomes: Outcomes, policy: Policy, now: datetime) -> Move:  # noqa: ARG001 - the shape of a state
    return Move(status=world.status, reason="the verdict stands")
