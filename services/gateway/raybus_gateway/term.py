"""One term of the active gateway: from gaining the lease to losing it, or to the first thing it cannot explain.

Every decision is the catalog's (what to write) or the route book's (what to serve); here they are carried out.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from raybus.bus import streams
from raybus.bus.clock import SYSTEM, Clock
from raybus.bus.envelope import Op
from raybus.bus.history import History
from raybus.bus.publisher import Held, ObjectPublisher
from raybus.bus.streams import StreamSettings
from raybus.bus.transport import Bus, BusError, BusTimeout, Unavailable
from raybus.decide.actions import Json
from raybus.kube.client import KubeClient
from raybus.kube.errors import NotFound
from raybus.kube.listwatch import (
    Bookmark,
    Changed,
    Interrupted,
    ListBegun,
    ListComplete,
    Listed,
    ListWatch,
    ListWatchEvent,
    Watching,
)
from raybus.observe.logging import get_logger
from raybus_gateway.catalog import Catalog
from raybus_gateway.holdings import Write
from raybus_gateway.needs import Routes, Scope, Watch, watches
from raybus_gateway.outbox import Outbox
from raybus_gateway.records import object_record

MARK_EVERY_S = 10.0
ASK_AGAIN_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class TermSettings:
    replica: str
    partitions: int
    generation: int
    stream_replicas: int
    history_bytes: int
    relist_s: float
    namespaces: tuple[str, ...] = ()


class Counters(Protocol):
    """What is counted, by whoever shows it."""

    def published(self, controller: str, op: str, seconds: float) -> None: ...

    def marked(self, controller: str) -> None: ...

    def listing(self, kind: str) -> None: ...

    def interrupted(self, kind: str) -> None: ...

    def recorded(self, history: History) -> None:
        """A term begins with this history."""
        ...


class LostDataError(BusError):
    """NATS holds less than this term wrote."""


class Term:
    """`await run()` in a task; it ends by an exception or by being cancelled. serve() may be called at any time."""

    def __init__(
        self,
        bus: Bus,
        kube: KubeClient,
        settings: TermSettings,
        counters: Counters,
        *,
        clock: Clock = SYSTEM,
        chance: random.Random | None = None,
    ) -> None:
        self._bus = bus
        self._kube = kube
        self._settings = settings
        self._counters = counters
        self._clock = clock
        self._chance = chance
        self._log = get_logger()
        self._routes: Routes = {}
        self._routes_changed = asyncio.Event()
        self._reconnected = asyncio.Event()
        self._publishers: dict[str, ObjectPublisher] = {}
        self._watching: dict[Watch, asyncio.Task[None]] = {}
        self._live: set[Scope] = set()
        self._catalog: Catalog | None = None
        self._mark_now = asyncio.Event()
        self._troubles: dict[Scope, str] = {}
        self._outbox = Outbox(self._publish)

    # What others ask

    def serve(self, routes: Routes) -> None:
        """Serve these routes from now on."""
        if routes != self._routes:
            self._routes = routes
            self._routes_changed.set()

    def look_for_losses(self) -> None:
        """A stream may not be the one that this term wrote to: ask it."""
        self._reconnected.set()

    def missing(self) -> str:
        """What is not yet as it should be, in words; empty if all is complete and being watched."""
        if self._catalog is None:
            return "the streams are being read"
        if self._routes_changed.is_set():
            return "new routes are being taken up"
        if incomplete := self._catalog.incomplete():
            why = "; ".join(f"{scope.kind}: {trouble}" for scope, trouble in sorted(self._troubles.items()))
            return f"not listed yet: {', '.join(incomplete)}" + (f" ({why})" if why else "")
        down = sorted({watch.kind.kind for watch in self._watching if watch.scope not in self._live})
        return f"not being watched: {', '.join(down)}" if down else ""

    @property
    def objects(self) -> int:
        return self._catalog.objects if self._catalog else 0

    @property
    def writes(self) -> int:
        """Messages that are not stored yet."""
        return len(self._outbox)

    @property
    def watches(self) -> tuple[int, int]:
        """How many live, and how many do not yet or not any more."""
        live = sum(watch.scope in self._live for watch in self._watching)
        return live, len(self._watching) - live

    # The term

    async def run(self) -> None:
        off = self._bus.on_connection(self._connection)
        history: History | None = None
        outbox = self._outbox
        try:
            cluster_uid = await self._kube.cluster_uid()
            self._catalog = await self._load(cluster_uid)
            history = History(
                self._bus,
                streams.GATEWAY,
                instance=self._settings.replica,
                cluster_uid=cluster_uid,
                clock=self._clock,
            )
            self._counters.recorded(history)
            await history.start()
            async with asyncio.TaskGroup() as group:
                group.create_task(self._follow_routes(group, self._catalog, outbox, history))
                group.create_task(self._mark(self._catalog, outbox))
                group.create_task(self._look_for_losses())
                group.create_task(_raise_failure(outbox))
        finally:
            off()
            await outbox.close()
            if history:
                await history.close(timeout_s=0.5)

    async def _load(self, cluster_uid: str) -> Catalog:
        """Make the streams, or find them; read what they hold."""
        settings = await make_streams(self._bus, self._settings, cluster_uid)
        held: dict[str, Mapping[str, Held]] = {}
        for controller, found in settings.items():
            publisher = ObjectPublisher(self._bus, controller, found, term=self._settings.replica, clock=self._clock)
            self._publishers[controller] = publisher
            held[controller] = await publisher.load_term()
        self._log.info("term_begins", held={controller: len(found) for controller, found in held.items()})
        return Catalog(settings, held)

    async def _follow_routes(
        self, group: asyncio.TaskGroup, catalog: Catalog, outbox: Outbox, history: History
    ) -> None:  # fmt: skip
        """Begin and end watches as the declared routes ask for."""
        self._routes_changed.set()
        while True:
            await self._routes_changed.wait()
            routes = self._routes
            wanted = watches(routes, self._settings.namespaces)
            serving = {watch.scope: served for watch, served in wanted.items()}
            affected = catalog.affected(serving)
            for watch in [watch for watch in self._watching if watch.scope in affected]:
                await self._end(watch)
            catalog.declare(serving)
            for watch in sorted(wanted.keys() - self._watching.keys(), key=lambda w: w.scope):
                self._log.info("watch_begins", kind=watch.kind.kind, namespace=watch.namespace, selector=watch.selector)
                self._watching[watch] = group.create_task(self._follow(watch, catalog, outbox, history))
            if routes == self._routes:
                self._routes_changed.clear()

    async def _end(self, watch: Watch) -> None:
        task = self._watching.pop(watch)
        self._live.discard(watch.scope)
        self._troubles.pop(watch.scope, None)
        task.cancel()
        await asyncio.wait((task,))

    async def _follow(self, watch: Watch, catalog: Catalog, outbox: Outbox, history: History) -> None:
        source = ListWatch(
            self._kube,
            watch.kind,
            namespace=watch.namespace or None,
            selector=watch.selector,
            relist_s=self._settings.relist_s,
            chance=self._chance,
        )
        async with contextlib.aclosing(aiter(source)) as events:
            async for event in events:
                self._note(watch.scope, event)
                await self._handle(watch.scope, event, catalog, outbox, history)

    def _note(self, scope: Scope, event: ListWatchEvent) -> None:
        if isinstance(event, Interrupted):
            self._live.discard(scope)
            self._troubles[scope] = str(event.error)
            self._counters.interrupted(scope.kind)
            self._log.warning(
                "watch_interrupted",
                kind=scope.kind,
                selector=scope.selector,
                error=str(event.error),
                retry_s=event.delay_s,
            )
        elif isinstance(event, ListBegun):
            self._live.discard(scope)
            self._counters.listing(scope.kind)
            self._log.info("list_begins", kind=scope.kind, selector=scope.selector, why=event.why)
        elif isinstance(event, Watching):
            self._live.add(scope)
            self._troubles.pop(scope, None)
            self._mark_now.set()

    async def _handle(
        self, scope: Scope, event: ListWatchEvent, catalog: Catalog, outbox: Outbox, history: History
    ) -> None:  # fmt: skip
        match event:
            case ListBegun():
                catalog.begin(scope)
            case Listed(items):
                for obj in items:
                    await self._send(obj, Op.PUT, catalog.listed(scope, obj), outbox, history)
            case ListComplete(version):
                await outbox.send(catalog.completed(scope, version))
            case Changed("DELETED", obj):
                await self._send(obj, Op.DELETED, catalog.deleted(scope, obj), outbox, history)
            case Changed(_, obj):
                await self._send(obj, Op.PUT, catalog.changed(scope, obj), outbox, history)
            case Bookmark(version):
                catalog.bookmark(scope, version)
            case Interrupted(NotFound(resource_unknown=True)):
                if (writes := catalog.unserved(scope)) is not None:
                    await outbox.send(writes)
                    self._live.add(scope)
                    self._mark_now.set()
            case _:
                pass

    async def _send(self, obj: Json, op: Op, writes: list[Write], outbox: Outbox, history: History) -> None:
        if not writes:
            return
        meta = obj["metadata"]
        history.record(meta.get("namespace", ""), obj["kind"], meta["name"], object_record(obj, op))
        await outbox.send(writes)

    async def _publish(self, write: Write) -> None:
        publisher = self._publishers[write.controller]
        clock = asyncio.get_running_loop().time
        began = clock()
        if write.op is Op.PUT:
            await publisher.put(write.subject, write.obj, projection=write.projection)
        else:
            await publisher.tombstone(write.subject, write.obj)
        self._counters.published(write.controller, write.op.value, clock() - began)

    async def _mark(self, catalog: Catalog, outbox: Outbox) -> None:
        """Markers: at once when a watch begins to live, then every ten seconds. What they promise has been stored before."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(MARK_EVERY_S):
                    await self._mark_now.wait()
            self._mark_now.clear()
            marks = [(*mark, catalog.vouched(*mark[:2])) for mark in catalog.marks(self._live)]
            await outbox.settle()
            for controller, kind, version, routes in marks:
                # Without an answer it is written again with the next round. Fenced ends the term: it can vouch for nothing more.
                with contextlib.suppress(BusTimeout, Unavailable):
                    await self._publishers[controller].mark(kind, version, routes=routes)
                    self._counters.marked(controller)

    def _connection(self, connected: bool) -> None:
        if connected:
            self.look_for_losses()

    async def _look_for_losses(self) -> None:
        """After a reconnect: does NATS still have what this term wrote?"""
        while True:
            await self._reconnected.wait()
            self._reconnected.clear()
            try:
                for controller, publisher in self._publishers.items():
                    if await publisher.lost_data():
                        raise LostDataError(f"the stream of {controller} holds less than was written")
            except (Unavailable, BusTimeout):
                await asyncio.sleep(ASK_AGAIN_S)
                self._reconnected.set()


async def make_streams(bus: Bus, settings: TermSettings, cluster_uid: str) -> dict[str, StreamSettings]:
    """Make all streams and lease buckets, or find them as they should be. Those of another cluster are emptied.

    Settings that differ and may not be changed are for `raybus provision`: this gateway serves with those that are there.
    """
    wanted = streams.Wanted(
        partitions=settings.partitions,
        generation=settings.generation,
        replicas=settings.stream_replicas,
        history_bytes=settings.history_bytes,
    )
    return await streams.provision_all(bus, cluster_uid, wanted, lenient=True)


async def _raise_failure(outbox: Outbox) -> None:
    """End the term at the first write that failed, also when nothing else is written afterwards."""
    await outbox.failed.wait()
    await outbox.settle()
