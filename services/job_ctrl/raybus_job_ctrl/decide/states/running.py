"""Running: Ray is asked, and believed. Pure. What the answers mean is in verdict.py."""

from __future__ import annotations

from datetime import datetime, timedelta

from raybus.decide.actions import Action, CreateService, PatchRayJob, PatchService, Reconsider, StopRayJob, SubmitRayJob
from raybus.decide.outcome import Outcome, Result
from raybus.decide.plan import Plan, WatchRayJob, earliest
from raybus.domain import labels, owners
from raybus_job_ctrl.build.head_service import endpoint, job_head_service, name_of
from raybus_job_ctrl.decide import reasons, verdict
from raybus_job_ctrl.decide import status as made
from raybus_job_ctrl.decide.modes import mode_of
from raybus_job_ctrl.decide.move import Move
from raybus_job_ctrl.decide.policy import Policy
from raybus_job_ctrl.decide.polling import interval
from raybus_job_ctrl.decide.states.state import Outcomes
from raybus_job_ctrl.decide.table import ENDED, Deployment, JobState, Reason
from raybus_job_ctrl.decide.world import JobWorld


def act(world: JobWorld, policy: Policy, now: datetime) -> Plan:
    probes, poll_changes = _probes(world, policy, now)
    if (judged := verdict.judge(world, policy, now)).head_lost:
        held = _held_back(world)
        return Plan(steps=(held,) if held else (), confirm=judged.confirm, probes=probes, notes=(judged.reason,))
    due = verdict.identity_due(world)
    submission = None if due else _submission(world)
    # Side by side: an address that cannot be made must not keep the job back.
    first = (
        *((_remember(world),) if due else ()),
        *((submission,) if submission else ()),
        *(mode_of(world).hold_back(world) if world.job_state in ENDED and world.head_gone else ()),
        *_head_service(world, policy),
    )
    steps = [first] if first else []
    if due:
        steps.append((Reconsider(reason="the head is remembered; now its word counts"),))
    return Plan(
        steps=tuple(steps),
        probes=probes,
        wake_at=earliest(poll_changes, _deadline(world, policy)),
        notes=(f"job {world.submission_id}: {world.job_state or 'not seen yet'}",),
    )


def move(world: JobWorld, outcomes: Outcomes, policy: Policy, now: datetime) -> Move:
    sent = next((outcome for outcome in outcomes if isinstance(outcome.action, SubmitRayJob)), None)
    if sent is None or sent.result is Result.SKIPPED or world.job_state:
        return verdict.judge(world, policy, now)
    return _after_submission(world, sent, policy, now)


def _after_submission(world: JobWorld, sent: Outcome, policy: Policy, now: datetime) -> Move:
    """Ray took the job: from now on it is expected to know it. Ray will never take it: the job has failed."""
    status = made.with_cluster(world.status, world.cluster)
    if sent.ok:
        taken = made.put(status, jobStatus=JobState.PENDING, jobStatusCheckFailureStartTime="")
        return Move(status=taken, reason="Ray has taken the job")
    if sent.result is Result.REFUSED:
        message = f"Ray refused the job: {sent.message}"
        failed = made.ended(status, Deployment.FAILED, now, reason=Reason.SUBMISSION_FAILED, message=message)
        return Move(status=failed, reason=message)
    return verdict.failing(world, status, f"the job could not be sent: {sent.message}", policy, now)


def _held_back(world: JobWorld) -> tuple[Action, ...]:
    """Before the verdict: nothing starts the job again, and what was started on the next head already is stopped."""
    held, poll = mode_of(world).hold_back(world), world.poll
    if world.cluster is None or poll is None or poll.record is None or poll.record.status in ENDED:
        return held
    stop = StopRayJob(
        endpoint=endpoint(world.cluster, world.address),
        submission_id=world.submission_id,
        reason="the job was lost with its head, and was started again on the next one",
    )
    return (*held, stop)


def _submission(world: JobWorld) -> SubmitRayJob | None:
    """The job is sent once Ray says that it does not know it, and never after it was seen."""
    poll = world.current_poll
    if world.job_state or poll is None or not poll.missing:
        return None
    if world.known_session and poll.session != world.known_session:
        return None
    return mode_of(world).submission(world)


def _remember(world: JobWorld) -> PatchRayJob:
    session = world.poll.session if world.poll is not None else ""
    remembered = {labels.HEAD_SESSION: session, labels.HEAD_POD: world.head}
    return PatchRayJob(
        namespace=world.key.namespace,
        name=world.key.name,
        uid=world.meta["uid"],
        resource_version=world.meta["resourceVersion"],
        patch={"metadata": {"annotations": {key: value for key, value in remembered.items() if value}}},
        reason="the head that has the job is remembered, so that another one is not taken for it",
    )


def _probes(world: JobWorld, policy: Policy, now: datetime) -> tuple[tuple[WatchRayJob, ...], datetime | None]:
    """What to ask Ray, and when the interval changes by itself. Nothing once Ray has said how the job ended."""
    if world.cluster is None or not world.address or world.job_state in ENDED:
        return (), None
    seconds, until = interval(world, policy, now)
    watch = WatchRayJob(
        endpoint=endpoint(world.cluster, world.address),
        submission_id=world.submission_id,
        interval_s=seconds,
        token=world.token,
    )
    return (watch,), until


def _deadline(world: JobWorld, policy: Policy) -> datetime | None:
    if world.job_state in ENDED:
        return verdict.grace_end(world.status, policy)
    if world.failing_since is None:
        return None
    return world.failing_since + timedelta(seconds=verdict.silence_limit(world, policy)[0])


def _head_service(world: JobWorld, policy: Policy) -> tuple[Action, ...]:
    """The RayJob's own head Service exists and selects the present cluster."""
    if world.cluster is None or "Service" not in world.complete:
        return ()
    name = name_of(world.key.name)
    note = f"Service {world.key.namespace}/{name}"
    wanted = job_head_service(world.root, world.cluster, cluster_ip=policy.head_cluster_ip)
    if world.head_service is None:
        announce = reasons.CREATE_SERVICE.announced(note)
        return (CreateService(body=wanted, reason="the RayJob's own address does not exist", announce=announce),)
    meta, spec = world.head_service["metadata"], world.head_service.get("spec") or {}
    selected = (spec.get("selector") or {}).get(labels.CLUSTER)
    if selected == world.cluster["metadata"]["name"] or owners.controller_uid(world.head_service) != world.meta["uid"]:
        return ()
    address = {key: spec[key] for key in ("clusterIP", "clusterIPs") if key in spec}
    return (
        PatchService(
            namespace=meta["namespace"],
            name=meta["name"],
            uid=meta["uid"],
            resource_version=meta["resourceVersion"],
            patch={"spec": {**wanted["spec"], **address}},
            reason=f"the RayJob's own address leads to cluster {selected}",
            announce=reasons.UPDATE_SERVICE.announced(note),
        ),
    )
