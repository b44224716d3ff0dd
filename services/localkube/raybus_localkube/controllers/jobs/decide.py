"""What a pass over one Job does. Pure.

Order: what must not be lost (counts, verdict) is written first, then pods are made or deleted, then the mere counters are brought up
to date, at most once a second. Each step's results come back as changed objects and lead to the next pass.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from raybus.domain import merge_patch, times
from raybus.domain.kinds import JOB, POD
from raybus_localkube.controllers import work
from raybus_localkube.controllers.jobs import backoff
from raybus_localkube.controllers.jobs.counting import Count, count
from raybus_localkube.controllers.jobs.facts import TRACKING, JobView, PodFact
from raybus_localkube.controllers.jobs.pods import new_pod
from raybus_localkube.controllers.jobs.status import Pass, Verdict, announced, news, status_of, write
from raybus_localkube.controllers.work import NOTHING, Call, Event, Work

PODS_PER_PASS = 500
COUNTERS_EVERY = timedelta(seconds=1)
COUNTERS = ("active", "ready", "terminating")


REACHED = Verdict("SuccessCriteriaMet", "CompletionsReached", "Reached expected number of succeeded pods")
TOO_MANY_FAILURES = Verdict("FailureTarget", "BackoffLimitExceeded", "Job has reached the specified backoff limit")
TOO_LATE = Verdict("FailureTarget", "DeadlineExceeded", "Job was active longer than specified deadline")


def decide(given: Pass) -> Work:
    job = given.job
    if job.managed_elsewhere:
        return NOTHING
    if job.unsupported:
        note = f"Job fields that this server does not support: {', '.join(job.unsupported)}; the Job is left alone"
        return Work(events=(Event(regarding=job.raw, type="Warning", reason="UnsupportedField", note=note),))
    if job.finished is not None:
        return _after_the_end(job, given.pods, given.now)
    return _running(replace(given, pods=[pod for pod in given.pods if pod.owned]), _strays(job, given.pods))


def _strays(job: JobView, pods: Sequence[PodFact]) -> list[Call]:
    """Pods that a Job under deletion has let go: nobody will count them."""
    return [release(job.meta["namespace"], pod) for pod in pods if job.deleting and pod.tracked and not pod.owned]


def _running(given: Pass, strays: list[Call]) -> Work:
    job, pods, now = given.job, given.pods, given.now
    told = announced(job)
    counted = count(job, pods, ending=told is not None)
    verdict = told or _verdict(job, counted, pods, now)
    if verdict is not told:
        counted = count(job, pods, ending=True)
    active = [pod for pod in pods if pod.active]
    unwanted = _unwanted(job, counted, active, verdict)
    status = status_of(given, counted, unwanted, verdict)
    change = merge_patch.difference(job.status, status)
    releases = [release(job.meta["namespace"], pod) for pod in counted.release]
    if any(change.get(key) for key in change if key not in (*COUNTERS, "startTime")) or releases or strays:
        writes = [write(job, change, news(job, status))] if change else []
        return Work(steps=work.steps(writes, [*releases, *strays]))
    if unwanted:
        return Work(steps=_deletions(job, unwanted, keep_tracking=verdict is not None))
    wait_until = None
    if verdict is None and not job.suspended and not job.deleting:
        missing = _missing(job, counted, pods, active)
        wait_until = backoff.next_pod_at(pods) if missing else None
        if missing and (wait_until is None or wait_until <= now):
            return Work(steps=work.steps(_creations(job, missing, given.taken)))
    return _counters(given, change, [_deadline(job), wait_until])


def _counters(given: Pass, change: dict[str, Any], deadlines: list[datetime | None]) -> Work:
    """Bring the counters up to date, not too often, and say when to look again."""
    free_at = given.written_at + COUNTERS_EVERY if given.written_at is not None else given.now
    if change and "startTime" not in change and given.now < free_at:
        deadlines = [*deadlines, free_at]
        change = {}
    ahead = [each for each in deadlines if each is not None and each > given.now]
    calls = [write(given.job, change, None)] if change else []
    return Work(steps=work.steps(calls), wake_at=min(ahead, default=None))


# Verdict


def _verdict(job: JobView, counted: Count, pods: Sequence[PodFact], now: datetime) -> Verdict | None:
    """What is decided now, with nothing announced yet."""
    if counted.failed > job.backoff_limit or _restarted_too_often(job, pods):
        return TOO_MANY_FAILURES
    deadline = _deadline(job)
    if deadline is not None and deadline <= now:
        return TOO_LATE
    active = sum(pod.active for pod in pods)
    if job.completions is None:
        return REACHED if counted.succeeded > 0 and not active else None
    return REACHED if counted.succeeded >= job.completions and not active else None


def _restarted_too_often(job: JobView, pods: Sequence[PodFact]) -> bool:
    """With restartPolicy OnFailure the restarts of containers are the failures."""
    if job.spec["template"]["spec"].get("restartPolicy") != "OnFailure":
        return False
    restarts = sum(pod.restarts for pod in pods if pod.phase in ("Pending", "Running"))
    return restarts >= max(job.backoff_limit, 1)


def _deadline(job: JobView) -> datetime | None:
    seconds, started = job.spec.get("activeDeadlineSeconds"), job.started_at
    return None if seconds is None or started is None or job.suspended else started + timedelta(seconds=int(seconds))


# Pods


def _wanted_active(job: JobView, counted: Count, active: int) -> int:
    if job.completions is None:
        return active if counted.succeeded else job.parallelism
    return max(0, min(job.completions - counted.succeeded, job.parallelism))


def _unwanted(job: JobView, counted: Count, active: Sequence[PodFact], verdict: Verdict | None) -> list[PodFact]:
    """Active pods to delete: all when the Job is decided or suspended; else those over the number, unready and young ones first."""
    if job.deleting:
        return []
    if verdict is not None or job.suspended:
        return list(active)
    surplus = len(active) - _wanted_active(job, counted, len(active))
    order = sorted(active, key=lambda pod: (pod.ready, pod.phase == "Running", -_age(pod), pod.name))
    repeated = [pod for pod in active if pod.index is not None and pod.index in counted.done_indexes]
    return repeated or (order[:surplus] if surplus > 0 else [])


def _age(pod: PodFact) -> float:
    return pod.created_at.timestamp() if pod.created_at else 0.0


def _missing(job: JobView, counted: Count, pods: Sequence[PodFact], active: Sequence[PodFact]) -> list[int | None]:
    """Completion indexes of the pods to make; None for pods of a Job without indexes."""
    terminating = sum(pod.terminating for pod in pods) if job.replaces_failed_only else 0
    number = min(_wanted_active(job, counted, len(active)) - len(active) - terminating, PODS_PER_PASS)
    if number <= 0:
        return []
    if not job.indexed:
        return [None] * number
    busy = counted.done_indexes | {pod.index for pod in active}
    free: list[int | None] = [index for index in range(job.completions or 0) if index not in busy]
    return free[:number]


def _creations(job: JobView, missing: list[int | None], taken: Collection[str]) -> list[Call]:
    names = set(taken)
    calls = []
    for index in missing:
        pod = new_pod(job, names, index)
        names.add(pod["metadata"]["name"])
        note = f"Created pod: {pod['metadata']['name']}"
        calls.append(
            work.create(POD, pod, Event(regarding=job.raw, type="Normal", reason="SuccessfulCreate", note=note))
        )
    return calls


def _deletions(job: JobView, pods: Sequence[PodFact], *, keep_tracking: bool) -> tuple[tuple[Call, ...], ...]:
    """Pods of a decided Job keep their finalizer and will count; those of a suspended or smaller one must not."""
    namespace = job.meta["namespace"]
    releases = [] if keep_tracking else [release(namespace, pod) for pod in pods if pod.tracked]
    deletes = []
    for pod in pods:
        event = Event(regarding=job.raw, type="Normal", reason="SuccessfulDelete", note=f"Deleted pod: {pod.name}")
        deletes.append(work.delete(POD, namespace, pod.name, uid=pod.uid, event=event))
    return work.steps(releases, deletes)


def release(namespace: str, pod: PodFact) -> Call:
    """Take the finalizer off a pod that was counted, or that nobody will count."""
    kept = [each for each in pod.finalizers if each != TRACKING]
    body = {"metadata": {"finalizers": kept or None}}
    return work.patch(POD, namespace, pod.name, body, uid=pod.uid, version=pod.version)


# The end


def _after_the_end(job: JobView, pods: Sequence[PodFact], now: datetime) -> Work:
    """Nothing is counted any more; after its time to live the Job goes, and with it its pods."""
    namespace = job.meta["namespace"]
    releases = [release(namespace, pod) for pod in pods if pod.tracked]
    seconds = job.spec.get("ttlSecondsAfterFinished")
    ended = times.parse((job.finished or {}).get("lastTransitionTime"))
    if releases or seconds is None or ended is None or job.deleting:
        return Work(steps=work.steps(releases))
    due = ended + timedelta(seconds=int(seconds))
    if due > now:
        return Work(wake_at=due)
    meta = job.meta
    return Work(
        steps=work.steps(
            [work.delete(JOB, namespace, meta["name"], uid=meta["uid"], propagation="Foreground")],
        )
    )
