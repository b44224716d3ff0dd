"""What has become of the job: the verdict from all evidence there is. Pure.

Evidence is Ray's record, the head it comes from, and what stands beside the job. Only a record of the head that the job was seen
on completes it. A submitter's end completes and fails nothing that Ray knows. The loss of the head fails the job; silence fails it
after a time limit, and then the last known state of the job stays in the status beside the reason.
"""

from __future__ import annotations

import dataclasses
from datetime import datetime, timedelta

from raybus.domain import times
from raybus_job_ctrl.decide import status as made
from raybus_job_ctrl.decide.modes import mode_of
from raybus_job_ctrl.decide.move import Move
from raybus_job_ctrl.decide.policy import Policy
from raybus_job_ctrl.decide.table import ENDED, Deployment, JobState, Reason
from raybus_job_ctrl.decide.world import JobWorld, Poll, Record


def judge(world: JobWorld, policy: Policy, now: datetime) -> Move:
    """The move of a RayJob that is Running."""
    if world.job_state in ENDED:
        return _after_the_end(world, world.status, policy, now)
    name = world.status.get("rayClusterName") or ""
    if world.cluster_gone:
        return lost(world, f"RayCluster {name} was deleted", now, confirm="the RayCluster is gone")
    poll = world.poll
    if poll is None:
        return _stay(world, "Ray was not asked yet")
    if not poll.error and world.known_session and not poll.session:
        poll = dataclasses.replace(poll, record=None, error="what answers does not say which head it is")
    if poll.error:
        return _no_answer(world, poll, policy, now)
    if another_head(world):
        words = f"the head of RayCluster {name} was replaced (session {poll.session} instead of {world.known_session})"
        return lost(world, words, now)
    if not world.known_session and world.head_gone and world.current_poll is not None:
        words = f"the Pod or container that ran the head of RayCluster {name} was replaced"
        return lost(world, words, now, confirm="the head is gone")
    if poll.record is not None:
        return _told(world, poll.record, poll, policy, now)
    return _not_known(world, now)


def lost(world: JobWorld, words: str, now: datetime, *, confirm: str = "") -> Move:
    """Failed: the job's driver and its record ended with the head."""
    seen = bool(world.job_state)
    job = (
        f"job {world.submission_id}, last seen {world.job_state}, ended with it"
        if seen
        else "the job had not been seen"
    )
    message = f"head lost: {words}; {job}"
    told = made.with_cluster(world.status, world.cluster)
    if world.cluster is None:
        told["rayClusterStatus"] = made.EMPTY_CLUSTER
    told = made.put(told, jobStatus=JobState.FAILED if seen else JobState.UNKNOWN)
    ended = made.ended(told, Deployment.FAILED, now, reason=Reason.APP_FAILED, message=message)
    return Move(status=ended, reason=message, confirm=confirm, head_lost=True)


def another_head(world: JobWorld) -> bool:
    """Whether the last answer came from a head that never had this attempt's job from us."""
    poll = world.poll
    return poll is not None and bool(world.known_session and poll.session) and poll.session != world.known_session


def identity_due(world: JobWorld) -> bool:
    """Whether the head that has just answered must be remembered before its word counts."""
    poll = world.poll
    if poll is None or poll.error:
        return False
    if not (world.known_session or world.known_head):
        told = poll.record is not None or mode_of(world).submits_itself
        return told and bool(poll.session or world.head)
    # The same head by its own word: the Pod was noted too early, or records outlive Pods.
    same = bool(poll.session) and poll.session == world.known_session
    return same and bool(world.head) and world.head != world.known_head and world.current_poll is not None


def _stay(world: JobWorld, reason: str) -> Move:
    return Move(status=made.with_cluster(world.status, world.cluster), reason=reason)


def _told(world: JobWorld, record: Record, poll: Poll, policy: Policy, now: datetime) -> Move:
    if not (world.known_session or world.known_head) and identity_due(world):
        return _stay(world, "the head is remembered first")
    status = made.with_cluster(made.with_record(world.status, record, poll.seen_at), world.cluster)
    if record.status in ENDED:
        return _after_the_end(world, status, policy, now)
    return Move(status=made.put(status, reason=""), reason=f"Ray says {record.status}")


