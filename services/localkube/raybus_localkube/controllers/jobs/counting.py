"""Counting pods that ended, each exactly once, whatever crashes in between. Pure.

A pod that ended first stands by its uid in `uncountedTerminatedPods`; then its finalizer goes; once it has none, or is gone, it is
moved from the list into the counter. Indexed Jobs need no list for successes: an index is done or not, however often it is counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from raybus_localkube.controllers.jobs import indexes
from raybus_localkube.controllers.jobs.facts import JobView, PodFact


@dataclass(frozen=True, slots=True)
class Count:
    """How a Job stands, with what this pass has found. Totals include the pods that are still in the lists."""

    succeeded: int
    failed: int
    counted_succeeded: int
    counted_failed: int
    uncounted_succeeded: tuple[str, ...]
    uncounted_failed: tuple[str, ...]
    done_indexes: frozenset[int]
    release: tuple[PodFact, ...]
    """Pods to take the finalizer off, once the lists are stored."""

    @property
    def settled(self) -> bool:
        return not self.uncounted_succeeded and not self.uncounted_failed


def has_failed(pod: PodFact, job: JobView, *, ending: bool) -> bool:
    """A pod that is deleted before it ended counts as failed, so that it cannot be lost; with the other policy once the Job ends."""
    if pod.failed:
        return True
    return pod.terminating and (ending or job.deleting or job.suspended or not job.replaces_failed_only)


def count(job: JobView, pods: Sequence[PodFact], *, ending: bool) -> Count:
    lists = job.status.get("uncountedTerminatedPods") or {}
    old_succeeded, old_failed = tuple(lists.get("succeeded") or ()), tuple(lists.get("failed") or ())
    tracked = {pod.uid: pod for pod in pods if pod.tracked}
    moved_succeeded = [uid for uid in old_succeeded if uid not in tracked]
    moved_failed = [uid for uid in old_failed if uid not in tracked]
    listed = {*old_succeeded, *old_failed}
    fresh = [pod for uid, pod in tracked.items() if uid not in listed]
    new_succeeded = [pod for pod in fresh if pod.succeeded]
    new_failed = [pod for pod in fresh if has_failed(pod, job, ending=ending)]
    counted_failed = int(job.status.get("failed") or 0) + len(moved_failed)
    uncounted_failed = tuple(uid for uid in old_failed if uid in tracked) + tuple(pod.uid for pod in new_failed)
    release = (*(pod for pod in tracked.values() if pod.uid in listed), *new_succeeded, *new_failed)
    if job.indexed:
        done = indexes.parse(job.status.get("completedIndexes") or "")
        done |= {
            pod.index for pod in pods if pod.succeeded and pod.index is not None and pod.index < (job.completions or 0)
        }
        counted_succeeded, uncounted_succeeded = len(done), ()
    else:
        done = set()
        counted_succeeded = int(job.status.get("succeeded") or 0) + len(moved_succeeded)
        uncounted_succeeded = tuple(u for u in old_succeeded if u in tracked) + tuple(pod.uid for pod in new_succeeded)
    return Count(
        succeeded=counted_succeeded + len(uncounted_succeeded),
        failed=counted_failed + len(uncounted_failed),
        counted_succeeded=counted_succeeded,
        counted_failed=counted_failed,
        uncounted_succeeded=uncounted_succeeded,
        uncounted_failed=uncounted_failed,
        done_indexes=frozenset(done),
        release=release,
    )
