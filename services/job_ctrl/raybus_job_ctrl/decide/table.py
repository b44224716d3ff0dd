"""The states of a RayJob and how it moves between them, as data. Pure; nothing else may live here.

Values are the API's words. `EDGES` is what a status may become next; staying is always allowed. `PAIRS` lists, per deployment
state, the job states that may stand beside it: anything else would contradict itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Deployment(StrEnum):
    """`status.jobDeploymentStatus`: how far Raybus is with the object."""

    NEW = ""
    INITIALIZING = "Initializing"
    RUNNING = "Running"
    COMPLETE = "Complete"
    FAILED = "Failed"
    VALIDATION_FAILED = "ValidationFailed"


class JobState(StrEnum):
    """`status.jobStatus`: what Ray says about the job. Other words of Ray's are kept as they are and count as not ended."""

    UNKNOWN = ""
    PENDING = "PENDING"
    RUNNING = "RUNNING"
    STOPPED = "STOPPED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"


class Reason(StrEnum):
    """`status.reason`: why a RayJob failed, or was completed without waiting any longer."""

    NONE = ""
    SUBMISSION_FAILED = "SubmissionFailed"
    APP_FAILED = "AppFailed"
    TRANSITION_GRACE_EXCEEDED = "JobDeploymentStatusTransitionGracePeriodExceeded"
    STATUS_CHECK_TIMEOUT = "JobStatusCheckTimeoutExceeded"
    VALIDATION_FAILED = "ValidationFailed"


class Mode(StrEnum):
    K8S_JOB = "K8sJobMode"
    HTTP = "HTTPMode"
    INTERACTIVE = "InteractiveMode"
    SIDECAR = "SidecarMode"


ENDED: frozenset[str] = frozenset({JobState.STOPPED, JobState.SUCCEEDED, JobState.FAILED})
TERMINAL: frozenset[str] = frozenset({Deployment.COMPLETE, Deployment.FAILED})

EDGES: Mapping[Deployment, frozenset[Deployment]] = {
    Deployment.NEW: frozenset({Deployment.INITIALIZING, Deployment.VALIDATION_FAILED}),
    Deployment.INITIALIZING: frozenset({Deployment.RUNNING, Deployment.VALIDATION_FAILED}),
    Deployment.RUNNING: frozenset({Deployment.COMPLETE, Deployment.FAILED, Deployment.VALIDATION_FAILED}),
    Deployment.COMPLETE: frozenset(),
    Deployment.FAILED: frozenset(),
    # Only where nothing had been made: the user mended the spec.
    Deployment.VALIDATION_FAILED: frozenset({Deployment.NEW}),
}

_ALL = frozenset(JobState)
PAIRS: Mapping[Deployment, frozenset[JobState]] = {
    Deployment.NEW: frozenset({JobState.UNKNOWN}),
    Deployment.INITIALIZING: frozenset({JobState.UNKNOWN}),
    Deployment.RUNNING: _ALL,
    Deployment.COMPLETE: frozenset({JobState.STOPPED, JobState.SUCCEEDED}),
    # Not ended: Ray could not be asked any more, so its last word stands beside the reason.
    Deployment.FAILED: _ALL - {JobState.STOPPED, JobState.SUCCEEDED},
    Deployment.VALIDATION_FAILED: _ALL,
}


def allowed(before: Deployment, after: Deployment) -> bool:
    return after is before or after in EDGES[before]


def known(word: str) -> Deployment | None:
    """The state that this word names; None for one that Raybus does not take part in."""
    return Deployment(word) if word in Deployment._value2member_map_ else None
