"""What is to be done for a pod now: from the Pod object and what is known of its containers to steps.

Pure. What may live here: the rules of the pod life cycle. Times are arguments; nothing is started or asked here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from raybus.domain import times
from raybus_localkube.kubelet import podspec
from raybus_localkube.kubelet.backoff import BackOff
from raybus_localkube.kubelet.podspec import Container, Pod


@dataclass(frozen=True, slots=True)
class Run:
    """One execution of a container."""

    attempt: int
    started: datetime
    running: bool = True
    finished: datetime | None = None
    exit_code: int = 0
    signal: int = 0
    reason: str = ""
    message: str = ""
    container_id: str = ""

    @property
    def succeeded(self) -> bool:
        return not self.running and self.exit_code == 0


@dataclass(frozen=True, slots=True)
class ContainerView:
    """What is known of a container.

    `unhealthy` says why its run has to end, `problem` why the next one cannot begin. `kill_at` is the deadline of a run that was asked
    to end; once it was `killed`, when to do that again, should it still be there.
    """

    run: Run | None = None
    last: Run | None = None
    backoff: BackOff = field(default_factory=BackOff)
    started: bool = False
    ready: bool = False
    unhealthy: str = ""
    kill_at: datetime | None = None
    killed: bool = False
    problem: tuple[str, str] | None = None
    retry_at: datetime | None = None

    @property
    def running(self) -> bool:
        return self.run is not None and self.run.running

    @property
    def next_attempt(self) -> int:
        return 0 if self.run is None else self.run.attempt + 1


@dataclass(frozen=True, slots=True)
class PodView:
    """What is known of a pod. `unsupported` and `volume_problem` keep it from starting."""

    containers: Mapping[str, ContainerView] = field(default_factory=dict)
    ip: str = ""
    prepared: bool = False
    started_at: datetime | None = None
    unsupported: tuple[str, ...] = ()
    problem: str = ""
    retry_at: datetime | None = None

    def of(self, name: str) -> ContainerView:
        return self.containers.get(name, ContainerView())


@dataclass(frozen=True, slots=True)
class Prepare:
    """Give the pod its network, files and volumes."""


@dataclass(frozen=True, slots=True)
class Start:
    name: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Stop:
    """Ask a container to end (hook, SIGTERM) and set its deadline."""

    name: str
    grace: timedelta
    why: str


@dataclass(frozen=True, slots=True)
class Kill:
    """The deadline is over."""

    name: str


@dataclass(frozen=True, slots=True)
class Teardown:
    """Every container has ended for good: free the pod's place on the node; status and logs stay."""


@dataclass(frozen=True, slots=True)
class Finish:
    """A deletion is complete: tell the API server."""


Step = Prepare | Start | Stop | Kill | Teardown | Finish


@dataclass(frozen=True, slots=True)
class Steps:
    steps: tuple[Step, ...] = ()
    wake_at: datetime | None = None


def ended(view: ContainerView, run: Run) -> ContainerView:
    """The view after its run has ended as `run` says."""
    assert run.finished is not None
    return replace(
        view, run=run, backoff=view.backoff.ended(run.started, run.finished), started=False, ready=False, unhealthy="",
        kill_at=None, killed=False,
    )  # fmt: skip


def next_steps(pod: Pod, view: PodView, now: datetime) -> Steps:
    """What to do now and when to ask again. Called until nothing changes any more."""
    if pod["metadata"].get("deletionTimestamp"):
        return _delete(pod, view, now)
    if final_phase(pod, view):
        return _end(pod, view, now, "the pod has ended") if view.prepared else Steps()
    if deadline_exceeded(pod, view, now):
        return _end(pod, view, now, "activeDeadlineSeconds is over")
    if view.unsupported:
        return Steps()
    if not view.prepared:
        return _when(view.retry_at, now, Prepare())
    return _with_deadline(pod, view, _run(pod, view, now))


def _with_deadline(pod: Pod, view: PodView, steps: Steps) -> Steps:
    seconds = pod["spec"].get("activeDeadlineSeconds")
    if seconds is None or view.started_at is None:
        return steps
    return Steps(steps.steps, _earliest(steps.wake_at, view.started_at + timedelta(seconds=int(seconds))))


