"""The status of a Job: what it should say, the write that brings it there, and the event that goes with it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from raybus.domain import conditions, times
from raybus.domain.conditions import Condition
from raybus.domain.kinds import JOB
from raybus_localkube.controllers import work
from raybus_localkube.controllers.jobs import indexes
from raybus_localkube.controllers.jobs.counting import Count
from raybus_localkube.controllers.jobs.facts import JobView, PodFact
from raybus_localkube.controllers.work import Call, Event, Json

SUSPENDED = Condition(type="Suspended", status="True", reason="JobSuspended", message="Job suspended")
RESUMED = Condition(type="Suspended", status="False", reason="JobResumed", message="Job resumed")


@dataclass(frozen=True, slots=True)
class Pass:
    """What a pass looks at. `taken`: names that new pods may not have. `written_at`: when we last wrote the status, if we did."""

    job: JobView
    pods: Sequence[PodFact]
    taken: Collection[str]
    now: datetime
    written_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """`interim` is the condition that says what will become of the Job, `final` the one that says that it has."""

    interim: Literal["SuccessCriteriaMet", "FailureTarget"]
    reason: str
    message: str

    @property
    def final(self) -> Literal["Complete", "Failed"]:
        return "Complete" if self.interim == "SuccessCriteriaMet" else "Failed"


def announced(job: JobView) -> Verdict | None:
    """The verdict that the status has announced."""
    for interim in ("SuccessCriteriaMet", "FailureTarget"):
        found = job.condition(interim)
        if found is not None:
            return Verdict(interim, found.get("reason", ""), found.get("message", ""))
    return None


def status_of(given: Pass, counted: Count, unwanted: Sequence[PodFact], verdict: Verdict | None) -> Json:
    """The status as it should stand, pods that are about to be deleted counted as terminating already."""
    job, pods, now = given.job, given.pods, given.now
    going = {pod.uid for pod in unwanted}
    active = sum(pod.active and pod.uid not in going for pod in pods)
    terminating = sum(pod.terminating or pod.uid in going for pod in pods)
    status: dict[str, Any] = {
        **job.status,
        "active": active,
        "succeeded": counted.counted_succeeded,
        "failed": counted.counted_failed,
        "ready": sum(pod.active and pod.ready and pod.uid not in going for pod in pods),
        "terminating": terminating,
        "uncountedTerminatedPods": _lists(counted),
        "completedIndexes": indexes.render(counted.done_indexes),
    }
    for key in ("active", "succeeded", "failed", "completedIndexes"):
        if not status[key]:
            del status[key]
    told = list(job.status.get("conditions") or ())
    if verdict is None:
        told = _with_suspension(job, told, status, now)
    else:
        settled = counted.settled and not active and not terminating
        for type_ in (verdict.interim, verdict.final) if settled else (verdict.interim,):
            condition = Condition(type=type_, status="True", reason=verdict.reason, message=verdict.message)
            told = _with(told, condition, now)
        if settled and verdict.final == "Complete":
            status["completionTime"] = times.rfc3339(now)
    if told:
        status["conditions"] = told
    if "startTime" not in status and not job.suspended:
        status["startTime"] = times.rfc3339(now)
    return status


def _lists(counted: Count) -> Json:
    lists = {"succeeded": list(counted.uncounted_succeeded), "failed": list(counted.uncounted_failed)}
    return {key: value for key, value in lists.items() if value}


def _with_suspension(job: JobView, told: list[Json], status: dict[str, Any], now: datetime) -> list[Json]:
    """A resumed Job starts anew: its deadline does not run while it is suspended."""
    was = conditions.is_true(told, "Suspended")
    if job.suspended:
        status.pop("startTime", None)
        return told if was else _with(told, SUSPENDED, now)
    if was:
        status["startTime"] = times.rfc3339(now)
        return _with(told, RESUMED, now)
    return told


def _with(told: Sequence[Json], condition: Condition, now: datetime) -> list[Json]:
    """Conditions of Jobs also have a lastProbeTime."""
    merged = conditions.merge(told, [condition], now)
    return [
        each if "lastProbeTime" in each else {**each, "lastProbeTime": each["lastTransitionTime"]} for each in merged
    ]


def news(job: JobView, status: Json) -> Event | None:
    """The event for the newest condition that this write brings."""
    before = {each["type"]: each["status"] for each in job.status.get("conditions") or ()}
    for entry in reversed(status.get("conditions") or ()):
        if before.get(entry["type"]) == entry["status"]:
            continue
        if entry["type"] == "Complete":
            return Event(regarding=job.raw, type="Normal", reason="Completed", note="Job completed")
        if entry["type"] == "Failed":
            return Event(regarding=job.raw, type="Warning", reason=entry["reason"], note=entry["message"])
        if entry["type"] == "Suspended":
            reason = "Suspended" if entry["status"] == "True" else "Resumed"
            return Event(regarding=job.raw, type="Normal", reason=reason, note=entry["message"])
    return None


def write(job: JobView, change: Json, event: Event | None) -> Call:
    meta = job.meta
    return work.patch(
        JOB,
        meta["namespace"],
        meta["name"],
        {"status": change},
        uid=meta["uid"],
        version=meta["resourceVersion"],
        subresource="status",
        event=event,
    )
