"""K8sJobMode: a Kubernetes Job submits and then follows the log. Pure.

The Job submits once, however often its Pods are replaced. Its end is a hint; what happened to the job only Ray knows.
"""

from __future__ import annotations

from raybus.decide.actions import Action, CreateJob, PatchJob, SubmitRayJob
from raybus.domain import times
from raybus_job_ctrl.build.submitter import submitter_job
from raybus_job_ctrl.decide import reasons
from raybus_job_ctrl.decide.modes.mode import Helper, Missing
from raybus_job_ctrl.decide.policy import Policy
from raybus_job_ctrl.decide.table import Reason
from raybus_job_ctrl.decide.world import JobWorld, Phase


class K8sJobMode:
    submits_itself = False

    def before_running(self, world: JobWorld, policy: Policy, address: str) -> tuple[Action, ...]:
        if world.submitter.phase is not Phase.ABSENT or world.cluster is None:
            return ()
        body = submitter_job(
            world.root,
            world.cluster,
            address=address,
            submission_id=world.submission_id,
            login_shell=policy.login_shell,
        )
        announce = reasons.CREATE_SUBMITTER.announced(f"Job {world.key.namespace}/{world.key.name}")
        return (CreateJob(body=body, reason="the cluster is ready and nothing submits the job", announce=announce),)

    def prepared(self, world: JobWorld) -> bool:
        return world.submitter.job is not None

    def submission(self, world: JobWorld) -> SubmitRayJob | None:  # noqa: ARG002 - the Job does it
        return None

    def missing(self, world: JobWorld) -> Missing | None:
        submitter, job_id = world.submitter, world.submission_id
        if submitter.phase is Phase.FAILED:
            words = f"submitter Job {world.key.name} failed, and Ray knows no job {job_id}"
            return Missing(reason=Reason.SUBMISSION_FAILED, message=f"{words}: {submitter.reason}: {submitter.message}")
        if submitter.phase is Phase.COMPLETE:
            words = f"submitter Job {world.key.name} has finished, but Ray knows no job {job_id}"
            return Missing(reason=Reason.APP_FAILED, message=words)
        if submitter.phase is Phase.ABSENT:
            words = f"submitter Job {world.key.name} was deleted before Ray knew the job {job_id}"
            return Missing(reason=Reason.SUBMISSION_FAILED, message=words, confirm="the submitter Job is gone")
        return None

    def helper(self, world: JobWorld) -> Helper:
        submitter = world.submitter
        began = times.parse(submitter.job["metadata"].get("creationTimestamp")) if submitter.job is not None else None
        return Helper(
            finished=submitter.finished or submitter.suspended or submitter.phase is Phase.ABSENT,
            words=f"submitter Job {world.key.name} has not ended",
            began_at=began,
            finished_at=submitter.finished_at,
        )

    def hold_back(self, world: JobWorld) -> tuple[Action, ...]:
        """A submitter that still runs would find no job on the new head and submit it again."""
        job = world.submitter.job
        if job is None or world.submitter.phase is not Phase.ACTIVE or world.submitter.suspended:
            return ()
        meta = job["metadata"]
        return (
            PatchJob(
                namespace=meta["namespace"],
                name=meta["name"],
                uid=meta["uid"],
                resource_version=meta["resourceVersion"],
                patch={"spec": {"suspend": True}},
                reason="the head that had the job is gone; the submitter must not start it again on the next one",
            ),
        )
