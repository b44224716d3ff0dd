"""Planted defects of what looks after RayJobs."""

from __future__ import annotations

from dataclasses import replace

from raybus.decide.actions import StopRayJob
from raybus.decide.outcome import Outcome, Result
from raybus_job_ctrl import act, probe
from raybus_job_ctrl.decide import deletion, status, verdict
from raybus_job_ctrl.decide.states import new, running
from raybus_job_ctrl.decide.table import Deployment, JobState
from simulation.sim.defects.registry import defect


@defect("resubmit-to-another-head", "J1", "job-http", groups="EFGD")
def resubmit_to_another_head() -> None:
    """A head that does not know the job is given it, whichever head it is."""
    original = running._submission

    def submission(world):
        return original(replace(world, known_session="", status={**world.status, "jobStatus": ""}))

    running._submission = submission
    verdict.another_head = lambda _world: False


@defect("cluster-before-its-name", "J2 J3", "job-http")
def cluster_before_its_name() -> None:
    """The state moves on before names are stored: the first status write is left out of the way."""
    original = new.move

    def move(world, outcomes, policy, now):
        found = original(world, outcomes, policy, now)
        return replace(found, status={key: value for key, value in found.status.items() if key != "jobId"})

    new.move = move


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
    original = new.move

    def move(world, outcomes, policy, now):
        found = original(world, outcomes, policy, now)
        state = found.status.get("jobDeploymentStatus")
        return replace(found, status={**found.status, "jobDeploymentStatus": Deployment.RUNNING}) if state else found

    new.move = move


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
