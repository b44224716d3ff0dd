"""What the Job controller looks at: of a pod a few facts, of a Job its spec with defaults. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from raybus.domain import conditions, times
from raybus_localkube.controllers.work import Json

TRACKING = "batch.kubernetes.io/job-tracking"
CONTROLLER_UID = "batch.kubernetes.io/controller-uid"
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
OURS = "kubernetes.io/job-controller"
UNSUPPORTED = ("podFailurePolicy", "successPolicy", "backoffLimitPerIndex", "maxFailedIndexes")


@dataclass(frozen=True, slots=True)
class PodFact:
    """`finished_at` is when its last container ended, or the best that is known of it; None while it runs."""

    uid: str
    name: str
    version: str
    owned: bool
    phase: str
    deleting: bool
    ready: bool
    restarts: int
    created_at: datetime | None
    finished_at: datetime | None
    index: int | None
    finalizers: tuple[str, ...]

    @property
    def tracked(self) -> bool:
        return TRACKING in self.finalizers

    @property
    def succeeded(self) -> bool:
        return self.phase == "Succeeded"

    @property
    def failed(self) -> bool:
        return self.phase == "Failed"

    @property
    def active(self) -> bool:
        return not (self.succeeded or self.failed or self.deleting)

    @property
    def terminating(self) -> bool:
        return self.deleting and not (self.succeeded or self.failed)


def owning_job(pod: Json) -> tuple[str, bool]:
    """The uid of the Job a pod belongs to, and whether that Job is its controller; else what its label says, or empty."""
    meta = pod["metadata"]
    for reference in meta.get("ownerReferences") or ():
        if reference.get("controller") and reference["kind"] == "Job" and reference["apiVersion"].startswith("batch/"):
            return reference["uid"], True
    if TRACKING in (meta.get("finalizers") or ()):
        return (meta.get("labels") or {}).get(CONTROLLER_UID, ""), False
    return "", False


def pod_fact(pod: Json, *, owned: bool) -> PodFact:
    meta, status = pod["metadata"], pod.get("status") or {}
    containers = (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ()))
    ready = conditions.find(status.get("conditions"), "Ready")
    index = (meta.get("annotations") or {}).get(COMPLETION_INDEX, "")
    phase = status.get("phase") or "Pending"
    ended = phase in ("Succeeded", "Failed") or "deletionTimestamp" in meta
    return PodFact(
        uid=meta["uid"],
        name=meta["name"],
        version=meta["resourceVersion"],
        owned=owned,
        phase=phase,
        deleting="deletionTimestamp" in meta,
        ready=bool(ready and ready["status"] == "True"),
        restarts=sum(int(each.get("restartCount") or 0) for each in containers),
        created_at=times.parse(meta.get("creationTimestamp")),
        finished_at=_finished_at(pod, containers, ready) if ended else None,
        index=int(index) if index.isdigit() else None,
        finalizers=tuple(meta.get("finalizers") or ()),
    )


def _finished_at(pod: Json, containers: Iterable[Json], ready: Json | None) -> datetime | None:
    ends = [times.parse(((each.get("state") or {}).get("terminated") or {}).get("finishedAt")) for each in containers]
    known = [end for end in ends if end is not None]
    if known:
        return max(known)
    if ready and ready["status"] == "False" and (moment := times.parse(ready.get("lastTransitionTime"))):
        return moment
    meta = pod["metadata"]
    return times.parse(meta.get("deletionTimestamp")) or times.parse(meta.get("creationTimestamp"))


@dataclass(frozen=True, slots=True)
class JobView:
    """A Job with the defaults that matter here. `raw` is the object as read."""

    raw: Json

    @property
    def meta(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.raw["metadata"]
        return found

    @property
    def spec(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.raw["spec"]
        return found

    @property
    def status(self) -> Mapping[str, Any]:
        return self.raw.get("status") or {}

    @property
    def parallelism(self) -> int:
        given = self.spec.get("parallelism")
        return 1 if given is None else int(given)

    @property
    def completions(self) -> int | None:
        given = self.spec.get("completions")
        return None if given is None else int(given)

    @property
    def backoff_limit(self) -> int:
        given = self.spec.get("backoffLimit")
        return 6 if given is None else int(given)

    @property
    def indexed(self) -> bool:
        return self.spec.get("completionMode") == "Indexed"

    @property
    def suspended(self) -> bool:
        return bool(self.spec.get("suspend"))

    @property
    def deleting(self) -> bool:
        return "deletionTimestamp" in self.meta

    @property
    def replaces_failed_only(self) -> bool:
        """A terminating pod counts, and is replaced, only once it has ended."""
        return self.spec.get("podReplacementPolicy") == "Failed"

    @property
    def started_at(self) -> datetime | None:
        return times.parse(self.status.get("startTime"))

    @property
    def managed_elsewhere(self) -> bool:
        return bool(self.spec.get("managedBy", OURS) != OURS)

    @property
    def unsupported(self) -> list[str]:
        return [field for field in UNSUPPORTED if field in self.spec]

    def condition(self, type_: str) -> Json | None:
        """The condition of this type, if it is true."""
        found = conditions.find(self.status.get("conditions"), type_)
        return found if found is not None and found.get("status") == "True" else None

    @property
    def finished(self) -> Json | None:
        return self.condition("Complete") or self.condition("Failed")
