"""ValidationFailed: nothing is done until the spec is mended, and only where nothing had been made. Pure.

Whether the spec is valid has been looked at before a state is asked.
"""

from __future__ import annotations

from datetime import datetime

from raybus.decide.plan import NOTHING, Plan
from raybus_job_ctrl.decide import status as made
from raybus_job_ctrl.decide.move import Move
from raybus_job_ctrl.decide.policy import Policy
from raybus_job_ctrl.decide.states.state import Outcomes
from raybus_job_ctrl.decide.world import JobWorld


def act(world: JobWorld, policy: Policy, now: datetime) -> Plan:  # noqa: ARG001 - the shape of a state
    return NOTHING


def move(world: JobWorld, outcomes: Outcomes, policy: Policy, now: datetime) -> Move:  # noqa: ARG001 - the shape of a state
    if world.status.get("rayClusterName"):
        return Move(status=world.status, reason="it had begun already; delete the RayJob and create it again")
    status = made.put(world.status, jobDeploymentStatus="", reason="", message="")
    return Move(status=status, reason="the spec is valid now")