def _not_known(world: JobWorld, now: datetime) -> Move:
    """Ray answers that it knows no such job. Only an answer to a question asked after all that is known now counts."""
    if world.current_poll is None:
        return _stay(world, "Ray is asked again")
    if world.job_state:
        words = f"the head of RayCluster {world.status.get('rayClusterName')} has no record of the job any more"
        return lost(world, words, now)
    missing = mode_of(world).missing(world)
    if missing is None:
        answered = made.with_cluster(world.status, world.cluster)
        if not mode_of(world).submits_itself:  # else only a submission that succeeds shows that Ray is in order
            answered = made.put(answered, jobStatusCheckFailureStartTime="")
        return Move(status=answered, reason="Ray does not know the job yet")
    told = made.with_cluster(world.status, world.cluster)
    status = made.ended(told, Deployment.FAILED, now, reason=missing.reason, message=missing.message)
    return Move(status=status, reason=missing.message, confirm=missing.confirm)


def _no_answer(world: JobWorld, poll: Poll, policy: Policy, now: datetime) -> Move:
    if world.head_gone and world.current_poll is not None:
        name = world.status.get("rayClusterName")
        words = f"the Pod or container that ran the head of RayCluster {name} is gone ({poll.error})"
        return lost(world, words, now, confirm="the head is gone")
    status = made.with_cluster(world.status, world.cluster)
    if not poll.asked and world.failing_since is None:
        return Move(status=status, reason=f"Ray cannot be asked: {poll.error}")
    return failing(world, status, f"Ray does not answer: {poll.error}", policy, now)


def failing(world: JobWorld, status: made.Json, words: str, policy: Policy, now: datetime) -> Move:
    """One more failure to reach Ray: it counts from the first one, and after the limit nobody knows what the job does."""
    since = world.failing_since
    if since is None:
        return Move(status=made.put(status, jobStatusCheckFailureStartTime=times.rfc3339(now)), reason=words)
    limit_s, doubt = silence_limit(world, policy)
    if now < since + timedelta(seconds=limit_s):
        return Move(status=status, reason=words)
    seen = f"last seen {world.job_state}" if world.job_state else "never seen"
    message = (
        f"Ray could not be asked about the job since {since:%Y-%m-%d %H:%M:%S} (limit {limit_s:g}s{f', since {doubt}' if doubt else ''}),"
        f" its state is unknown ({seen}): {words}"
    )
    ended = made.ended(status, Deployment.FAILED, now, reason=Reason.STATUS_CHECK_TIMEOUT, message=message)
    return Move(status=ended, reason=message, confirm=doubt)


def silence_limit(world: JobWorld, policy: Policy) -> tuple[float, str]:
    """Seconds that Ray may be silent, and why not longer: a head that is not Ready either does not come back as a rule."""
    cannot_ask = world.poll is not None and not world.poll.asked
    if world.head_in_doubt and not cannot_ask and policy.unready_head_timeout_s < policy.status_check_timeout_s:
        return policy.unready_head_timeout_s, "the head Pod is not Ready"
    return policy.status_check_timeout_s, ""


def _after_the_end(world: JobWorld, status: made.Json, policy: Policy, now: datetime) -> Move:
    """Ray has said how the job ended; what stands beside it may finish, for a while."""
    failed = status.get("jobStatus") == JobState.FAILED
    deployment = Deployment.FAILED if failed else Deployment.COMPLETE
    words = status.get("message") or ""
    helper = mode_of(world).helper(world)
    if helper.finished:
        reason = Reason.APP_FAILED if failed else Reason.NONE
        ended = made.ended(status, deployment, now, reason=reason, message=words)
        return Move(status=ended, reason=f"Ray says {status.get('jobStatus')}")
    due = grace_end(status, policy)
    if due is None or now < due:
        return Move(status=made.put(made.base(status), reason=""), reason=helper.words)
    message = f"the job has ended, but {helper.words} after {policy.transition_grace_s:g}s"
    ended = made.ended(
        status, deployment, now, reason=Reason.TRANSITION_GRACE_EXCEEDED, message=f"{message}; {words}".rstrip("; ")
    )
    return Move(status=ended, reason=message)


def grace_end(status: made.Json, policy: Policy) -> datetime | None:
    """Until when what stands beside an ended job may go on; None while Ray's end is not known."""
    end = times.parse((status.get("rayJobInfo") or {}).get("endTime"))
    if end is None:
        return None
    try:
        return end + timedelta(seconds=policy.transition_grace_s)
    except OverflowError:  # a time of Ray's beyond any calendar
        return end
