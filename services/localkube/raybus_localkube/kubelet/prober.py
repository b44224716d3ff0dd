"""Asks the probes of one running container and tells when a verdict changes. When and what it means is decided in probing.py."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from raybus_localkube.kubelet import probing
from raybus_localkube.kubelet.handlers import Target
from raybus_localkube.kubelet.probing import Probe, ProbeName, Tally
from raybus_localkube.node.protocol import NodeError


@dataclass(frozen=True, slots=True)
class Finding:
    """A verdict that is `new`, or one more failure that counts; `text` is what was answered."""

    probe: ProbeName
    verdict: bool
    new: bool
    text: str


OnFinding = Callable[[Finding], None]


class Prober:
    """Lives as long as one run of a container. `ready`: the readiness that an earlier kubelet had found."""

    def __init__(self, target: Target, began: datetime, on_finding: OnFinding, *, started: bool, ready: bool) -> None:
        self._target = target
        self._began = began
        self._on_finding = on_finding
        self._started = asyncio.Event()
        probes = probing.probes(target.container)
        if started or "startup" not in probes:
            self._started.set()
        known = {"startup": started, "readiness": ready, "liveness": True}
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._run(probe, Tally(True) if known[name] else Tally()))
            for name, probe in probes.items()
            if not (name == "startup" and started)
        ]

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _age_s(self) -> float:
        return (datetime.now(UTC) - self._began).total_seconds()

    async def _run(self, probe: Probe, tally: Tally) -> None:
        loop = asyncio.get_running_loop()
        if probe.name != "startup":
            await self._started.wait()
        await asyncio.sleep(probing.first_delay(probe, self._age_s()))
        while True:
            asked = loop.time()
            try:
                answer = await self._target.ask(probe.handler, probe.timeout_s)
            except NodeError:
                # Nobody knows, so nothing counts. If the container has ended, this prober is stopped soon.
                await asyncio.sleep(min(1.0, probe.period_s))
                continue
            before = tally
            tally = probing.observe(probe, tally, success=answer.success, age_s=self._age_s())
            new = tally.verdict is not None and tally.verdict != before.verdict
            if new or tally.failures > before.failures:
                self._on_finding(Finding(probe.name, bool(tally.verdict), new, answer.text))
            if probe.name == "startup" and tally.verdict is not None:
                self._started.set()
                return
            delay = probing.next_delay(probe, tally, loop.time() - asked)
            await asyncio.sleep(max(0.0, delay - (loop.time() - asked) if not probe.eager or tally.verdict else delay))
