"""The simulated world: everybody in it, its time, its chance, and what is true.

What may live here: how the parts are put together and what they share.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from raybus.runtime import faultpoints
from raybus_localkube.server.messages import Response
from simulation.sim.actors.apiserver import ApiServer, Change, Json
from simulation.sim.actors.autoscaler import Autoscaler
from simulation.sim.actors.builtin import Builtin
from simulation.sim.actors.dashboard import Dashboards, Submission
from simulation.sim.actors.kubelet import Kubelet
from simulation.sim.actors.mishaps import Mishaps
from simulation.sim.actors.nats import Nats
from simulation.sim.actors.services import Slot, cluster_ctrl, gateway, job_ctrl
from simulation.sim.actors.submitter import Submitters
from simulation.sim.actors.trouble import Trouble
from simulation.sim.faults import Fault, Faults, Swarm
from simulation.sim.invariants.violation import Violation
from simulation.sim.loop import BEGIN, Process, ProcessKilled, SimLoop, current_process
from simulation.sim.story import Story

EPOCH = datetime(2027, 12, 31, 23, 59, 15, tzinfo=UTC)  # the year ends in the middle of most runs
NAMESPACE = "default"


class SimClock:
    """The clocks of one process; its wall clock may be wrong."""

    def __init__(self, world: World, process: Process) -> None:
        self._world, self._process = world, process

    def monotonic(self) -> float:
        return self._world.loop.now

    def now(self) -> datetime:
        slot = self._world.slots_by_process.get(self._process)
        return self._world.now() + timedelta(seconds=slot.clock_offset_s if slot else 0.0)


@dataclass(frozen=True, slots=True)
class Asked:
    """A request of the product and what the API server answered; refusals that a fault made up are not among them."""

    who: str
    method: str
    path: str
    body: bytes
    status: int
    answer: bytes


class Watcher:
    """Who looks on: an invariant. Methods are called as things happen; a violation is raised."""

    def on_change(self, world: World, change: Change) -> None: ...

    def on_request(self, world: World, asked: Asked) -> None: ...

    def on_submitted(self, world: World, submission: Submission) -> None: ...

    def on_second(self, world: World) -> None: ...

    def at_end(self, world: World) -> None: ...


class World:
    """`services` says how many of each: ("gateway", 2), ("cluster-ctrl", 2). `builtin`: Kubernetes' own controllers run too."""

    partitions = 8

    def __init__(self, services: Iterable[tuple[str, int]], *, builtin: bool = False, detailed: bool = False) -> None:
        self.builtin_runs = builtin
        self.loop = SimLoop()
        self.story = Story(self.loop, detailed=detailed)
        self.chance = Random(0)
        self.faults = Faults()
        self.watchers: list[Watcher] = []
        self.slots_by_process: dict[Process, Slot] = {}
        self.outside = self.loop.outside
        self._calm = True
        self.slowest = 0.01  # seconds that a message may take
        self.last_change = BEGIN
        self.writes = 0
        self.listeners: list[Callable[[Change], None]] = []
        self.violated: Violation | None = None
        self.decisions = 0
        self.errors: list[str] = []  # of the product's log: what it calls an error itself
        self.marks: Counter[str] = Counter()  # what was reached, by name
        self.hanging: Counter[Process] = Counter()
        self.late_creations = 0  # that arrived long after they had been sent
        self.sick = ""  # the name of a RayCluster of which no request of the product succeeds
        self._next_second = 0.0
        self.healed_at = float("inf")
        self.trouble = Trouble(self)
        self.mishaps = Mishaps(self)
        self.api = ApiServer(self.now, self._changed)
        self.nats = Nats(self)
        self.kubelet = Kubelet(self)
        self.dashboards = Dashboards(self)
        self.submitters = Submitters(self)
        self.autoscaler = Autoscaler(self)
        self.builtin = Builtin(self)
        self.listeners += [self.kubelet.on_change, self.submitters.on_change]
        mains = {"gateway": gateway, "cluster-ctrl": cluster_ctrl, "job-ctrl": job_ctrl}
        self.slots = [
            Slot(self, f"{name}-{number}", mains[name]) for name, count in services for number in range(count)
        ]

    # Time and chance

    def now(self) -> datetime:
        return EPOCH + timedelta(seconds=self.loop.now - BEGIN)

    def stamp(self) -> str:
        return self.now().strftime("%Y-%m-%dT%H:%M:%SZ")

    def clock_of(self, process: Process) -> SimClock:
        return SimClock(self, process)

    def latency(self) -> float:
        """Seconds that a message is under way."""
        return 0.002 if self._calm else 0.0005 + self.chance.random() * self.slowest

    def between(self, least: float, most: float) -> float:
        return (least + most) / 2 if self._calm else least + self.chance.random() * (most - least)

    def travel(self) -> asyncio.Future[None]:
        return self.loop.pause(self.latency())

    async def never_answered(self, process: Process) -> None:
        """Until the client gives up."""
        self.hanging[process] += 1
        try:
            await self.for_ever()
        finally:
            self.hanging[process] -= 1
            self.last_change = self.loop.now  # what follows from it is still to come

    def hangs(self) -> bool:
        """Whether somebody still waits for an answer that will never come."""
        return any(count and process.alive for process, count in self.hanging.items())

    async def for_ever(self) -> None:
        future = self.loop.create_future()
        self.loop.graves.append(future)  # else nothing would keep who waits here from being collected
        await future

    async def silence(self, seconds: float | None) -> None:
        """Nothing is heard, until somebody gives up or the network is whole again."""
        until = self.loop.now + (seconds or 1e9)
        while self.faults.active and self.loop.now < until:
            await asyncio.sleep(min(5.0, until - self.loop.now))

    # Life

    def boot(self) -> None:
        """Everything runs and nothing is to be done: the state that all schedules begin with."""
        self.loop.run(self._booted())

    async def _booted(self) -> None:
        for slot in self.slots:
            slot.start()
        if self.builtin_runs:
            self.builtin.start()
            await self.until(self.builtin.manager.started.is_set, 60.0, "the start of Kubernetes' own controllers")
        await self.until(self.is_settled, 60.0, "the boot")
        await asyncio.sleep(2.0)

    def is_settled(self) -> bool:
        """By their own account all services are up and know all there is."""
        if any(slot.replica is None for slot in self.slots):
            return False
        active = any(slot.replica.active for slot in self.slots if slot.name.startswith("gateway"))
        return active and all(check().ok for slot in self.slots for check in slot.replica.checks().values())

    async def until(self, holds: Callable[[], bool], seconds: float, what: str = "", every: float = 0.25) -> bool:
        """Wait for it; False if it took too long. With `what` that is an error."""
        ends = self.loop.now + seconds
        while not holds():
            if self.loop.now >= ends:
                if what:
                    raise AssertionError(f"{what} took more than {seconds:g} s")
                return False
            await asyncio.sleep(every)
        return True

    def begin(self, seed: int, plan: Iterable[Fault] = (), *, swarm: bool = False, record: bool = False) -> None:
        """From here on the seed decides. Seed 0 is calm: every way takes the same time."""
        self.story.begin()
        self.chance = Random(f"{seed}/chance")
        self.loop.chance = Random(f"{seed}/order")
        self.api.env.chance = Random(f"{seed}/names")
        self._calm = seed == 0
        self.slowest = self.chance.choice((0.002, 0.01, 0.05, 0.3))
        chance = Random(f"{seed}/faults")
        self.faults.begin(plan, swarm=Swarm.drawn(chance) if swarm else None, chance=chance, record=record)
        faultpoints._armed = self  # the seam that raybus.runtime.faultpoints has for tests
        self.loop.steps = 0

    def heal(self) -> None:
        """No more faults: what is broken is made whole, what is down is started."""
        self.story.tell("world", "no more faults from here on")
        self.faults.end()
        self.sick = ""
        self.healed_at = self.loop.now
        self.nats.heal()
        for slot in self.slots:
            if slot.process is not None and slot.process.frozen:
                slot.process.thaw()
            slot.clock_offset_s = 0.0
            slot.start()

    async def dies(self, process: Process) -> None:
        """Never returns."""
        slot = self.slots_by_process.get(process)
        if slot is not None:
            slot.kill()
        await self.for_ever()

    async def stands_still(self, process: Process, seconds: float) -> None:
        self.freeze(process, seconds)
        await asyncio.sleep(0)

    def freeze(self, process: Process, seconds: float) -> None:
        self.story.tell(process.name, f"stands still for {seconds:g} s")
        process.freeze()
        self.outside.call_later(seconds, self._thaw, process)

    def _thaw(self, process: Process) -> None:
        if process.frozen:
            self.story.tell(process.name, "goes on")
            process.thaw()

    def hit(self, name: str) -> None:
        """A named fault point of the product was passed (raybus.runtime.faultpoints)."""
        process = current_process()
        if self.faults.at("faultpoint", f"{name} @{process.name}"):
            self.slots_by_process[process].kill()
            raise ProcessKilled

    # What happens

    def _changed(self, change: Change) -> None:
        self.last_change = self.loop.now
        self.writes += 1
        self.story.mark(change.type, change.resource, change.name, str(change.obj["metadata"].get("resourceVersion")))
        if self.story.detailed:
            self._tell(change)
        self._watch("on_change", change)
        for listener in self.listeners:
            listener(change)
        self.trouble.on_change(change)

    def _tell(self, change: Change) -> None:
        verb = {"ADDED": "creates", "MODIFIED": "changes", "DELETED": "removes"}[change.type]
        self.story.tell(change.writer.who, f"{verb} {change.target}" + _what(change))

    def requested(self, process: Process, method: str, path: str, body: bytes, answer: Response) -> None:
        if answer.status >= 300:
            self.story.tell(process.name, f"{method} {path} is refused: {answer.status} {answer.body[:200]!r}")
        self._watch("on_request", Asked(process.name, method, path, body, answer.status, answer.body))

    def _watch(self, what: str, *arguments: Any) -> None:
        """An invariant that does not hold ends the run, but not inside of what broke it, where it would pass for an error."""
        if self.violated is None:
            try:
                for watcher in self.watchers:
                    getattr(watcher, what)(self, *arguments)
            except Violation as violation:
                self.violate(violation)

    def violate(self, violation: Violation) -> None:
        """Ends the run at the next chance."""
        self.violated = violation
        self.story.tell("world", f"VIOLATED {violation}")

    def submitted(self, submission: Submission) -> None:
        """A head has taken a job."""
        self._watch("on_submitted", submission)

    def check(self) -> None:
        """Raise what was violated."""
        if self.loop.now >= self._next_second:
            self._next_second = self.loop.now + 1.0
            self._watch("on_second")
        if self.violated is None and (problems := [*self.errors, *map(str, self.loop.failures)]):
            self.violated = Violation("O7", problems[0])
        if self.violated is not None:
            raise self.violated

    def touch(self, path: str) -> None:
        """Somebody else writes the object of this path."""
        parts = path.split("/")
        base = "/".join(parts[: parts.index("namespaces") + 4])
        self.mishaps.annotate(base)


def _what(change: Change) -> str:
    """What a change changed, in a line."""
    if change.type != "MODIFIED" or change.old is None:
        return ""
    return ": " + ", ".join(_differences(change.old, change.obj, ""))[:600]


def _differences(old: Any, new: Any, path: str) -> list[str]:
    if path == ".metadata.resourceVersion" or old == new:
        return []
    if isinstance(old, dict) and isinstance(new, dict):
        keys: dict[str, Json] = {**old, **new}
        return [line for key in sorted(keys) for line in _differences(old.get(key), new.get(key), f"{path}.{key}")]
    return [f"{path[1:]} {_short(old)} -> {_short(new)}"]


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 120 else text[:117] + "..."
