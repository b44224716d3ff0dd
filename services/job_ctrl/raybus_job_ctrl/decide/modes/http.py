"""HTTPMode: Raybus sends the job to Ray itself; nothing stands beside it. Pure."""

from __future__ import annotations

from raybus.decide.actions import Action, SubmitRayJob
from raybus_job_ctrl.build.head_service import endpoint
from raybus_job_ctrl.build.request import submit_request
from raybus_job_ctrl.decide.modes.mode import Helper, Missing
from raybus_job_ctrl.decide.policy import Policy
from raybus_job_ctrl.decide.world import JobWorld


class HttpMode:
    submits_itself = True

    def before_running(self, world: JobWorld, policy: Policy, address: str) -> tuple[Action, ...]:  # noqa: ARG002 - nothing is made
        return ()

    def prepared(self, world: JobWorld) -> bool:  # noqa: ARG002 - as above
        return True

    def submission(self, world: JobWorld) -> SubmitRayJob | None:
        if world.cluster is None:
            return None
        return SubmitRayJob(
            endpoint=endpoint(world.cluster, world.address),
            submission_id=world.submission_id,
            request=submit_request(world.spec, world.submission_id),
            reason="Ray does not know the job yet",
        )

    def missing(self, world: JobWorld) -> Missing | None:  # noqa: ARG002 - it is sent then
        return None

    def helper(self, world: JobWorld) -> Helper:  # noqa: ARG002 - there is none
        return Helper(finished=True)

    def hold_back(self, world: JobWorld) -> tuple[Action, ...]:  # noqa: ARG002 - there is nothing that submits
        return ()
