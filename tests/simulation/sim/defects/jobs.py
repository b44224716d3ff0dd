"""Planted defects of what looks after RayJobs."""

from __future__ import annotations

from dataclasses import replace

from raybus.decide.actions import StopRayJob
from raybus.decide.outcome import Outcome, Result
from raybus_job_ctrl import act, probe
from raybus_job_ctrl.decide import deletion, pipeline, status, verdict
from raybus_job_ctrl.decide.states import STATES, running
from raybus_job_ctrl.decide.table import Deployment, JobState
from simulation.sim.defects.registry import defect


@defect("resubmit-on-time-out", "J1", "job-http", groups="F")
def resubmit_on_time_out() -> None:
    """A submission that nobody answered for is sent once more, under another id."""
    original = act.RayActions.submit

    async def submit(self, action):
        outcome = await original(self, action)
        if outcome.result is Result.AMBIGUOUS:
            again = f"{action.submission_id}-2"
            request = {**action.request, "submission_id": again}
            return await original(self, replace(action, submission_id=again, request=request))
        return outcome

    act.RayActions.submit = submit


@defect("cluster-before-its-name", "J2", "job-http")
def cluster_before_its_name() -> None:
    """The state moves on before all names are stored."""
    _moves_from_new(lambda status: {key: value for key, value in status.items() if key != "jobId"})


@defect("silence-is-success", "J4", "job-http", groups="FGED")
def silence_is_success() -> None:
    """A dashboard that does not answer any more has surely finished the job."""

    def failing(world, told, words, policy, now):
        ended = {**told, "jobStatus": JobState.SUCCEEDED}
        return verdict.Move(status=status.ended(ended, Deployment.COMPLETE, now), reason=words)

    verdict.failing = failing


@defect("finalizer-for-ever", "X3", "job-deleted")
def finalizer_for_ever() -> None:
    """A RayJob that is being deleted waits for its job to be stopped, however long."""
    original = act.RayActions.stop

    async def stop(self, action: StopRayJob) -> Outcome:
        outcome = await original(self, action)
        return replace(outcome, result=Result.FAILED) if outcome.ok else outcome

    act.RayActions.stop = stop
    deletion_limit = deletion.timedelta

    deletion.timedelta = lambda **_given: deletion_limit(days=1)


@defect("running-at-once", "J3", "job-http")
def running_at_once() -> None:
    """A new RayJob is called Running before anything is made."""
    pipeline.allowed = lambda _before, _after: True
    _moves_from_new(lambda status: {**status, "jobDeploymentStatus": Deployment.RUNNING} if status else status)


@defect("old-record-is-believed", "J4 J1 X2", "job-http", groups="FGE")
def old_record_is_believed() -> None:
    """What one head says is put together with the session of another."""
    original = probe.JobProber._ask

    async def ask(self, jobs, watch):
        found = await original(self, jobs, watch)
        return {**found, "session": "session_1"} if found.get("session") else found

    probe.JobProber._ask = ask


@defect("never-asks-again", "X2", "job-http")
def never_asks_again() -> None:
    """Ray is not watched while the job runs."""
    running._probes = lambda _world, _policy, _now: ((), None)


def _moves_from_new(change):
    """The status that follows on a new RayJob is another one."""
    original = STATES[Deployment.NEW]

    def move(world, outcomes, policy, now):
        found = original.move(world, outcomes, policy, now)
        return replace(found, status=change(found.status)) if found.status.get("jobDeploymentStatus") else found

    STATES[Deployment.NEW] = original._replace(move=move)
