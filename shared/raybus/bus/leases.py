"""Partition leases: which partitions of a controller this replica owns, and since when it must believe that no longer.

A session key with a time to live proves that a replica lives; a record per partition, written by compare-and-set, names the
owner. Exclusiveness rests on three things: a replica counts its own validity from before the renewal left, on its own monotonic
clock; a record is taken only when the stream's leader says that the owner's session is gone; and whatever looks like lost or
rolled-back lease data drops everything. Kubernetes' preconditions are the last fence behind it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial

import orjson
import structlog

from raybus.bus.assignment import (
    KV_DELETE,
    KV_OPERATION,
    LeaseView,
    Record,
    evicted,
    is_gone,
    moves,
    owner_of,
    untaken,
)
from raybus.bus.clock import SYSTEM, Clock
from raybus.bus.keeper import Bucket, SessionKeeper
from raybus.bus.subjects import lease_subject
from raybus.bus.transport import Bus, BusError, Follower, Message, WrongSequence

log = structlog.get_logger(__name__)

DEFAULT_TTL_S = 12
_GAIN_RETRY_S = 0.2
_STOP_S = 20.0

OnGain = Callable[[int], Awaitable[None]]
OnLose = Callable[[int, bool], Awaitable[None]]


async def free_partitions(bus: Bus, bucket: str, partitions: int) -> None:
    """Say that nobody owns the partitions that have no record, so that the first start need not wait one time to live.

    Only for one who knows that no replica lives, such as whoever started the NATS server on an empty store.
    """
    for part in range(partitions):
        try:
            await bus.publish(
                lease_subject(bucket, f"part.{part}"),
                b"",
                {KV_OPERATION: KV_DELETE},
                expect_last_seq=0,
            )
        except WrongSequence:
            continue


class Leases:
    """Leases of one replica in one bucket ("lease-rayjob"). `session` is the JSON session record.

    `on_gain(p)` is called until it succeeds; `on_lose(p, graceful)` before somebody else may own p if graceful, at once
    otherwise. `ttl_s` is in whole seconds.
    """

    def __init__(
        self,
        bus: Bus,
        bucket: str,
        replica: str,
        partitions: int,
        *,
        session: bytes,
        on_gain: OnGain,
        on_lose: OnLose,
        ttl_s: int = DEFAULT_TTL_S,
        clock: Clock = SYSTEM,
    ) -> None:
        self._bucket = Bucket(bus, bucket, ttl_s)
        self._replica = replica
        self._partitions = partitions
        self._on_gain = on_gain
        self._on_lose = on_lose
        self._clock = clock
        self._record = orjson.dumps({"replica": replica})
        self._keeper = SessionKeeper(
            self._bucket,
            replica,
            session,
            clock,
            on_renewed=self._wake,
            on_lapse=self._fence,
        )
        self._view = LeaseView()
        self._owned: dict[int, int] = {}  # partition -> epoch (sequence of our record)
        self.partitions = partitions
        self.gained = 0
        # By how: "released" in order, "fenced" by our own clock, "evicted" by another replica's record.
        self.lost: Counter[str] = Counter()
        self._busy: dict[int, asyncio.Task[None]] = {}  # the last job of a partition
        self._born: float | None = None  # when the own session (re)appeared in the view, monotonic
        self._draining = False
        self._stopped = False
        self._kick = asyncio.Event()
        self._changed = asyncio.Event()
        self._grace_timer: asyncio.TimerHandle | None = None
        self._follower: Follower | None = None
        self._mover: asyncio.Task[None] | None = None

    # --- what others ask ---

    @property
    def valid(self) -> bool:
        """Whether this replica may believe in its leases at this moment."""
        return self._keeper.valid

    def owned(self) -> frozenset[int]:
        return frozenset(self._owned) if self.valid else frozenset()

    def mine(self, part: int) -> bool:
        """Ask again before every write: it turns false by itself when the validity ends."""
        return part in self._owned and self.valid

    def unsettled(self) -> str:
        """Why this replica has not yet taken its part in the assignment, in words; empty if it has, be it as a stand-by."""
        if not self.valid:
            why = f": {self._keeper.trouble}" if self._keeper.trouble else ""
            return f"the session in the lease bucket could not be written or renewed{why}"
        if not self._view.complete or self._replica not in self._view.sessions:
            return "the session is not yet seen in the lease bucket"
        parts = untaken(self._view, me=self._replica, partitions=self._partitions, owned=self._owned)
        return f"waiting to take {list(parts)}, which nobody owns" if parts else ""

    def epoch(self, part: int) -> int | None:
        """The fencing token of an owned partition, for comparing only."""
        return self._owned.get(part) if self.valid else None

    async def start(self) -> None:
        """Begin to compete. Returns at once; partitions come by on_gain."""
        self._follower = await self._bucket.bus.follow(
            self._bucket.stream,
            (lease_subject(self._bucket.name, ">"),),
            on_message=self._apply,
            on_caught_up=self._caught_up,
            on_gap=self._view.clear,
        )
        self._keeper.start()
        self._mover = asyncio.create_task(self._moving(), name=f"move {self._bucket.name}")

    async def stop(self, timeout_s: float = _STOP_S) -> None:
        """Hand over: release each partition after on_lose(p, True), then end the session. Never raises, ends in time."""
        if self._stopped:
            return
        self._draining = True
        self._keeper.drain()
        try:
            async with asyncio.timeout(timeout_s):
                while self._owned or self._busy:
                    self._changed.clear()
                    self._release_all()
                    await self._changed.wait()
        except TimeoutError:
            log.warning("lease_release_timed_out", bucket=self._bucket.name, partitions=sorted(self._owned))
        self._stopped = True
        tasks = [task for task in (self._mover, *self._busy.values()) if task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._grace_timer:
            self._grace_timer.cancel()
        if self._follower:
            await self._follower.close()
        self._owned.clear()
        await self._keeper.end()

    def _fence(self, why: str) -> None:
        lost, self._owned = self._owned, {}
        if lost:
            self.lost["fenced"] += len(lost)
            log.warning("lease_self_fence", bucket=self._bucket.name, why=why, partitions=sorted(lost))
        for part in lost:
            running = self._busy.get(part)
            if running:
                running.cancel()  # a gain or an orderly release that is under way has lost its point
            self._spawn(part, partial(self._lost, part))
        self._wake()

    async def _lost(self, part: int) -> None:
        try:
            await self._on_lose(part, False)
        except Exception:  # the partition is lost whatever its loser says
            log.exception("on_lose_failed", bucket=self._bucket.name, partition=part)

    def _wake(self) -> None:
        self._kick.set()

    # --- the view ---

    def _caught_up(self) -> None:
        self._view.complete = True
        self._kick.set()

    def _apply(self, message: Message) -> None:
        key = message.subject[len(self._bucket.name) + 5 :]
        was_there = self._replica in self._view.sessions
        self._view.apply(key, message)
        if not was_there and self._replica in self._view.sessions:
            self._born = self._clock.monotonic()
            self._arm_grace()
        self._kick.set()

    def _arm_grace(self) -> None:
        if self._grace_timer:
            self._grace_timer.cancel()
        self._grace_timer = asyncio.get_running_loop().call_later(self._bucket.ttl_s + 0.01, self._grace_ends)

    def _grace_ends(self) -> None:
        if self._grace_over():
            self._kick.set()
        else:
            self._arm_grace()

    def _grace_over(self) -> bool:
        return self._born is not None and self._clock.monotonic() > self._born + self._bucket.ttl_s

    # --- moving partitions ---

    async def _moving(self) -> None:
        while True:
            await self._kick.wait()
            self._kick.clear()
            if self._view.complete:
                self._move()

    def _move(self) -> None:
        for part in evicted(self._view, self._replica, self._owned):
            if part not in self._busy:
                del self._owned[part]
                self.lost["evicted"] += 1
                log.warning("lease_evicted", bucket=self._bucket.name, partition=part)
                self._spawn(part, partial(self._lost, part))
        if not self.valid or self._draining:
            return
        if self._replica not in self._view.sessions:
            # A complete view without our session: the lease data was lost, whatever our clock says.
            if self._born is not None:
                self._born = None
                self._keeper.lost("lease data lost")
            return
        due = moves(
            self._view,
            me=self._replica,
            partitions=self._partitions,
            owned=self._owned,
            busy=self._busy,
            grace_over=self._grace_over(),
        )
        for part, record in due.take:
            self._spawn(part, partial(self._take, part, record))
        for part in due.release:
            self._spawn(part, partial(self._release, part))
        for part, seq in due.disown:
            self._spawn(part, partial(self._disown, part, seq))

    def _release_all(self) -> None:
        for part in self._owned:
            if part not in self._busy:
                self._spawn(part, partial(self._release, part))

    def _spawn(self, part: int, work: Callable[[], Awaitable[None]]) -> None:
        """Run a job of a partition, after the one that it may have already."""
        if self._stopped:
            return
        before = self._busy.get(part)

        async def run() -> None:
            if before:
                await asyncio.wait([before])
            await work()

        task = asyncio.create_task(run(), name=f"lease {self._bucket.name}/{part}")
        self._busy[part] = task
        task.add_done_callback(lambda done: self._job_done(part, done))

    def _job_done(self, part: int, task: asyncio.Task[None]) -> None:
        if self._busy.get(part) is task:
            del self._busy[part]
        if not task.cancelled() and task.exception():
            log.error("lease_job_failed", bucket=self._bucket.name, partition=part, error=repr(task.exception()))
        self._kick.set()
        self._changed.set()

    async def _take(self, part: int, record: Record | None) -> None:
        try:
            if record and record.owner not in (None, self._replica) and await self._lives(record.owner or ""):
                await asyncio.sleep(_GAIN_RETRY_S)  # until our view has seen it too
                return
            epoch = await self._bucket.put(f"part.{part}", self._record, record.seq if record else 0)
        except WrongSequence:
            await self._refresh(part)
            return
        except BusError as error:
            log.info("lease_take_failed", bucket=self._bucket.name, partition=part, error=str(error))
            await asyncio.sleep(_GAIN_RETRY_S)
            return
        self._view.records[part] = Record(self._replica, epoch)
        if not self.valid or self._draining:
            return
        self._owned[part] = epoch
        self.gained += 1
        log.info("lease_gained", bucket=self._bucket.name, partition=part, epoch=epoch)
        while self._owned.get(part) == epoch and self.valid:
            try:
                await self._on_gain(part)
            except Exception as error:  # noqa: BLE001 - never stay owned but idle: whatever went wrong, try again
                log.warning("on_gain_retry", bucket=self._bucket.name, partition=part, error=repr(error))
                await asyncio.sleep(_GAIN_RETRY_S)
            else:
                return

    async def _lives(self, owner: str) -> bool:
        """Ask the stream's leader, not our own view: it may be half replayed or stale."""
        last = await self._bucket.last(f"session.{owner}")
        return last is not None and not is_gone(last)

    async def _refresh(self, part: int) -> None:
        """Somebody was faster, or our view is wrong."""
        try:
            last = await self._bucket.last(f"part.{part}")
        except BusError:
            await asyncio.sleep(_GAIN_RETRY_S)
            return
        if last is None:
            self._view.records.pop(part, None)
        else:
            self._view.records[part] = Record(owner_of(last), last.seq)

    async def _release(self, part: int) -> None:
        epoch = self._owned.get(part)
        if epoch is None:
            return
        try:
            await self._on_lose(part, True)
        except Exception:  # the partition goes to another replica whatever its loser says
            log.exception("on_lose_failed", bucket=self._bucket.name, partition=part)
        if self._owned.pop(part, None) != epoch:
            return  # fenced meanwhile
        self.lost["released"] += 1
        log.info("lease_released", bucket=self._bucket.name, partition=part)
        await self._disown(part, epoch)

    async def _disown(self, part: int, seq: int) -> None:
        try:
            freed = await self._bucket.delete(f"part.{part}", seq)
        except WrongSequence:
            await self._refresh(part)
        except BusError as error:
            log.info("lease_release_failed", bucket=self._bucket.name, partition=part, error=str(error))
            await asyncio.sleep(_GAIN_RETRY_S)
        else:
            self._view.records[part] = Record(None, freed)
