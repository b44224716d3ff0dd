"""What a kubelet that has just started knows of a pod: from the node's list and the stored status.

Pure. The node's word goes first. A run that the status tells of and the node does not know has been lost with the node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from raybus.domain import times
from raybus_localkube.kubelet import backoff, lifecycle, podspec
from raybus_localkube.kubelet.lifecycle import ContainerView, PodView, Run
from raybus_localkube.kubelet.podspec import Pod
from raybus_localkube.node.protocol import ContainerRecord

LOST_CODE = 137
LOST_REASON = "ContainerStatusUnknown"
LOST_MESSAGE = "The container could not be located when the node was started again"


def run_of(record: ContainerRecord) -> Run:
    return Run(
        attempt=record["attempt"],
        started=datetime.fromtimestamp(record["started"], UTC),
        running=record["running"],
        finished=None if record["running"] else datetime.fromtimestamp(record["finished"], UTC),
        exit_code=record["exit_code"],
        signal=record["signal"],
        reason=record["reason"],
        message=record["message"],
    )


def adopt(pod: Pod, records: Iterable[ContainerRecord], ip: str, now: datetime) -> PodView:
    """The view to go on with; `ip` "" when the node does not know the pod."""
    runs: dict[str, list[Run]] = {}
    for record in records:
        runs.setdefault(record["name"], []).append(run_of(record))
    stored: Mapping[str, Any] = pod.get("status") or {}
    entries = [*(stored.get("initContainerStatuses") or ()), *(stored.get("containerStatuses") or ())]
    statuses = {entry["name"]: entry for entry in entries}
    views = {
        container["name"]: _view(runs.get(container["name"], []), statuses.get(container["name"]) or {}, now)
        for container in podspec.all_containers(pod)
    }
    return PodView(
        containers=views,
        ip=ip,
        prepared=bool(ip),
        started_at=times.parse(stored.get("startTime")),
        unsupported=tuple(podspec.unsupported(pod)),
    )


def _view(runs: list[Run], entry: Mapping[str, Any], now: datetime) -> ContainerView:
    known = sorted(runs, key=lambda run: run.attempt)
    told = _told(entry, now)
    for run in told:
        if not known or run.attempt > known[-1].attempt:
            known.append(run)
        elif run.attempt < known[0].attempt:
            known.insert(0, run)
    if not known:
        return ContainerView()
    run, last = known[-1], known[-2] if len(known) > 1 else None
    finished = run.finished if not run.running else (last.finished if last else None)
    count = run.attempt if not run.running else max(run.attempt - 1, 0)
    # A readiness that was true stays so until a probe says otherwise: a kubelet's restart is no change for the pod.
    same = (
        run.running
        and bool((entry.get("state") or {}).get("running"))
        and int(entry.get("restartCount") or 0) == run.attempt
    )
    return ContainerView(
        run=run, last=last, backoff=backoff.resumed(count, finished),
        started=same and bool(entry.get("started")), ready=same and bool(entry.get("ready")),
    )  # fmt: skip


def _told(entry: Mapping[str, Any], now: datetime) -> list[Run]:
    """The runs that a container status tells of, the older one first; one told to be running counts as lost."""
    count = int(entry.get("restartCount") or 0)
    state, last = entry.get("state") or {}, entry.get("lastState") or {}
    runs = []
    waiting = bool(state.get("waiting"))
    if last.get("terminated"):
        runs.append(_ended(last["terminated"], count if waiting else max(count - 1, 0)))
    if state.get("terminated"):
        runs.append(_ended(state["terminated"], count))
    if state.get("running"):
        started = times.parse(state["running"].get("startedAt")) or now
        runs.append(
            Run(count, started, running=False, finished=now, exit_code=LOST_CODE, reason=LOST_REASON, message=LOST_MESSAGE,
                container_id=str(entry.get("containerID") or ""))
        )  # fmt: skip
    return runs


def _ended(state: Mapping[str, Any], attempt: int) -> Run:
    finished = times.parse(state.get("finishedAt")) or datetime.fromtimestamp(0, UTC)
    return Run(
        attempt, times.parse(state.get("startedAt")) or finished, running=False, finished=finished,
        exit_code=int(state.get("exitCode") or 0), signal=int(state.get("signal") or 0), reason=str(state.get("reason") or ""),
        message=str(state.get("message") or ""), container_id=str(state.get("containerID") or ""),
    )  # fmt: skip


def lost(view: PodView, records: Iterable[ContainerRecord], ip: str, now: datetime) -> PodView:
    """The view after the connection to the node was cut: what it no longer knows has ended, what ended meanwhile is noted."""
    listed = {(record["name"], record["attempt"]): run_of(record) for record in records}
    views = dict(view.containers)
    for name, known in view.containers.items():
        if known.run is None or not known.run.running:
            continue
        run = listed.get((name, known.run.attempt))
        if run is None:
            run = replace(
                known.run, running=False, finished=now, exit_code=LOST_CODE, reason=LOST_REASON, message=LOST_MESSAGE
            )
        if not run.running:
            views[name] = lifecycle.ended(known, run)
    return replace(view, containers=views, ip=ip, prepared=bool(ip))
