"""Keeps one asyncio task per submission that a plan wants watched; what it learns becomes a fact of the tree.

A key is woken only when the value of a fact has changed. A dead dashboard costs one place of the pool while its request lasts, and
never a worker of the queue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from raybus.decide.plan import WatchRayJob
from raybus.decide.tree import Fact, RootKey
from raybus.domain.identity import fnv1a32
from raybus.observe.logging import get_logger
from raybus.runtime.clock import Clock
from raybus.runtime.ports import Prober

CONCURRENCY = 64
PROBE_TIMEOUT_S = 30.0
INTERVAL_MIN_S = 0.2

Wake = Callable[[RootKey, str], None]


def fact_name(watch: WatchRayJob) -> str:
    """Under which name of Tree.facts the answer is found."""
    return f"rayjob/{watch.submission_id}"


@dataclass(slots=True)
class _Watched:
    watch: WatchRayJob
    task: asyncio.Task[None]


@dataclass(slots=True)
class _OfKey:
    watched: dict[str, _Watched] = field(default_factory=dict)
    facts: dict[str, Fact] = field(default_factory=dict)


class ProbePool:
    def __init__(self, prober: Prober, clock: Clock, wake: Wake, *, concurrency: int = CONCURRENCY) -> None:
        self._prober = prober
        self._clock = clock
        self._wake = wake
        self._places = asyncio.Semaphore(concurrency)
        self._keys: dict[RootKey, _OfKey] = {}
        self._log = get_logger()

    def __len__(self) -> int:
        """Running probes."""
        return sum(len(of_key.watched) for of_key in self._keys.values())

    def facts(self, key: RootKey) -> Mapping[str, Fact]:
        """A snapshot of what is known for this key."""
        of_key = self._keys.get(key)
        return dict(of_key.facts) if of_key else {}

    def want(self, key: RootKey, watches: tuple[WatchRayJob, ...]) -> None:
        """From now on exactly these are watched for the key; facts of others are forgotten."""
        if not watches and key not in self._keys:
            return
        of_key = self._keys.setdefault(key, _OfKey())
        wanted = {fact_name(watch): watch for watch in watches}
        for name in [name for name, watched in of_key.watched.items() if wanted.get(name) != watched.watch]:
            of_key.watched.pop(name).task.cancel()
        for name in [name for name in of_key.facts if name not in wanted]:
            del of_key.facts[name]
        for name, watch in wanted.items():
            if name not in of_key.watched:
                task = asyncio.create_task(self._run(key, of_key, watch), name=f"probe {name}")
                of_key.watched[name] = _Watched(watch, task)
        if not wanted:
            del self._keys[key]

    def drop(self, predicate: Callable[[RootKey], bool]) -> None:
        for key in [key for key in self._keys if predicate(key)]:
            self.want(key, ())

    async def close(self) -> None:
        """End all probes."""
        tasks = [watched.task for of_key in self._keys.values() for watched in of_key.watched.values()]
        self.drop(lambda _key: True)
        if tasks:
            await asyncio.wait(tasks, timeout=5.0)

    async def _run(self, key: RootKey, of_key: _OfKey, watch: WatchRayJob) -> None:
        """Ask at once, then in the interval.

        The first gap differs from one submission to the next, so that probes that began together do not stay together.
        """
        interval = max(watch.interval_s, INTERVAL_MIN_S)
        gap = interval * (0.5 + 0.5 * (fnv1a32(watch.submission_id) % 1000) / 1000)
        while True:
            async with self._places:
                value = await self._ask(watch)
            self._learned(key, of_key, watch, value)
            await asyncio.sleep(gap)
            gap = interval

    async def _ask(self, watch: WatchRayJob) -> Mapping[str, object]:
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                return await self._prober.probe(watch)
        except TimeoutError:
            return {"record": None, "error": f"no answer in {PROBE_TIMEOUT_S:g} s"}
        except Exception as error:  # noqa: BLE001 - a bug of one probe must not end the watching; it is logged and shown
            self._log.exception("bug in a probe", submission=watch.submission_id)
            return {"record": None, "error": f"{type(error).__name__}: {error}"}

    def _learned(self, key: RootKey, of_key: _OfKey, watch: WatchRayJob, value: Mapping[str, object]) -> None:
        name = fact_name(watch)
        before = of_key.facts.get(name)
        source = str(value.get("session") or "")
        of_key.facts[name] = Fact(value=value, seen_at=self._clock.now(), source=source)
        if before is None or before.value != value:
            self._wake(key, f"probe of submission {watch.submission_id}")