def deadline_exceeded(pod: Pod, view: PodView, now: datetime) -> bool:
    seconds = pod["spec"].get("activeDeadlineSeconds")
    return (
        seconds is not None and view.started_at is not None and now >= view.started_at + timedelta(seconds=int(seconds))
    )


def _run(pod: Pod, view: PodView, now: datetime) -> Steps:
    for container in podspec.init_containers(pod):
        known = view.of(container["name"])
        if known.run is not None and known.run.succeeded:
            continue
        return _collect([_advance(pod, container, known, now)])
    return _collect([_advance(pod, c, view.of(c["name"]), now) for c in podspec.containers(pod)])


def _advance(pod: Pod, container: Container, known: ContainerView, now: datetime) -> Steps:
    """The next step of one container whose turn it is."""
    name = container["name"]
    if known.running:
        if known.kill_at is not None:
            return Steps((Kill(name),)) if now >= known.kill_at else Steps(wake_at=known.kill_at)
        if known.unhealthy:
            return Steps((Stop(name, timedelta(seconds=_spec_grace(pod)), known.unhealthy),))
        return Steps()
    if known.problem is not None and known.retry_at is None:
        return Steps()
    if known.retry_at is not None and now < known.retry_at:
        return Steps(wake_at=known.retry_at)
    if known.run is None:
        return Steps((Start(name, 0),))
    if not podspec.restarts(pod, container, known.run.exit_code):
        return Steps()
    return _when(known.backoff.until, now, Start(name, known.next_attempt))


def _spec_grace(pod: Pod) -> int:
    given = pod["spec"].get("terminationGracePeriodSeconds")
    return podspec.DEFAULT_GRACE_S if given is None else int(given)


def _delete(pod: Pod, view: PodView, now: datetime) -> Steps:
    steps = _stop_all(view, now, _left(pod, now), "the pod is being deleted")
    if not any(known.running for known in view.containers.values()):
        return Steps((Finish(),))
    return steps


def _left(pod: Pod, now: datetime) -> timedelta:
    """How much of the grace is left; deletionTimestamp says when it is over."""
    grace = timedelta(seconds=podspec.grace_s(pod))
    due = times.parse(pod["metadata"]["deletionTimestamp"])
    return grace if due is None else max(min(due - now, grace), timedelta(0))


def _end(pod: Pod, view: PodView, now: datetime, why: str) -> Steps:
    if any(known.running for known in view.containers.values()):
        return _stop_all(view, now, timedelta(seconds=_spec_grace(pod)), why)
    return Steps((Teardown(),))


def _stop_all(view: PodView, now: datetime, grace: timedelta, why: str) -> Steps:
    """Stop what runs; a deadline only ever comes nearer."""
    steps: list[Step] = []
    wake_at: datetime | None = None
    for name, known in view.containers.items():
        if not known.running:
            continue
        if known.kill_at is None:
            steps.append(Stop(name, grace, why))
            continue
        due = known.kill_at if known.killed else min(known.kill_at, now + grace)
        if now >= due:
            steps.append(Kill(name))
        else:
            wake_at = _earliest(wake_at, due)
    return Steps(tuple(steps), wake_at)


def _when(due: datetime | None, now: datetime, step: Step) -> Steps:
    return Steps((step,)) if due is None or now >= due else Steps(wake_at=due)


def _collect(parts: list[Steps]) -> Steps:
    wake_at: datetime | None = None
    for part in parts:
        wake_at = _earliest(wake_at, part.wake_at)
    return Steps(tuple(step for part in parts for step in part.steps), wake_at)


def _earliest(one: datetime | None, other: datetime | None) -> datetime | None:
    if one is None or other is None:
        return one or other
    return min(one, other)


def final_phase(pod: Pod, view: PodView) -> str:
    """Succeeded or Failed if no container runs or will run again, else "". A final phase that was written stays."""
    stored: Any = (pod.get("status") or {}).get("phase")
    if stored in ("Succeeded", "Failed"):
        return str(stored)
    for container in podspec.init_containers(pod):
        run = view.of(container["name"]).run
        if run is None or run.running:
            return ""
        if not run.succeeded:
            return "" if podspec.restarts(pod, container, run.exit_code) else "Failed"
    codes = []
    for container in podspec.containers(pod):
        run = view.of(container["name"]).run
        if run is None or run.running or podspec.restarts(pod, container, run.exit_code):
            return ""
        codes.append(run.exit_code)
    return "Failed" if any(codes) else "Succeeded"
