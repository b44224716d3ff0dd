"""The loop that all controllers share: watch, hand out keys, send what was decided. It decides nothing itself.

One list+watch per kind serves all controllers. A key is never worked on twice at once. Answers of own requests are taken as news at
once, if newer, so that nothing is done twice because a watch lags.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from raybus.decide.tree import RootKey
from raybus.domain.kinds import CRD, Kind
from raybus.kube import errors
from raybus.kube.client import KubeClient
from raybus.kube.events import EventRecorder
from raybus.kube.listwatch import Changed, Interrupted, ListBegun, ListComplete, Listed, ListWatch, ListWatchEvent
from raybus.runtime.backoff import Backoff, delay
from raybus.runtime.clock import SYSTEM, Clock
from raybus.runtime.queue import KeyedQueue
from raybus_localkube.controllers.controller import Controller, Ref, Served
from raybus_localkube.controllers.served import discover
from raybus_localkube.controllers.work import Call, Event, Json

log = logging.getLogger(__name__)
WORKERS = 8
CALLS_AT_ONCE = 16
DEAD_KEPT = 20_000
"""Uids of deleted objects that are remembered against answers that come late."""
DISCOVERY_RETRY_S = 5.0


class KnownKind:
    """What was seen of one kind: uid to resourceVersion and place."""

    def __init__(self) -> None:
        self.objects: dict[str, tuple[int, Ref]] = {}
        self.listing: set[str] = set()
        self.complete = False


class Manager:
    """`await Manager(...).run()` until cancelled."""

    def __init__(
        self,
        client: KubeClient,
        controllers: Sequence[Controller],
        events: EventRecorder | None = None,
        *,
        clock: Clock = SYSTEM,
        chance: random.Random | None = None,
    ) -> None:
        """`chance` spreads the ends of watches and retries over time."""
        self._client = client
        self._chance = chance
        self._controllers = {controller.name: controller for controller in controllers}
        self._events = events
        self._clock = clock
        self._queue = KeyedQueue()
        self._backoff = Backoff()
        self._known: dict[Kind, KnownKind] = {}
        self._watches: dict[Kind, asyncio.Task[None]] = {}
        self._dead: OrderedDict[str, None] = OrderedDict()
        self._waiting: dict[str, set[RootKey]] = {name: set() for name in self._controllers}
        self._rediscover = asyncio.Event()
        self.alive = False
        self.started = asyncio.Event()
        """Set once every controller has seen all there was."""

    async def run(self) -> None:
        self.alive = True
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._follow_served(group), name="controllers-discovery")
                for number in range(WORKERS):
                    group.create_task(self._work(), name=f"controllers-worker-{number}")
        except Exception:
            log.critical("the built-in controllers have ended", exc_info=True)
            raise
        finally:
            self.alive = False

    # Kinds

    async def _follow_served(self, group: asyncio.TaskGroup) -> None:
        """Keep the watches and every controller's list of kinds as the server has them; CRDs are what changes it."""
        while True:
            self._rediscover.clear()
            try:
                self._serve(await discover(self._client), group)
            except errors.KubeError as error:
                log.warning("the kinds of the server could not be read, next try in %s s: %s", DISCOVERY_RETRY_S, error)
                asyncio.get_running_loop().call_later(DISCOVERY_RETRY_S, self._rediscover.set)
            await self._rediscover.wait()

    def _serve(self, served: tuple[Served, ...], group: asyncio.TaskGroup) -> None:
        wanted: dict[Kind, None] = {CRD: None}
        for controller in self._controllers.values():
            wanted.update(dict.fromkeys(self._kinds_of(controller, served)))
        for kind in self._watches.keys() - wanted.keys():
            self._watches.pop(kind).cancel()
            self._forget(kind)
        for controller in self._controllers.values():
            self._add(controller.serve(served), "served")
        for kind in wanted:
            if kind not in self._watches:
                self._known[kind] = KnownKind()
                self._watches[kind] = group.create_task(self._watch(kind), name=f"watch-{kind.plural}")
        self._release()

    def _kinds_of(self, controller: Controller, served: tuple[Served, ...]) -> Iterable[Kind]:
        """Fixed kinds that the server lacks are left out; discovery brings them when they come."""
        present = [each.kind for each in served if each.watchable]
        return present if controller.every_kind else [kind for kind in present if kind in controller.kinds]

    def _forget(self, kind: Kind) -> None:
        for _, ref in self._known.pop(kind).objects.values():
            self._tell_gone(kind, ref)

    # News

    async def _watch(self, kind: Kind) -> None:
        events = aiter(ListWatch(self._client, kind, relist_s=None, chance=self._chance))
        async with contextlib.aclosing(events):
            async for event in events:
                self._heard(kind, event)

    def _heard(self, kind: Kind, event: ListWatchEvent) -> None:
        known = self._known[kind]
        if isinstance(event, Changed):
            if event.type == "DELETED":
                self._gone(kind, event.obj["metadata"]["uid"])
            else:
                self._changed(kind, event.obj)
        elif isinstance(event, ListBegun):
            known.listing = set()
        elif isinstance(event, Listed):
            for obj in event.items:
                known.listing.add(obj["metadata"]["uid"])
                self._changed(kind, obj)
        elif isinstance(event, ListComplete):
            self._listed(kind, known, _number(event.resource_version))
        elif isinstance(event, Interrupted) and event.delay_s > 1:
            log.warning("watch of %s interrupted, next try in %.1f s: %s", kind.plural, event.delay_s, event.error)

    def _listed(self, kind: Kind, known: KnownKind, version: int) -> None:
        missing = [uid for uid, (seen, _) in known.objects.items() if uid not in known.listing and seen <= version]
        for uid in missing:
            self._gone(kind, uid)
        known.listing = set()
        if not known.complete:
            known.complete = True
            self._release()

    def _changed(self, kind: Kind, obj: Json) -> None:
        meta = obj["metadata"]
        uid, version = meta["uid"], _number(meta["resourceVersion"])
        known = self._known.get(kind)
        if known is None or uid in self._dead:
            return
        seen = known.objects.get(uid)
        if seen is not None and seen[0] >= version:
            return
        known.objects[uid] = (version, Ref(uid, meta.get("namespace", ""), meta["name"]))
        if kind == CRD:
            self._rediscover.set()
        for controller in self._interested(kind):
            try:
                self._add(controller.changed(kind, obj), "changed")
            except Exception:  # an object that one controller cannot read must not stop the watch for all
                log.exception("%s cannot read %s %s", controller.name, kind.kind, meta["name"])

    def _gone(self, kind: Kind, uid: str) -> None:
        known = self._known.get(kind)
        found = known.objects.pop(uid, None) if known else None
        self._dead[uid] = None
        if len(self._dead) > DEAD_KEPT:
            self._dead.popitem(last=False)
        if found is not None:
            self._tell_gone(kind, found[1])

    def _tell_gone(self, kind: Kind, ref: Ref) -> None:
        if kind == CRD:
            self._rediscover.set()
        for controller in self._interested(kind):
            self._add(controller.gone(kind, ref), "gone")

    def _interested(self, kind: Kind) -> Iterable[Controller]:
        return [each for each in self._controllers.values() if each.every_kind or kind in each.kinds]

    # Keys

    def _add(self, keys: Iterable[RootKey], why: str) -> None:
        for key in keys:
            self._queue.add(key, why)

    def _ready(self, controller: Controller) -> bool:
        """Every kind that it watches has been listed once."""
        watched = self._known if controller.every_kind else [kind for kind in controller.kinds if kind in self._known]
        return bool(watched) and all(self._known[kind].complete for kind in watched)

    def _release(self) -> None:
        for name, keys in self._waiting.items():
            if keys and self._ready(self._controllers[name]):
                self._add(keys, "listed")
                keys.clear()
        if all(self._ready(controller) for controller in self._controllers.values()):
            self.started.set()

    async def _work(self) -> None:
        while True:
            due = await self._queue.get()
            try:
                await self._pass(self._controllers[due.key.kind], due.key)
            finally:
                self._queue.done(due.key)

    async def _pass(self, controller: Controller, key: RootKey) -> None:
        if not self._ready(controller):
            self._waiting[controller.name].add(key)
            return
        now = self._clock.now()
        try:
            work = controller.decide(key, now)
            for event in work.events:
                self._record(event)
            wait_s = await self._execute(controller, key, work.steps)
        except Exception as error:
            log.exception("%s: the decision about %s failed", controller.name, key, exc_info=error)
            self._backoff.crashed(key)
            if self._backoff.parked(key):
                return
            wait_s = delay(self._backoff.crashes(key))
        if wait_s is not None:
            self._queue.add_at(key, asyncio.get_running_loop().time() + wait_s, "again")
            return
        self._backoff.succeeded(key)
        if work.wake_at is not None:
            self._queue.add_at(key, asyncio.get_running_loop().time() + _seconds(now, work.wake_at), "deadline")

    # Requests

    async def _execute(self, controller: Controller, key: RootKey, steps: tuple[tuple[Call, ...], ...]) -> float | None:
        """None if all went well, else the seconds to wait before the next try."""
        for step in steps:
            for begin in range(0, len(step), CALLS_AT_ONCE):
                calls = step[begin : begin + CALLS_AT_ONCE]
                failed = [
                    error for error in await asyncio.gather(*(self._send(controller, key, c) for c in calls)) if error
                ]
                if failed:
                    return self._backoff.failed(key, max((each.retry_after_s or 0.0) for each in failed))
        return None

    async def _send(self, controller: Controller, key: RootKey, call: Call) -> errors.KubeError | None:
        try:
            answer = await self._client.request(
                call.method, call.path, query=call.query, body=call.body, content_type=call.content_type
            )
        except errors.KubeError as error:
            self._add(controller.answered(key, call, error), "answer")
            if call.gone_is_done and isinstance(error, errors.NotFound):
                return None
            expected = isinstance(error, errors.Conflict) or error.namespace_terminating
            level = logging.DEBUG if expected else logging.WARNING
            log.log(level, "%s: %s %s failed, will try again: %s", controller.name, call.method, call.path, error)
            return error
        self._learn(call, answer)
        self._add(controller.answered(key, call, answer), "answer")
        if call.event is not None:
            self._record(call.event)
        return None

    def _learn(self, call: Call, answer: dict[str, Any]) -> None:
        meta = answer.get("metadata") or {}
        if "uid" in meta:
            if call.method != "GET" and is_gone(call.method, answer):
                self._gone(call.kind, meta["uid"])
            else:
                self._changed(call.kind, answer)
        elif call.method == "DELETE" and (uid := (answer.get("details") or {}).get("uid")):
            self._gone(call.kind, uid)

    def _record(self, event: Event) -> None:
        if self._events is not None:
            self._events.record(event.regarding, event.type, event.reason, event.reason, event.note)


def is_gone(method: str, written: Json) -> bool:
    """Whether an object, as the answer to a write shows it, does not exist any more: nothing held it when it was to go."""
    meta = written["metadata"]
    if "deletionTimestamp" not in meta:
        return method == "DELETE"
    held = (
        meta.get("finalizers")
        or meta.get("deletionGracePeriodSeconds")
        or (written.get("spec") or {}).get("finalizers")
    )
    return not held


def _number(version: str) -> int:
    return int(version) if version.isdigit() else 0


def _seconds(now: datetime, then: datetime) -> float:
    return max((then - now).total_seconds(), 0.0)
