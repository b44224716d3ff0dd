"""What is done in each deployment state, one file per state. Pure.

A state is two answers: `act`, what is to be done while the object is in it, and `move`, what the status should become. The table of
allowed moves is in table.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from raybus_job_ctrl.decide.states import initializing, invalid, new, running, terminal
from raybus_job_ctrl.decide.states.state import State
from raybus_job_ctrl.decide.table import Deployment

STATES: Mapping[Deployment, State] = {
    Deployment.NEW: State(new.act, new.move),
    Deployment.INITIALIZING: State(initializing.act, initializing.move),
    Deployment.RUNNING: State(running.act, running.move),
    Deployment.COMPLETE: State(terminal.act, terminal.move),
    Deployment.FAILED: State(terminal.act, terminal.move),
    Deployment.VALIDATION_FAILED: State(invalid.act, invalid.move),
}
