"""The mirror: the trees of the owned partitions in memory, kept up to date from the controller's object stream.

One follower covers all owned partitions and the completeness markers; it is made anew when ownership moves. What the trees do
with news and own writes is decided in raybus.bus.trees.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable

import structlog

from raybus.bus.clock import SYSTEM, Clock
from raybus.bus.entry import Ref
from raybus.bus.envelope import MarkerMessage, Op, decode_marker, decode_object
from raybus.bus.routing import route_id
from raybus.bus.streams import StreamSettings, object_stream, read_settings
from raybus.bus.subjects import is_marker, markers_filter, partition_filter, partition_of
from raybus.bus.transport import Bus, Follower, Message, SignalCallback, nothing
from raybus.bus.trees import Change, Trees
from raybus.decide.actions import Json
from raybus.decide.routes import Route
from raybus.decide.tree import RootKey, Tree

log = structlog.get_logger(__name__)

OnChange = Callable[[RootKey, str], None]
OnRef = Callable[[RootKey, Ref], None]
OnDelay = Callable[[float], None]


class Mirror:
    """`on_change(key, why)` comes when a tree of an owned partition may need a look; not for own writes and their echoes.

    `on_ref(key, ref)` comes for an object that did not fit into its message: GET it and hand it to learned(). Until then its
    kind is not in the tree's `complete`. `on_reread` comes when everything was read again after a gap, which may have shown less than
    there is: the server can have lost what it had acknowledged. `on_delay` gets, of each live message, the seconds since the server stored it (by two
    clocks). Without `settings` the first own() reads them from the stream.
    """

    def __init__(
        self,
        bus: Bus,
        controller: str,
        routes: Iterable[Route],
        on_change: OnChange,
        *,
        on_ref: OnRef | None = None,
        on_reread: SignalCallback = nothing,
        on_delay: OnDelay | None = None,
        settings: StreamSettings | None = None,
        clock: Clock = SYSTEM,
    ) -> None:
        self._bus = bus
        self._controller = controller
        self._on_change = on_change
        self._on_ref = on_ref
        self._on_reread = on_reread
        self._on_delay = on_delay
        self._settings = settings
        self._clock = clock
        declared = tuple(routes)
        self._trees = Trees(declared)
        self._asked = {
            route.kind.kind: frozenset(route_id(other) for other in declared if other.kind == route.kind)
            for route in declared
        }
        self._wanted: frozenset[int] = frozenset()
        self._following: frozenset[int] | None = None  # partitions that the follower covers; None: no follower
        self._ready: frozenset[int] = frozenset()
        self._follower: Follower | None = None
        self._lock = asyncio.Lock()
        self._moved = asyncio.Event()  # _ready or _wanted changed
        self._reading = False
        self._changed: dict[RootKey, str] = {}  # during a re-read; told at its end
        self._marker_at: dict[str, float] = {}  # kind -> monotonic time of its last marker
        self._complete: frozenset[str] = frozenset()
        self._marked_in_turn: set[str] = set()
        self._gaps = 0  # since the last complete read
        self._heard_at: float | None = None  # monotonic
        self.skipped = 0  # messages of unknown types or of another cluster
        self.rereads: Counter[str] = Counter()  # by why: "ownership" moved, "gap" in what the stream brought

    # --- ownership ---

    async def own(self, partitions: frozenset[int]) -> None:
        """Hold these partitions and no others; returns when those that are new have been read.

        What is given up is forgotten at once. Bound it with a timeout: while NATS is away it waits. The first call, also with
        no partitions, begins to follow the markers.
        """
        self._wanted = partitions  # before anything is awaited: of calls that overlap the last one counts
        self._ready &= partitions
        self._moved.set()
        if self._settings is None:
            self._settings = await read_settings(self._bus, self._controller)
        self._trees.drop(lambda key: self._part(key) not in self._wanted)
        async with self._lock:
            if self._following != self._wanted:
                await self._refollow(self._settings)
        while partitions <= self._wanted and not partitions <= self._ready:
            self._moved.clear()
            await self._moved.wait()

    async def close(self) -> None:
        async with self._lock:
            if self._follower:
                await self._follower.close()
            self._follower, self._following = None, None
            self._wanted = self._ready = frozenset()
            self._moved.set()

    async def _refollow(self, settings: StreamSettings) -> None:
        if self._follower:
            await self._follower.close()
        self._following = wanted = self._wanted
        self.rereads["ownership"] += 1
        self._begin()
        filters = [partition_filter(self._controller, settings.generation, part) for part in sorted(wanted)]
        self._follower = await self._bus.follow(
            object_stream(self._controller),
            [*filters, markers_filter(self._controller, settings.generation)],
            on_message=self._receive,
            on_caught_up=self._caught_up,
            on_gap=self._gap,
        )

    # --- looking ---

    def tree(self, key: RootKey) -> Tree | None:
        """The tree as it is known now; None if nothing is known of it."""
        view = self._trees.view(key)
        if view is None:
            return None
        lacking = self._trees.lacking_kinds(key)
        return Tree(key=key, root=view[0], objects=view[1], complete=self._complete - lacking)

    def root(self, key: RootKey) -> Json | None:
        """The root of a tree, for those who only want to show it: decisions are made on tree()."""
        return self._trees.root(key)

    def roots(self, partition: int | None = None) -> list[RootKey]:
        """The keys of all trees, or of those in one partition."""
        return [key for key in self._trees.known() if partition is None or self._part(key) == partition]

    def caught_up(self, partition: int) -> bool:
        """Whether the partition has been read to its end and nothing is being read again."""
        return partition in self._ready and not self._reading

    def marker_age_s(self, kind: str) -> float | None:
        """Seconds since the gateway last vouched for its list of this kind; None if it never did."""
        at = self._marker_at.get(kind)
        return None if at is None else self._clock.monotonic() - at

    # --- own writes and live reads ---

    def upsert(self, obj: Json) -> None:
        """An own write as the API server answered it; wakes nobody."""
        self._trees.upsert(obj, self._clock.monotonic(), self._holds)

    def learned(self, obj: Json) -> None:
        """An object as a GET showed it; wakes the trees that it changed."""
        for key in self._trees.upsert(obj, self._clock.monotonic(), self._holds):
            self._tell(Change(key, f"{obj['kind']} read"))

    def deleted(self, kind: str, namespace: str, name: str, uid: str) -> None:
        """An own deletion after which the API server knows the uid no more; wakes nobody."""
        self._trees.remove(kind, namespace, name, uid, self._clock.monotonic())

    def fresh(self, key: RootKey, objects: Iterable[Json]) -> None:
        """A live read of the whole tree. What is not in it is gone, except what arrived since tree(key) was last called."""
        if self._holds(key):
            self._trees.replace(key, objects, self._clock.monotonic())

    # --- for whoever shows it ---

    def silence_s(self) -> float | None:
        """Seconds since the last message, markers included; None before the first."""
        return None if self._heard_at is None else self._clock.monotonic() - self._heard_at

    def size(self) -> tuple[int, int, int]:
        """Trees, objects in them, and objects that are known to exist but whose bodies have not been seen."""
        return self._trees.size()

    def kin(self, key: RootKey, kind: str) -> list[Json]:
        """The objects of one kind in a tree. Like root(), this does not count as having looked at the tree."""
        return self._trees.kin(key, kind)

    # --- what the stream says ---

    def _gap(self) -> None:
        self.rereads["gap"] += 1
        self._gaps += 1
        self._begin()

    def _begin(self) -> None:
        self._reading = True
        self._marked_in_turn.clear()
        self._trees.begin_turn()

    def _caught_up(self) -> None:
        self._reading = False
        self._complete &= self._marked_in_turn
        for kind in self._marker_at.keys() - self._marked_in_turn:
            del self._marker_at[kind]
        before = self._ready
        changes = self._trees.end_turn()
        self._ready = (self._following or frozenset()) & self._wanted
        if self._gaps:
            self._gaps = 0
            self._on_reread()  # before anybody acts on what was read
        told, self._changed = self._changed, {}
        for change in changes:
            told.setdefault(change.key, change.trigger)
        for key, why in told.items():
            if self._part(key) in before:  # the trees of new partitions are all looked at anyway
                self._on_change(key, why)
        self._moved.set()

    def _receive(self, message: Message) -> None:
        self._heard_at = self._clock.monotonic()
        if self._on_delay and not self._reading:
            self._on_delay(max(self._clock.now().timestamp() - message.time, 0.0))
        if is_marker(message.subject):
            self._mark(decode_marker(message))
            return
        news = decode_object(message)
        if news is None or (self._settings and news.cluster != self._settings.cluster_uid):
            self.skipped += 1
            return
        key = news.address.key
        if not self._holds(key):
            return
        change = self._trees.apply(news, self._clock.monotonic())
        if change is not None:
            self._tell(change)
        elif news.ref and news.op is Op.PUT and self._on_ref:
            ref = Ref(news.address.kind, key.namespace, news.address.name, news.uid, news.resource_version)
            if ref in self._trees.lacking(key):
                self._on_ref(key, ref)

    def _mark(self, marker: MarkerMessage | None) -> None:
        if marker is None or (self._settings and marker.cluster != self._settings.cluster_uid):
            self.skipped += 1
            return
        if marker.routes is not None and not self._asked.get(marker.kind, frozenset()) <= marker.routes:
            self._complete -= {marker.kind}  # it speaks for another release's routes: ours are still being listed
            return
        now = self._clock.monotonic()
        # One that was stored before we listened is as old as the server's clock says; a live one is new, whatever that says.
        age = max(self._clock.now().timestamp() - marker.time, 0.0) if self._reading else 0.0
        self._marker_at[marker.kind] = max(now - age, self._marker_at.get(marker.kind, 0.0))
        self._marked_in_turn.add(marker.kind)
        if marker.complete:
            self._complete |= {marker.kind}
        else:
            self._complete -= {marker.kind}
        if not self._reading and self._trees.doubt(marker.kind, now) and self._follower:
            log.warning("own_writes_not_confirmed", controller=self._controller, kind=marker.kind)
            self._follower.restart()

    def _tell(self, change: Change) -> None:
        if self._reading:
            self._changed.setdefault(change.key, change.trigger)
        else:
            self._on_change(change.key, change.trigger)

    def _holds(self, key: RootKey) -> bool:
        return self._settings is not None and self._part(key) in self._wanted

    def _part(self, key: RootKey) -> int:
        assert self._settings is not None
        return partition_of(key, self._settings.partitions)
