"""Runs one pod: asks lifecycle.py what to do, does it, and writes the status when it changed.

It acts on events (a new version of the Pod, an end of a container, a probe's verdict) and deadlines, and holds nothing that the node's
list and the stored status could not give back to the next kubelet.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Coroutine, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from raybus.domain import kinds
from raybus.kube import errors
from raybus_localkube.kubelet import adoption, environment, hooks, launching, lifecycle, podspec, probing, status
from raybus_localkube.kubelet.context import HOST_IP, Context, retry_delay_s
from raybus_localkube.kubelet.environment import ConfigError, Facts
from raybus_localkube.kubelet.handlers import Target
from raybus_localkube.kubelet.lifecycle import (
    ContainerView,
    Finish,
    Kill,
    PodView,
    Prepare,
    Start,
    Step,
    Stop,
    Teardown,
)
from raybus_localkube.kubelet.node_client import NodeLost
from raybus_localkube.kubelet.podspec import Container, Pod
from raybus_localkube.kubelet.prober import Finding, Prober
from raybus_localkube.node.protocol import ContainerRecord, NodeError, container_id

ROUNDS_MAX = 20
KILL_AGAIN = timedelta(seconds=5)


class PodWorker:
    """`run` ends when the pod is gone. The other methods are called by the same event loop and never wait."""

    def __init__(self, context: Context, pod: Pod, view: PodView) -> None:
        self._context = context
        self._pod = pod
        self._view = view
        self._written: dict[str, Any] = dict(pod.get("status") or {})
        self._wake = asyncio.Event()
        self._wake_at: datetime | None = None
        self._probers: dict[str, Prober] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._tokens_due: datetime | None = None
        self._failures = 0
        self._early: dict[str, ContainerRecord] = {}
        self._gone = False
        self._done = False
        self._wake.set()

    @property
    def pod(self) -> Pod:
        return self._pod

    @property
    def view(self) -> PodView:
        return self._view

    def is_running(self, name: str, log: Path) -> bool:
        """Does the run that writes this log still run?"""
        run = self._view.of(name).run
        return run is not None and run.running and log == self._context.log_path(self._pod, name, run.attempt)

    # What happens

    def update(self, pod: Pod) -> None:
        self._pod = pod
        self._wake.set()

    def gone(self) -> None:
        """The Pod is not on the API server any more, whoever removed it."""
        self._gone = True
        self._wake.set()

    def exited(self, record: ContainerRecord) -> None:
        known = self._view.of(record["name"])
        if known.run is None or known.run.attempt < record["attempt"]:
            self._early[record["name"]] = record  # its start has not been noted yet
            return
        if known.run.attempt > record["attempt"] or not known.run.running:
            return
        after = lifecycle.ended(known, adoption.run_of(record))
        self._set(record["name"], after)
        if after.backoff.delay and not self._pod["metadata"].get("deletionTimestamp"):
            note = f"Back-off restarting failed container {record['name']}"
            self._context.event(self._pod, "Warning", "BackOff", "Restart", note)

    def node_is_back(self, records: Iterable[ContainerRecord], ip: str) -> None:
        self._view = adoption.lost(self._view, records, ip, _now())
        self._wake.set()

    def _set(self, name: str, view: ContainerView) -> None:
        self._view = replace(self._view, containers={**self._view.containers, name: view})
        self._wake.set()

    # The loop

    async def run(self) -> None:
        try:
            while not self._done:
                await asyncio.sleep(0)  # others' turn, however often this one is woken
                await self._sleep()
                try:
                    await self._pass()
                    self._failures = 0
                except (errors.KubeError, NodeLost) as error:
                    self._later(error)
        finally:
            for prober in self._probers.values():
                prober.stop()
            for task in self._tasks:
                task.cancel()

    async def _sleep(self) -> None:
        due = self._wake_at
        if self._tokens_due is not None:
            due = min(due or self._tokens_due, self._tokens_due)
        delay = None if due is None else max(0.0, (due - _now()).total_seconds())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay):
                await self._wake.wait()
        self._wake.clear()

    def _later(self, error: Exception) -> None:
        """The API server or the node did not answer: everything stands as it is, and is looked at again soon."""
        self._wake_at = _now() + timedelta(seconds=retry_delay_s(self._failures))
        self._failures += 1
        if self._failures == 5:
            self._context.event(self._pod, "Warning", "SyncError", "Sync", str(error))

    async def _pass(self) -> None:
        if self._gone:
            await self._leave()
            return
        await self._renew_tokens()
        for _ in range(ROUNDS_MAX):
            plan = lifecycle.next_steps(self._pod, self._view, _now())
            self._wake_at = plan.wake_at
            if not plan.steps:
                break
            for step in plan.steps:
                await self._do(step)
            if self._done:
                return
        else:
            self._wake_at = _now() + timedelta(seconds=1)
        self._note_unsupported()
        self._follow_probes()
        await self._write_status()

    async def _do(self, step: Step) -> None:
        match step:
            case Prepare():
                await self._prepare()
            case Start(name, attempt):
                await self._start(name, attempt)
            case Stop(name, grace, why):
                self._stop(name, grace, why)
            case Kill(name):
                await self._signal(name, signal.SIGKILL)
                self._set(name, replace(self._view.of(name), kill_at=_now() + KILL_AGAIN, killed=True))
            case Teardown():
                await self._teardown()
            case Finish():
                await self._finish()

    # Status

    async def _write_status(self) -> None:
        wanted = status.build({**self._pod, "status": self._written}, self._view, HOST_IP, _now())
        changes = status.patch(self._written, wanted)
        if changes is None:
            return
        meta = self._pod["metadata"]
        try:
            await self._context.client.merge_patch(
                kinds.POD, meta["namespace"], meta["name"], changes, uid=meta["uid"], subresource="status"
            )
        except (errors.NotFound, errors.Conflict):
            return  # it is gone, or another pod of this name is there; the watch will tell
        self._written = wanted

    def _note_unsupported(self) -> None:
        if not self._view.unsupported or self._view.problem:
            return
        fields = ", ".join(self._view.unsupported)
        message = f"not supported by local pods: {fields}"
        self._context.event(self._pod, "Warning", "Failed", "Admit", message)
        self._view = replace(self._view, problem=message)
        for container in podspec.all_containers(self._pod):
            self._set(container["name"], ContainerView(problem=("CreateContainerConfigError", message)))

    # Steps

    async def _prepare(self) -> None:
        facts = self._facts("")
        try:
            order = launching.pod_request(self._pod, self._context.machine, self._context.place)
            ip = (await self._context.node.request("pod-ensure", order))["ip"]
            self._tokens_due = await self._context.materials.fill(self._pod, replace(facts, pod_ip=ip))
        except NodeLost:
            raise
        except (ConfigError, NodeError, errors.Forbidden, OSError) as error:
            self._cannot_prepare(str(error))
            return
        self._view = replace(
            self._view, ip=ip, prepared=True, problem="", retry_at=None, started_at=self._view.started_at or _now()
        )

    def _cannot_prepare(self, why: str) -> None:
        self._failures += 1
        if why != self._view.problem:
            self._context.event(self._pod, "Warning", "FailedMount", "Prepare", why)
        retry_at = _now() + timedelta(seconds=retry_delay_s(self._failures))
        started = self._view.started_at or _now()
        self._view = replace(self._view, problem=why, retry_at=retry_at, started_at=started)

    def _facts(self, ip: str) -> Facts:
        return Facts(ip, HOST_IP, self._context.node_name, self._context.machine)

    def _container(self, name: str) -> Container:
        return next(container for container in podspec.all_containers(self._pod) if container["name"] == name)

    async def _start(self, name: str, attempt: int) -> None:
        container, known = self._container(name), self._view.of(name)
        try:
            wanted = [*environment.references(container)]
            sources = await self._context.materials.sources(self._pod, wanted)
            order = launching.spec(
                self._pod, container, attempt, self._facts(self._view.ip), sources, self._context.place,
                str(self._context.materials.folder(self._pod)), str(self._context.log_path(self._pod, name, attempt)),
            )  # fmt: skip
            record = await self._context.node.start(order)
        except NodeLost:
            raise
        except (ConfigError, NodeError) as error:
            self._cannot_start(name, known, error)
            return
        early = self._early.pop(name, record)
        run = adoption.run_of(early if early["attempt"] == attempt else record)
        began = probing.began(container, known, run)
        self._set(name, began if run.running else lifecycle.ended(began, run))
        if run.running:
            self._context.event(self._pod, "Normal", "Started", "Start", f"Started container {name}")
            self._after_start(container, attempt)
        elif run.reason:
            self._context.event(self._pod, "Warning", "Failed", "Start", f"Error: {run.message}")
        if known.run is not None:
            await self._forget(name, known.run.attempt)

    def _cannot_start(self, name: str, known: ContainerView, error: Exception) -> None:
        problem = (
            "CreateContainerConfigError" if isinstance(error, ConfigError) else "CreateContainerError",
            str(error),
        )
        if problem != known.problem:
            self._context.event(self._pod, "Warning", "Failed", "Start", f"Error: {error}")
        self._failures += 1
        delay = timedelta(seconds=retry_delay_s(self._failures))
        self._set(name, replace(known, problem=problem, retry_at=_now() + delay))

    async def _forget(self, name: str, attempt: int) -> None:
        with contextlib.suppress(NodeError):
            wanted = container_id(podspec.uid(self._pod), name, attempt)
            await self._context.node.request("container-forget", {"container": wanted})

    def _stop(self, name: str, grace: timedelta, why: str) -> None:
        known = self._view.of(name)
        if known.run is None:
            return
        self._set(name, replace(known, kill_at=_now() + grace, ready=False))
        note = f"Stopping container {name}" if "deleted" in why else f"Container {name} {why}, will be restarted"
        self._context.event(self._pod, "Normal", "Killing", "Kill", note)
        self._spawn(self._stop_gently(self._container(name), known.run.attempt, grace))

    async def _stop_gently(self, container: Container, attempt: int, grace: timedelta) -> None:
        hook = (container.get("lifecycle") or {}).get("preStop")
        if hook and grace:
            answer = await hooks.run(self._target(container, attempt), hook, grace.total_seconds())
            if not answer.success:
                note = f"PreStopHook failed: {answer.text}"
                self._context.event(self._pod, "Warning", "FailedPreStopHook", "Kill", note)
        await self._signal(container["name"], hooks.stop_signal(container) if grace else signal.SIGKILL)

    def _target(self, container: Container, attempt: int) -> Target:
        wanted = container_id(podspec.uid(self._pod), container["name"], attempt)
        return Target(self._context.node, container, wanted, self._view.ip)

    async def _signal(self, name: str, number: int) -> None:
        run = self._view.of(name).run
        if run is not None and run.running:
            with contextlib.suppress(NodeError):
                await self._context.node.signal(container_id(podspec.uid(self._pod), name, run.attempt), number)

    def _after_start(self, container: Container, attempt: int) -> None:
        hook = (container.get("lifecycle") or {}).get("postStart")
        if hook:
            self._spawn(self._post_start(container, attempt, hook))

    async def _post_start(self, container: Container, attempt: int, hook: dict[str, Any]) -> None:
        answer = await hooks.run(self._target(container, attempt), hook, hooks.TIMEOUT_S)
        known = self._view.of(container["name"])
        if not answer.success and known.run is not None and known.run.attempt == attempt and known.running:
            self._context.event(
                self._pod, "Warning", "FailedPostStartHook", "Start", f"PostStartHook failed: {answer.text}"
            )
            self._set(container["name"], replace(known, unhealthy="failed its postStart hook"))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Probes

    def _follow_probes(self) -> None:
        """One prober per running container with probes; none while it is being stopped."""
        for name, known in self._view.containers.items():
            prober = self._probers.get(name)
            probed = known.running and known.kill_at is None and not self._pod["metadata"].get("deletionTimestamp")
            if prober is not None and not probed:
                del self._probers[name]
                prober.stop()
            elif prober is None and probed and not podspec.is_init(self._pod, name):
                container = self._container(name)
                if probing.probes(container):
                    self._probers[name] = self._prober(container, known)

    def _prober(self, container: Container, known: ContainerView) -> Prober:
        assert known.run is not None
        name, attempt = container["name"], known.run.attempt

        def on_finding(finding: Finding) -> None:
            current = self._view.of(name)
            if current.run is not None and current.run.attempt == attempt and current.running:
                self._on_finding(container, current, finding)

        target = self._target(container, attempt)
        return Prober(target, known.run.started, on_finding, started=known.started, ready=known.ready)

    def _on_finding(self, container: Container, known: ContainerView, finding: Finding) -> None:
        if not finding.verdict or not finding.new:
            note = f"{finding.probe.capitalize()} probe failed: {finding.text}"
            self._context.event(self._pod, "Warning", "Unhealthy", "Probe", note)
        if finding.new:
            self._set(container["name"], probing.found(container, known, finding.probe, verdict=finding.verdict))

    # Tokens, and the end

    async def _renew_tokens(self) -> None:
        if not self._view.prepared or self._pod["metadata"].get("deletionTimestamp"):
            self._tokens_due = None
            return
        if self._tokens_due is None and not podspec.has_token(self._pod):
            return
        if self._tokens_due is None or _now() >= self._tokens_due:
            with contextlib.suppress(ConfigError):
                self._tokens_due = await self._context.materials.fill(self._pod, self._facts(self._view.ip))

    async def _teardown(self) -> None:
        for prober in self._probers.values():
            prober.stop()
        self._probers.clear()
        await self._context.node.request("pod-remove", {"uid": podspec.uid(self._pod)})
        self._tokens_due = None
        self._view = replace(self._view, prepared=False)

    async def _finish(self) -> None:
        await self._write_status()
        await self._teardown()
        meta = self._pod["metadata"]
        with contextlib.suppress(errors.NotFound, errors.Conflict):
            await self._context.client.delete(
                kinds.POD, meta["namespace"], meta["name"], uid=meta["uid"], grace_seconds=0
            )
        self._context.remove_logs(self._pod)
        self._done = True

    async def _leave(self) -> None:
        await self._teardown()
        self._context.remove_logs(self._pod)
        self._done = True


def _now() -> datetime:
    return datetime.now(UTC)
