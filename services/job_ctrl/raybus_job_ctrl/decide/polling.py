"""How often Ray is asked about a job. Pure.

Often while something is about to change: just after the submission, and just after the submitter ended, so that the verdict does not
lag; else at leisure.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from raybus.domain import times
from raybus_job_ctrl.decide.modes import mode_of
from raybus_job_ctrl.decide.policy import Policy
from raybus_job_ctrl.decide.world import JobWorld

BEGINNING = timedelta(seconds=120)  # a submitter's Pod needs so long to start at most, as a rule
FIRST_SECONDS = timedelta(seconds=10)
AFTER_HELPER = timedelta(seconds=10)


def interval(world: JobWorld, policy: Policy, now: datetime) -> tuple[float, datetime | None]:
    """Seconds between two polls, and when that ends."""
    helper = mode_of(world).helper(world)
    if helper.finished_at is not None and now < helper.finished_at + AFTER_HELPER:
        return policy.urgent_poll_s, helper.finished_at + AFTER_HELPER
    if world.job_state:
        began, span = world.ray_started_at, FIRST_SECONDS
    else:
        began, span = helper.began_at or times.parse(world.status.get("startTime")), BEGINNING
    if began is not None and now < began + span:
        return policy.quick_poll_s, began + span
    return policy.poll_s, None
