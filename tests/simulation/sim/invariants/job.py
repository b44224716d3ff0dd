"""What holds of RayJobs (J1 to J4).

What may live here: one class for each invariant. The tables of states are written down here a second time, on purpose.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulation.sim.invariants.common import is_product
from simulation.sim.invariants.violation import Violation
from simulation.sim.world import Watcher

if TYPE_CHECKING:
    from simulation.sim.actors.apiserver import Change, Json
    from simulation.sim.actors.dashboard import Submission
    from simulation.sim.world import World

RAYJOBS = "rayjobs.ray.io"
EDGES = {
    ("", "Initializing"), ("", "ValidationFailed"), ("Initializing", "Running"), ("Initializing", "ValidationFailed"),
    ("Running", "Complete"), ("Running", "Failed"), ("Running", "ValidationFailed"), ("ValidationFailed", ""),
}  # fmt: skip
PAIRS = {
    "": {""},
    "Initializing": {""},
    "Running": {"", "PENDING", "RUNNING", "STOPPED", "SUCCEEDED", "FAILED"},
    "Complete": {"STOPPED", "SUCCEEDED"},
    "Failed": {"", "PENDING", "RUNNING", "FAILED"},
    "ValidationFailed": {"", "PENDING", "RUNNING", "STOPPED", "SUCCEEDED", "FAILED"},
}


def job_of(world: World, submission: str) -> Json | None:
    return next((job for job in world.api.all(RAYJOBS) if (job.get("status") or {}).get("jobId") == submission), None)


class OneSubmission(Watcher):
    """J1: a job begins at most once per head; where Raybus sends it itself, at most once at all."""

    def on_submitted(self, world: World, submission: Submission) -> None:
        same = [each for each in world.dashboards.submissions if each.name == submission.name]
        if len({each.session for each in same}) != len(same):
            raise Violation("J1", f"job {submission.name} began twice on {submission.session}")
        of_cluster = [each for each in world.dashboards.submissions if each.cluster == submission.cluster]
        if len(of_cluster) > 1 and submission.who.startswith("job-ctrl"):
            jobs = ", ".join(f"{each.name} on {each.session}" for each in of_cluster)
            raise Violation("J1", f"Raybus sent more than one job to cluster {submission.cluster}: {jobs}")


class NamesFirst(Watcher):
    """J2: when a cluster or a submission is made, the stored status names it already."""

    def on_submitted(self, world: World, submission: Submission) -> None:
        job = job_of(world, submission.name)
        if submission.who.startswith("job-ctrl") and (job is None or not job["status"].get("startTime")):
            raise Violation("J2", f"job {submission.name} was sent before the status named it")

    def on_change(self, world: World, change: Change) -> None:
        if change.resource != "rayclusters.ray.io" or change.type != "ADDED" or not is_product(change.writer.who):
            return
        for job in world.api.all(RAYJOBS):
            status = job.get("status") or {}
            if status.get("rayClusterName") == change.name and status.get("jobId") and status.get("startTime"):
                return
        if world.late_creations:
            return  # decided on for a RayJob of before; see invariants/cluster.py
        raise Violation("J2", f"{change.target} was made before the status of its RayJob named it")


class AllowedStates(Watcher):
    """J3: every move of the deployment status is an edge of the table, every pair one of the list."""

    def on_change(self, world: World, change: Change) -> None:
        if change.resource != RAYJOBS or change.type == "DELETED":
            return
        before = ((change.old or {}).get("status") or {}).get("jobDeploymentStatus") or ""
        status = change.obj.get("status") or {}
        after, state = status.get("jobDeploymentStatus") or "", status.get("jobStatus") or ""
        if before != after and (before, after) not in EDGES:
            raise Violation("J3", f"{change.target} went from {before or 'New'} to {after or 'New'}")
        if state not in PAIRS.get(after, {state}):
            raise Violation("J3", f"{change.target} is {after} with job status {state or 'unknown'}")


class TrueVerdict(Watcher):
    """J4: a job is called SUCCEEDED only if Ray's record says so, on the head that is remembered for it."""

    def on_change(self, world: World, change: Change) -> None:
        if change.resource != RAYJOBS or change.type == "DELETED":
            return
        status = change.obj.get("status") or {}
        before = ((change.old or {}).get("status") or {}).get("jobStatus")
        if status.get("jobStatus") != "SUCCEEDED" or before == "SUCCEEDED":
            return
        name = status.get("jobId")
        session = (change.obj["metadata"].get("annotations") or {}).get("raybus.io/head-session")
        told = [
            head.session
            for head in world.dashboards.heads.values()
            if name in head.jobs and head.jobs[name].status == "SUCCEEDED"
        ]
        if session not in told:
            raise Violation(
                "J4",
                f"{change.target} is called SUCCEEDED; remembered is {session}, Ray says so on {told or 'no head'}",
            )


ALL: tuple[type[Watcher], ...] = (OneSubmission, NamesFirst, AllowedStates, TrueVerdict)
