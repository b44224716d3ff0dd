"""What decisions about a RayJob look at: typed views of the RayJob, what it owns, and what Ray said last. Pure.

Views hold the objects as read and compute nothing that needs a clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from raybus.decide.tree import RootKey
from raybus.domain import cluster_spec, labels, times
from raybus_job_ctrl.decide.table import Deployment, Mode, known

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Ray's record of the job. Times are milliseconds since 1970, 0 if not yet."""

    status: str
    message: str = ""
    start_ms: int = 0
    end_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Poll:
    """The last answer about the job: a record, or "no such job" (`missing`), or an error.

    `session` names the head that answered, `token` what was known when it was asked, `seen_at` when the answer came. `asked`
    is False if the request could not even be made (the token's Secret cannot be read).
    """

    token: str = ""
    session: str = ""
    record: Record | None = None
    error: str = ""
    asked: bool = True
    seen_at: datetime

    @property
    def missing(self) -> bool:
        return self.record is None and not self.error


class Phase(StrEnum):
    """How the submitter Job stands."""

    UNKNOWN = "unknown"  # nothing counts as absent yet
    ABSENT = "absent"
    ACTIVE = "active"
    COMPLETE = "complete"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitter:
    phase: Phase
    job: Json | None = None
    reason: str = ""  # of the condition that ended it
    message: str = ""
    finished_at: datetime | None = None

    @property
    def finished(self) -> bool:
        return self.phase in (Phase.COMPLETE, Phase.FAILED)

    @property
    def suspended(self) -> bool:
        """It has no Pod, and gets none."""
        return self.job is not None and bool((self.job.get("spec") or {}).get("suspend"))


@dataclass(frozen=True, slots=True, kw_only=True)
class JobWorld:
    """`cluster` is the RayCluster named in the status if it is this RayJob's own. `complete` names the kinds of which absence
    counts; `fresh` says that the tree was just read from the API server. `unreadable` says what is wrong with the shape of the
    spec, which is empty then but for `managedBy`.
    """

    key: RootKey
    job: Json | None
    cluster: Json | None = None
    submitter: Submitter = Submitter(phase=Phase.UNKNOWN)
    head_service: Json | None = None
    unreadable: str = ""
    head: str = ""  # `<uid>/<restarts>` of the living head Pod, empty without one
    head_ready: bool = (
        True  # False if that Pod's Ready condition says so: also what becomes of Pods whose node is silent
    )
    poll: Poll | None = None
    complete: frozenset[str] = frozenset()
    fresh: bool = False

    @property
    def root(self) -> Json:
        """The RayJob, where it is known to exist."""
        assert self.job is not None
        return self.job

    @property
    def meta(self) -> Json:
        found: Json = self.root["metadata"]
        return found

    @property
    def spec(self) -> Json:
        return self.root.get("spec") or {}

    @property
    def status(self) -> Json:
        return self.root.get("status") or {}

    @property
    def annotations(self) -> Mapping[str, str]:
        return self.meta.get("annotations") or {}

    @property
    def deployment(self) -> Deployment | None:
        """None for a state that Raybus has no part in."""
        return known(self.status.get("jobDeploymentStatus") or "")

    @property
    def job_state(self) -> str:
        return self.status.get("jobStatus") or ""

    @property
    def mode(self) -> str:
        """As noted on the cluster once there is one: an edit changes nothing about a job that was begun."""
        marks = self.cluster["metadata"].get("labels") or {} if self.cluster is not None else {}
        noted: str = marks.get(labels.JOB_SUBMISSION_MODE, "")
        return noted if noted in Mode._value2member_map_ else self.spec.get("submissionMode") or Mode.K8S_JOB

    @property
    def cluster_spec(self) -> Json:
        return self.spec.get("rayClusterSpec") or {}

    @property
    def submission_id(self) -> str:
        return self.status.get("jobId") or ""

    @property
    def address(self) -> str:
        """host:port of the dashboard, once stored."""
        return self.status.get("dashboardURL") or ""

    @property
    def deleting(self) -> bool:
        return bool(self.meta.get("deletionTimestamp"))

    @property
    def cluster_gone(self) -> bool:
        return self.cluster is None and "RayCluster" in self.complete

    @property
    def cluster_ready(self) -> bool:
        if self.cluster is None or self.cluster["metadata"].get("deletionTimestamp"):
            return False
        return (self.cluster.get("status") or {}).get("state") == "ready"

    @property
    def failing_since(self) -> datetime | None:
        return times.parse(self.status.get("jobStatusCheckFailureStartTime"))

    @property
    def ray_ended_at(self) -> datetime | None:
        return times.parse((self.status.get("rayJobInfo") or {}).get("endTime"))

    @property
    def ray_started_at(self) -> datetime | None:
        return times.parse((self.status.get("rayJobInfo") or {}).get("startTime"))

    # Which head the job runs on

    @property
    def known_session(self) -> str:
        return self.annotations.get(labels.HEAD_SESSION, "")

    @property
    def known_head(self) -> str:
        return self.annotations.get(labels.HEAD_POD, "")

    @property
    def head_survives(self) -> bool:
        """Whether records outlive a head Pod: then only the session tells one head from another."""
        return cluster_spec.fault_tolerant(self.cluster_spec, self.annotations)

    @property
    def head_gone(self) -> bool:
        """The Pod, or the run of its container, that the job was seen on is not there any more."""
        if self.head_survives or not self.known_head or "Pod" not in self.complete:
            return False
        return self.head != self.known_head

    @property
    def head_in_doubt(self) -> bool:
        """The Pod that the job was seen on is still there, but not Ready; and nothing of the job outlives it."""
        return not self.head_ready and bool(self.known_head) and self.head == self.known_head and not self.head_survives

    @property
    def token(self) -> str:
        """What a poll must have been begun with so that "no such job" and errors can be believed: it changes with each step
        that makes Ray's next answer differ from the last one.
        """
        return f"{'seen' if self.job_state else 'new'}/{self.submitter.phase}/{self.head}"

    @property
    def current_poll(self) -> Poll | None:
        """The last poll, if it began after all that is known now."""
        return self.poll if self.poll is not None and self.poll.token == self.token else None
