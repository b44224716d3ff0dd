"""The shape of a state. Pure."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple

from raybus.decide.outcome import Outcome
from raybus.decide.plan import Plan
from raybus_job_ctrl.decide.move import Move
from raybus_job_ctrl.decide.policy import Policy
from raybus_job_ctrl.decide.world import JobWorld

Outcomes = tuple[Outcome, ...]


class State(NamedTuple):
    """`act` plans effects; `move` says what the status becomes, after the pass's actions had these outcomes."""

    act: Callable[[JobWorld, Policy, datetime], Plan]
    move: Callable[[JobWorld, Outcomes, Policy, datetime], Move]
