"""The questions that every submission mode answers. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from raybus.decide.actions import Action, SubmitRayJob
from raybus_job_ctrl.decide.policy import Policy
from raybus_job_ctrl.decide.table import Reason
from raybus_job_ctrl.decide.world import JobWorld


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """The verdict on a job that Ray never knew. `confirm` names the absence it rests on, if any."""

    reason: Reason
    message: str
    confirm: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Helper:
    """What stands beside the job and should end after it. `words` say why it is not finished."""

    finished: bool
    words: str = ""
    began_at: datetime | None = None
    finished_at: datetime | None = None


class SubmissionMode(Protocol):
    submits_itself: bool
    """Whether Raybus sends the job: then the head is remembered before, so that a lost answer cannot lead to a second run."""

    def before_running(self, world: JobWorld, policy: Policy, address: str) -> tuple[Action, ...]:
        """What must be made once the cluster is ready; nothing if it is there."""

    def prepared(self, world: JobWorld) -> bool:
        """Whether all of that exists."""

    def submission(self, world: JobWorld) -> SubmitRayJob | None:
        """The job's way to Ray, now that Ray has said it does not know it; None if that is not for Raybus to do."""

    def missing(self, world: JobWorld) -> Missing | None:
        """What it means that Ray has never known the job; None to wait."""

    def helper(self, world: JobWorld) -> Helper:
        """How what stands beside the job is doing."""

    def hold_back(self, world: JobWorld) -> tuple[Action, ...]:
        """What keeps the job from being started once more, on the next head."""
