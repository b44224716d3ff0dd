"""What `raybus run` tells while a Ray object makes its way: pure functions from what is seen to lines and verdicts.

No I/O, no clock: the follower (raybus.cli.follow) reads objects and passes them in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from raybus.cli.errors import EXIT_JOB_FAILED, EXIT_JOB_STOPPED, EXIT_USAGE

Json = Mapping[str, Any]
ENDED = ("Complete", "Failed", "ValidationFailed")


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What is known of a run at one moment. Empty strings and None: not known yet."""

    deployment: str = ""  # status.jobDeploymentStatus
    job: str = ""  # status.jobStatus
    job_id: str = ""
    dashboard: str = ""  # status.dashboardURL, host:port
    cluster: str = ""
    cluster_state: str = ""
    head_ready: bool = False
    workers_ready: int = 0
    workers_wanted: int = 0
    submitter: str = ""  # name of the submitter's pod once it runs
    reason: str = ""
    message: str = ""
    warnings: tuple[tuple[str, str], ...] = field(default=())  # (reason, note), oldest first
    pod_warnings: tuple[tuple[str, str], ...] = field(default=())  # the same of the pods: told, but no verdict


def view_of_job(rayjob: Json, cluster: Json | None, submitter_pods: Iterable[Json], events: Iterable[Json]) -> View:
    """The view of a RayJob from its objects as the API server gives them."""
    status = rayjob.get("status") or {}
    running = [pod["metadata"]["name"] for pod in submitter_pods if _started(pod)]
    cluster_status = (cluster or {}).get("status") or {}
    return View(
        deployment=status.get("jobDeploymentStatus", ""),
        job=status.get("jobStatus", ""),
        job_id=status.get("jobId", ""),
        dashboard=status.get("dashboardURL", ""),
        cluster=(cluster or {}).get("metadata", {}).get("name", ""),
        submitter=running[-1] if running else "",
        reason=status.get("reason", ""),
        message=status.get("message", ""),
        warnings=warnings_of(events),
        **_cluster_parts(cluster_status),
    )


def view_of_cluster(cluster: Json, events: Iterable[Json]) -> View:
    """The view of a RayCluster alone."""
    return View(
        cluster=cluster["metadata"]["name"], warnings=warnings_of(events), **_cluster_parts(cluster.get("status") or {})
    )


def _cluster_parts(status: Json) -> dict[str, Any]:
    ready = {item["type"]: item["status"] for item in status.get("conditions") or ()}
    return {
        "cluster_state": status.get("state", ""),
        "head_ready": ready.get("HeadPodReady") == "True",
        "workers_ready": int(status.get("readyWorkerReplicas", 0)),
        "workers_wanted": int(status.get("desiredWorkerReplicas", 0)),
    }


def _started(pod: Json) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Running", "Succeeded", "Failed")


def warnings_of(events: Iterable[Json]) -> tuple[tuple[str, str], ...]:
    """Reason and note of the Warning events, in order of time, each text once."""
    found = [event for event in events if event.get("type") == "Warning"]
    found.sort(key=lambda event: str(event.get("eventTime") or event["metadata"].get("creationTimestamp") or ""))
    pairs = ((str(event.get("reason", "")), str(event.get("note") or event.get("message") or "")) for event in found)
    return tuple(dict.fromkeys(pairs))


def pod_warnings_of(events: Iterable[Json]) -> tuple[tuple[str, str], ...]:
    """What keeps pods from running. Probes that fail while Ray starts are no news."""
    return tuple((reason, note) for reason, note in warnings_of(events) if reason != "Unhealthy")


def news(before: View, after: View) -> list[str]:
    """The lines to print for what changed, in the order in which it matters to the reader."""
    lines = []
    if after.cluster and not before.cluster:
        lines.append(f"cluster {after.cluster}: starting")
    if after.head_ready and not before.head_ready:
        lines.append(f"cluster {after.cluster}: head is ready")
    if after.workers_ready != before.workers_ready and after.workers_ready:
        lines.append(f"cluster {after.cluster}: {after.workers_ready} of {after.workers_wanted} workers ready")
    if after.cluster_state == "ready" and before.cluster_state != "ready":
        lines.append(f"cluster {after.cluster}: ready")
    if after.submitter and after.submitter != before.submitter:
        lines.append(f"submitter {after.submitter}: started, submission id {after.job_id}")
    if after.job and after.job != before.job and after.job not in ("SUCCEEDED", "FAILED", "STOPPED"):
        lines.append(f"job {after.job_id}: {after.job}")
    told_as_error = refused(after)
    lines += [
        f"warning {reason}: {note}"
        for reason, note in after.warnings
        if (reason, note) not in before.warnings and not (told_as_error and _refuses(reason, note))
    ]
    lines += [
        f"warning {reason}: {note}" for reason, note in after.pod_warnings if (reason, note) not in before.pod_warnings
    ]
    return lines


def refused(view: View) -> str:
    """Why nothing will ever happen to this object, in the controller's words; empty while it may go on."""
    if view.deployment == "ValidationFailed":
        return view.message or "the object is not valid"
    if view.deployment not in ("", "Initializing"):
        return ""  # what is said about a job that runs does not end it
    return next((note for reason, note in view.warnings if _refuses(reason, note)), "")


def _refuses(reason: str, note: str) -> bool:
    if reason.startswith("FailedToCreate"):
        return " is invalid: " in note  # the API server's words for what it will never take
    return reason.startswith("Invalid") or reason in ("ValidationFailed", "NotSupported")


def ended(view: View) -> bool:
    return view.deployment in ENDED


def verdict(view: View) -> tuple[int, str]:
    """Exit code and one line: how the run ended. Only for an ended view."""
    if view.deployment == "ValidationFailed":
        return EXIT_USAGE, f"not run: {view.message}"
    if view.deployment == "Complete" and view.job == "SUCCEEDED":
        return 0, f"SUCCEEDED: {view.message or 'the job ended well'}"
    if view.job == "STOPPED":
        return EXIT_JOB_STOPPED, f"STOPPED: {view.message or 'the job was stopped'}"
    cause = ": ".join(part for part in (view.reason, view.message) if part)
    return EXIT_JOB_FAILED, f"FAILED: {cause or 'no cause given'}"
