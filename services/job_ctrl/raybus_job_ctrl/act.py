"""What job_ctrl may do: the list generates its rights. And how the actions are carried out that only it has, those on Ray."""

from __future__ import annotations

from collections.abc import Mapping

from raybus.decide import actions
from raybus.decide.actions import Action, StopRayJob, SubmitRayJob
from raybus.decide.outcome import Outcome, Result
from raybus.ray import NoAnswer, NotFound, RayError, Refused
from raybus.runtime.executor import Handler
from raybus_job_ctrl.build.request import redacted
from raybus_job_ctrl.probe import RayAccess, TokenError

ACTIONS: tuple[type[Action], ...] = (
    actions.PatchRayJob,
    actions.PatchRayJobStatus,
    actions.DeleteRayJob,
    actions.CreateRayCluster,
    actions.DeleteRayCluster,
    actions.CreateJob,
    actions.PatchJob,
    actions.CreateService,
    actions.PatchService,
    SubmitRayJob,
    StopRayJob,
)


class RayActions:
    """Handlers for the actions on Ray."""

    def __init__(self, access: RayAccess) -> None:
        self._access = access

    def handlers(self) -> Mapping[type[Action], Handler]:
        return {SubmitRayJob: self.submit, StopRayJob: self.stop}

    async def submit(self, action: SubmitRayJob) -> Outcome:
        """A submission of this id that exists is success: it is this one, answered for too late."""
        try:
            jobs = await self._access.jobs(action.endpoint)
            await jobs.submit(action.request)
        except Refused as error:
            if error.id_in_use:
                return Outcome(action=action, result=Result.ALREADY_SO, message=error.text, code=error.status)
            result = Result.REFUSED if error.final else Result.FAILED
            words = redacted(error.text or str(error), action.request)
            return Outcome(action=action, result=result, message=words, code=error.status)
        except NoAnswer as error:
            return Outcome(action=action, result=Result.AMBIGUOUS, message=str(error))
        except (RayError, TokenError) as error:
            return Outcome(action=action, result=Result.FAILED, message=str(error))
        return Outcome(action=action, result=Result.DONE, code=200)

    async def stop(self, action: StopRayJob) -> Outcome:
        """A job that ended before, or that Ray does not know, needs no stopping."""
        try:
            jobs = await self._access.jobs(action.endpoint)
            stopped = await jobs.stop(action.submission_id, timeout_s=action.deadline_seconds)
        except NotFound as error:
            return Outcome(action=action, result=Result.ALREADY_SO, message=str(error), code=404)
        except (RayError, TokenError) as error:
            return Outcome(action=action, result=Result.FAILED, message=str(error))
        return Outcome(action=action, result=Result.DONE if stopped else Result.ALREADY_SO, code=200)
