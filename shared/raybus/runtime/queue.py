"""Keyed queue: which tree is looked at next.

A key is never handed out twice at once; what happens to it meanwhile makes it due again, once, when it is done. Namespaces take
turns, so that a thousand trees of one tenant do not stand before the single one of another. The queue holds at most one entry per
key, so the number of trees bounds it.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from raybus.decide.tree import RootKey

Predicate = Callable[[RootKey], bool]


@dataclass(frozen=True, slots=True)
class Due:
    """A key that was handed out: why, and for how long it had been waiting (seconds)."""

    key: RootKey
    trigger: str
    waited_s: float


@dataclass(slots=True)
class _Entry:
    """What is known of a key until it is forgotten. Times are the loop's."""

    trigger: str = ""
    ready_since: float | None = None
    running: bool = False
    again: bool = False  # something happened while it ran
    urgent: bool = False  # ... that does not wait for the end of the hold
    forgotten: bool = False  # while it ran
    held_until: float = 0.0
    held: bool = False  # something happened while it was held back
    timer_at: float | None = None
    timer_trigger: str = ""
    handle: asyncio.TimerHandle | None = None  # rings at the end of the hold or at timer_at, whichever is first
    waiters: list[asyncio.Future[None]] = field(default_factory=list)


class KeyedQueue:
    """All methods belong to one event loop; only `get` and `wait_done` wait."""

    def __init__(self, *, limit: int = 50_000) -> None:
        self.limit = limit
        self._entries: dict[RootKey, _Entry] = {}
        self._ready: OrderedDict[str, deque[RootKey]] = OrderedDict()
        self._length = 0
        self._running = 0
        self._getters: deque[asyncio.Future[None]] = deque()
        self._paused = False

    def __len__(self) -> int:
        """Keys that are due and wait for a worker."""
        return self._length

    @property
    def overloaded(self) -> bool:
        return self._length > self.limit

    def oldest_s(self) -> float:
        """For how long the key has been waiting that waits longest, in seconds; 0 if none does. Costs as much as there are namespaces."""
        now = asyncio.get_running_loop().time()
        firsts = (self._entries[keys[0]].ready_since for keys in self._ready.values())
        return max((now - since for since in firsts if since is not None), default=0.0)

    @property
    def running(self) -> int:
        """Keys that were handed out and are not done."""
        return self._running

    # Putting in

    def add(self, key: RootKey, trigger: str, *, urgent: bool = False) -> None:
        """Make a key due: now, or when it is done running; unless `urgent`, not before the end of its hold."""
        entry = self._entries.setdefault(key, _Entry())
        if entry.running:
            entry.trigger = entry.trigger if entry.again else trigger
            entry.again = True
            entry.urgent = entry.urgent or urgent
        elif entry.ready_since is None:
            self._add_resting(key, entry, trigger, urgent=urgent)

    def _add_resting(self, key: RootKey, entry: _Entry, trigger: str, *, urgent: bool) -> None:
        now = asyncio.get_running_loop().time()
        if not entry.held or urgent:
            entry.trigger = trigger
        if urgent or now >= entry.held_until:
            self._make_ready(key, entry, now)
        elif not entry.held:
            entry.held = True
            self._arm(key, entry)

    def add_at(self, key: RootKey, when: float, trigger: str) -> None:
        """Make a key due at `when` (the loop's time), unless a pass over it begins before. The earliest of several counts."""
        entry = self._entries.setdefault(key, _Entry())
        if entry.ready_since is not None:
            return
        if entry.timer_at is None or when < entry.timer_at:
            entry.timer_at = when
            entry.timer_trigger = trigger
            if not entry.running:
                self._arm(key, entry)

    def hold(self, key: RootKey, until: float) -> None:
        """Until this time (the loop's) only urgent triggers and timers make the key due."""
        entry = self._entries.setdefault(key, _Entry())
        entry.held_until = max(entry.held_until, until)

    # Taking out

    async def get(self) -> Due:
        """The next due key, marked as running until `done`."""
        loop = asyncio.get_running_loop()
        while not self._length or self._paused:
            getter: asyncio.Future[None] = loop.create_future()
            self._getters.append(getter)
            try:
                await getter
            except asyncio.CancelledError:
                if getter in self._getters:
                    self._getters.remove(getter)
                else:
                    self._wake_one()  # it had been woken: pass that on
                raise
        return self._take(loop.time())

    def _take(self, now: float) -> Due:
        namespace, keys = self._ready.popitem(last=False)
        key = keys.popleft()
        self._length -= 1
        if keys:
            self._ready[namespace] = keys  # at the end: the next namespace has its turn
        entry = self._entries[key]
        waited = now - (entry.ready_since if entry.ready_since is not None else now)
        entry.ready_since = None
        entry.running = True
        entry.held_until = 0.0
        self._running += 1
        self._wake_one()
        return Due(key, entry.trigger, waited)

    def done(self, key: RootKey) -> None:
        """The pass over the key has ended."""
        entry = self._entries[key]
        entry.running = False
        self._running -= 1
        for waiter in entry.waiters:
            if not waiter.done():
                waiter.set_result(None)
        entry.waiters.clear()
        if entry.again:
            again_urgent, entry.again, entry.urgent, entry.forgotten = entry.urgent, False, False, False
            self._add_resting(key, entry, entry.trigger, urgent=again_urgent)
        elif entry.forgotten:
            del self._entries[key]
        elif entry.timer_at is not None:
            self._arm(key, entry)

    # Control

    @property
    def paused(self) -> bool:
        return self._paused

    def pause(self) -> None:
        """Hand out nothing until `resume`; what is running ends."""
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        self._wake_one()

    def forget(self, key: RootKey) -> None:
        """The key is not due any more, has no timer, and is not due again after a running pass."""
        entry = self._entries.get(key)
        if entry is None:
            return
        if entry.handle is not None:
            entry.handle.cancel()
        if entry.ready_since is not None:
            self._remove_ready(key)
        if entry.running:
            self._entries[key] = _Entry(running=True, forgotten=True, waiters=entry.waiters)
        else:
            del self._entries[key]

    def drop(self, predicate: Predicate) -> None:
        """Forget all keys of which the predicate holds: their partition was lost, say."""
        for key in [key for key in self._entries if predicate(key)]:
            self.forget(key)

    async def wait_done(self, predicate: Predicate, timeout_s: float) -> bool:
        """Wait until none of these keys is running; False if that took too long."""
        loop = asyncio.get_running_loop()
        waiting: list[asyncio.Future[None]] = []
        for key, entry in self._entries.items():
            if entry.running and predicate(key):
                waiter: asyncio.Future[None] = loop.create_future()
                entry.waiters.append(waiter)
                waiting.append(waiter)
        if not waiting:
            return True
        _, pending = await asyncio.wait(waiting, timeout=timeout_s)
        return not pending

    # Inside

    def _make_ready(self, key: RootKey, entry: _Entry, now: float) -> None:
        """Due; its timer is void, because the pass that comes will set it anew."""
        if entry.handle is not None:
            entry.handle.cancel()
            entry.handle = None
        entry.timer_at = None
        entry.held = False
        entry.ready_since = now
        self._ready.setdefault(key.namespace, deque()).append(key)
        self._length += 1
        self._wake_one()

    def _remove_ready(self, key: RootKey) -> None:
        keys = self._ready[key.namespace]
        keys.remove(key)
        self._length -= 1
        if not keys:
            del self._ready[key.namespace]

    def _arm(self, key: RootKey, entry: _Entry) -> None:
        if entry.handle is not None:
            entry.handle.cancel()
        times = [] if entry.timer_at is None else [entry.timer_at]
        if entry.held:
            times.append(entry.held_until)
        entry.handle = asyncio.get_running_loop().call_at(min(times), self._ring, key, entry)

    def _ring(self, key: RootKey, entry: _Entry) -> None:
        entry.handle = None
        if not entry.held:
            entry.trigger = entry.timer_trigger
        self._make_ready(key, entry, asyncio.get_running_loop().time())

    def _wake_one(self) -> None:
        while self._getters and self._length and not self._paused:
            getter = self._getters.popleft()
            if not getter.done():
                getter.set_result(None)
                return
