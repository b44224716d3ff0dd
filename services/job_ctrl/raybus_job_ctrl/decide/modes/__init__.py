"""The ways a job gets to Ray, one file each. Pure.

A mode is a set of answers; states, verdict, clean-up and deletion ask them and know no mode by name. A new mode is a new file
and a line in `MODES`. If something else would need to ask which mode it is, a question is missing here.
"""

from __future__ import annotations

from collections.abc import Mapping

from raybus_job_ctrl.decide.modes.http import HttpMode
from raybus_job_ctrl.decide.modes.k8s_job import K8sJobMode
from raybus_job_ctrl.decide.modes.mode import SubmissionMode
from raybus_job_ctrl.decide.table import Mode
from raybus_job_ctrl.decide.world import JobWorld

MODES: Mapping[str, SubmissionMode] = {Mode.K8S_JOB: K8sJobMode(), Mode.HTTP: HttpMode()}


def mode_of(world: JobWorld) -> SubmissionMode:
    """The mode of this RayJob. KeyError for one that is not supported: such objects are turned away before."""
    return MODES[world.mode]
