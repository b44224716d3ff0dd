"""The loop around passes: which trees are due, on whose partitions, how often, and what follows from what became of a pass.

    queue -> worker -> PassRunner.run -> settle (back-off, timers, probes, hold) -> queue

Nothing here polls: it waits on the queue, on timers of the loop, and on the callbacks of mirror, leases and probes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Generic, TypeVar

from raybus.decide.actions import Action
from raybus.decide.reasons import PARKED
from raybus.decide.tree import RootKey
from raybus.domain.identity import fnv1a32, partition
from raybus.observe.logging import get_logger
from raybus.observe.metrics import ControllerMetrics
from raybus.runtime import backoff, outcomes
from raybus.runtime.backoff import Backoff
from raybus.runtime.clock import Clock
from raybus.runtime.executor import Executor, Handler, OnOutcome, Ports
from raybus.runtime.ownership import Ownership, ReadPartitions
from raybus.runtime.passes import PassResult, PassRunner
from raybus.runtime.ports import Prober
from raybus.runtime.probes import ProbePool
from raybus.runtime.queue import Due, KeyedQueue
from raybus.runtime.spec import ControllerSpec
from raybus.runtime.told import Told
from raybus.runtime.triggers import AGAIN, DEADLINE, RESYNC, RETRY, TAKE_OVER, is_urgent

W = TypeVar("W")

HOLD_FACTOR = 50.0  # so a tree costs at most 2 % of a core
HOLD_MAX_S = 0.25
RESYNC_S = 600.0
RESYNC_SLICES = 60
MARKER_AGE_MAX_S = 30.0
RECHECK_S = 0.5
PAST_DEADLINE_S = 1.0
LOSE_WAIT_S = 5.0


class Controller(Generic[W]):
    """Give `on_change` to the mirror, `gained` and `lost` to the leases; `start`, at the end `drain` and `close`.

    `mine` asks the leases about a partition; `read` is Mirror.own.
    """

    def __init__(
        self,
        spec: ControllerSpec[W],
        ports: Ports,
        clock: Clock,
        metrics: ControllerMetrics,
        *,
        partitions: int,
        mine: Callable[[int], bool],
        read: ReadPartitions,
        handlers: Mapping[type[Action], Handler] | None = None,
        on_outcome: OnOutcome = lambda _outcome, _root: None,
        prober: Prober | None = None,
        workers: int = 64,
        queue_limit: int = 50_000,
        namespaces: tuple[str, ...] = (),
    ) -> None:
        self.spec = spec
        self.queue = KeyedQueue(limit=queue_limit)
        self.backoff = Backoff()
        self.ownership = Ownership(read)
        self.probes = ProbePool(prober, clock, self._wake) if prober else None
        self._ports = ports
        self._clock = clock
        self._metrics = metrics
        self._partitions = partitions
        self._mine = mine
        self._namespaces = frozenset(namespaces)
        self._told = Told()
        self._passes = PassRunner(
            spec,
            ports,
            Executor(
                spec.name,
                ports,
                clock,
                metrics,
                actions=spec.actions,
                handlers=handlers,
                told=self._told,
                on_outcome=on_outcome,
            ),
            clock,
            metrics,
            facts=self.probes.facts if self.probes is not None else lambda _key: {},
            mine=self._holds,
        )
        self._unread: set[RootKey] = set()  # trees whose next creations rest on a fresh read
        self._deferred: dict[RootKey, str] = {}  # due, but their partition is being read again
        self._worker_count = workers
        self._draining = False
        self._workers: list[asyncio.Task[None]] = []
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._log = get_logger(controller=spec.name)

    # Life

    def start(self) -> None:
        self._workers = [asyncio.create_task(self._work(), name=f"worker {n}") for n in range(self._worker_count)]
        self._resync_slice(0)

    async def drain(self, limit_s: float) -> bool:
        """Begin no new pass and let the running ones end; False if some still ran after `limit_s` seconds."""
        self._draining = True
        self.queue.pause()
        for timer in self._timers.values():
            timer.cancel()
        return await self.queue.wait_done(lambda _key: True, limit_s)

    async def close(self) -> None:
        """End workers and probes. A pass that still runs is cut off, as by a crash: the next owner finds what it did."""
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)
        if self.probes is not None:
            await self.probes.close()
        self.queue.drop(lambda _key: True)

    # What makes trees due

    def on_change(self, key: RootKey, trigger: str) -> None:
        """The mirror learned something about a tree."""
        if self._watched(key):
            self.queue.add(key, trigger, urgent=is_urgent(trigger))

    async def gained(self, part: int) -> None:
        """The leases gained a partition; returns when its trees are read and due."""
        for new in await self.ownership.gain(part):
            self._log.info("working on a partition", partition=new)
            for key in self._ports.mirror.roots(new):
                if self._watched(key):
                    self._unread.add(key)
                    self.queue.add(key, TAKE_OVER)

    def doubt(self) -> None:
        """The mirror was read again after a gap and may show less than there is: creations rest on a fresh read first."""
        self._unread.update(self._ports.mirror.roots(None))

    async def lost(self, part: int, graceful: bool) -> None:
        """With `graceful` the lease is still held, so that running passes may end before another replica begins."""
        self._log.info("leaving a partition", partition=part, graceful=graceful)
        self.queue.drop(lambda key: self._part(key) == part)
        if graceful:
            await self.queue.wait_done(lambda key: self._part(key) == part, LOSE_WAIT_S)
        await self.ownership.lose(part)
        self._drop(lambda key: self._part(key) == part)

    def _drop(self, predicate: Callable[[RootKey], bool]) -> None:
        self.queue.drop(predicate)
        self.backoff.drop(predicate)
        self._passes.drop(predicate)
        self._told.drop(predicate)
        if self.probes is not None:
            self.probes.drop(predicate)
        self._unread = {key for key in self._unread if not predicate(key)}
        self._deferred = {key: why for key, why in self._deferred.items() if not predicate(key)}

    def _forget(self, key: RootKey) -> None:
        self.queue.forget(key)
        self.backoff.succeeded(key)
        self._passes.forget(key)
        self._told.forget(key)
        if self.probes is not None:
            self.probes.want(key, ())
        self._unread.discard(key)

    def _wake(self, key: RootKey, trigger: str) -> None:
        self.queue.add(key, trigger)

    def _watched(self, key: RootKey) -> bool:
        return not self._namespaces or key.namespace in self._namespaces

    def _part(self, key: RootKey) -> int:
        return partition(key.namespace, key.name, self._partitions)

    def _holds(self, key: RootKey) -> bool:
        return self._mine(self._part(key))

    def _resync_slice(self, number: int) -> None:
        """One slice of the trees after the other: each is looked at again every ten minutes, and never all at once."""
        for key in self._ports.mirror.roots(None):
            due = fnv1a32(f"{key.namespace}/{key.name}") % RESYNC_SLICES == number
            if due and self._watched(key) and not self.backoff.parked(key):
                self._metrics.resyncs.inc()
                self.queue.add(key, RESYNC)
        self._after("resync", RESYNC_S / RESYNC_SLICES, self._resync_slice, (number + 1) % RESYNC_SLICES)

    def _after(self, name: str, wait_s: float, call: Callable[..., None], *arguments: object) -> None:
        if not self._draining:
            self._timers[name] = asyncio.get_running_loop().call_later(wait_s, call, *arguments)

    # Whether a pass may begin

    def stale_kinds(self) -> dict[str, float | None]:
        """Kinds whose completeness nobody has vouched for lately, with the age of the last word in seconds."""
        ages = {kind: self._ports.mirror.marker_age_s(kind) for kind in sorted(self.spec.kinds)}
        return {kind: age for kind, age in ages.items() if age is None or age > MARKER_AGE_MAX_S}

    def _may_begin(self, due: Due) -> bool:
        """False: the key has been put where it waits, or is not ours any more."""
        part = self._part(due.key)
        if part not in self.ownership.ready or not self._mine(part):
            return False
        if self.stale_kinds():
            if not self.queue.paused:
                self._log.warning("waiting for the gateway: its markers are old", ages=self.stale_kinds())
            self.queue.pause()
            self.queue.add(due.key, due.trigger, urgent=True)
        elif not self._ports.mirror.caught_up(part):
            self._deferred[due.key] = due.trigger
        else:
            return True
        self._after_once("recheck", RECHECK_S, self._recheck)
        return False

    def _after_once(self, name: str, wait_s: float, call: Callable[[], None]) -> None:
        if name not in self._timers:
            self._after(name, wait_s, call)

    def _recheck(self) -> None:
        """Runs only while something waits for markers or for a partition that is read again."""
        del self._timers["recheck"]
        if self.queue.paused and not self._draining and not self.stale_kinds():
            self._log.info("markers are fresh again")
            self.queue.resume()
        caught_up = [key for key in self._deferred if self._ports.mirror.caught_up(self._part(key))]
        for key in caught_up:
            self.queue.add(key, self._deferred.pop(key), urgent=True)
        if self.queue.paused or self._deferred:
            self._after("recheck", RECHECK_S, self._recheck)

    # Passes

    async def _work(self) -> None:
        while True:
            due = await self.queue.get()
            try:
                if self._may_begin(due):
                    await self._pass(due)
            except Exception as error:  # noqa: BLE001 - a worker must outlive any bug
                self._log.exception("bug in a pass", namespace=due.key.namespace, name=due.key.name)
                self._crashed(due.key, error)
            finally:
                self.queue.done(due.key)

    async def _pass(self, due: Due) -> None:
        key = due.key
        self._metrics.queue_seconds.observe(due.waited_s)
        began = self._clock.monotonic()
        unread = key in self._unread
        self._unread.discard(key)  # what comes during the pass counts for the next one
        result = await self._passes.run(key, due.trigger, takeover=unread)
        took_s = self._clock.monotonic() - began
        word = self._settled(key, result)
        if unread and word not in ("done", "again", "gone"):
            self._unread.add(key)
        self._metrics.passed(word, took_s)

    def _settled(self, key: RootKey, result: PassResult) -> str:
        """Draw the consequences of a pass; the answer is its result in a word, for the metric."""
        if result.lost or not self._holds(key):
            return "lease_lost"
        if result.gone:
            self._forget(key)
            return "gone"
        if result.crash is not None:
            self._crashed(key, result.crash)
            return "crash"
        if self.probes is not None and result.probes is not None:
            self.probes.want(key, result.probes)
        now = asyncio.get_running_loop().time()
        self.queue.hold(key, now + min(HOLD_MAX_S, HOLD_FACTOR * result.computed_s))
        if result.wake_at is not None:
            self.queue.add_at(key, now + self._until(result.wake_at), DEADLINE)
        verdict = outcomes.verdict(result.outcomes)
        if verdict.failed or result.unconfirmed:
            self._unread.update({key} if verdict.reread else ())
            self._back_off(key, now, verdict.retry_after_s)
            return "failed"
        self.backoff.succeeded(key)
        if verdict.again:
            self.queue.add(key, AGAIN, urgent=True)
            return "again"
        return "done"

    def _until(self, wake_at: datetime) -> float:
        """Seconds until a deadline. One that has passed already was not acted on: do not spin on it."""
        left = (wake_at - self._clock.now()).total_seconds()
        return left + 0.001 if left > 0 else PAST_DEADLINE_S

    def _back_off(self, key: RootKey, now: float, retry_after_s: float | None) -> None:
        wait = self.backoff.failed(key, retry_after_s)
        self.queue.hold(key, now + backoff.hold(wait, retry_after_s))
        self.queue.add_at(key, now + wait, RETRY)

    def _crashed(self, key: RootKey, crash: Exception) -> None:
        now = asyncio.get_running_loop().time()
        parks = self.backoff.crashed(key)
        if not self.backoff.parked(key):
            self.queue.add_at(key, now + backoff.delay(self.backoff.crashes(key)), RETRY)
        self.queue.hold(key, now + backoff.hold(backoff.delay(self.backoff.crashes(key)), None))
        if parks:
            what = f"{type(crash).__name__}: {crash}"[:500]
            self._log.warning(
                "parking an object that no decision can be made on",
                kind=key.kind, namespace=key.namespace, name=key.name, reason=what,
            )  # fmt: skip
            tree = self._ports.mirror.tree(key)
            if tree and tree.root:
                note = (
                    f"Raybus cannot decide on this object and leaves it alone until it changes. This is a bug: {what}"
                )
                if self._told.news(key, tree.root, PARKED.reason, note):
                    self._ports.events.record(tree.root, "Warning", PARKED.reason, PARKED.verb, note)
