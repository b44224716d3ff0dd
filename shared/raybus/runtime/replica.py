"""One replica of a controller: mirror, leases, controller and what they tell, put together over open connections."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from importlib import metadata
from typing import Generic, Self, TypeVar

from raybus.bus import streams
from raybus.bus.entry import Ref
from raybus.bus.envelope import rfc3339
from raybus.bus.history import History
from raybus.bus.leases import Leases
from raybus.bus.mirror import Mirror
from raybus.bus.session import Session, encode_session
from raybus.bus.streams import StreamSettings
from raybus.bus.transport import Bus
from raybus.decide.actions import Action, Json
from raybus.decide.tree import RootKey
from raybus.observe.health import Checks
from raybus.observe.metrics import ControllerMetrics
from raybus.runtime import readiness, telemetry
from raybus.runtime.clock import SYSTEM, Clock
from raybus.runtime.controller import Controller
from raybus.runtime.executor import Handler, OnOutcome, Ports
from raybus.runtime.ports import Events, Kube, Prober
from raybus.runtime.references import ReferenceReader
from raybus.runtime.settings import ServiceSettings
from raybus.runtime.spec import ControllerSpec
from raybus.runtime.telemetry import Seen

W = TypeVar("W")


@dataclass(frozen=True, slots=True)
class Parts:
    """What a service adds: handlers for its own actions, who asks Ray, `watch`, which adds metrics about the trees, and
    `on_outcome`, which counts what became of actions.
    """

    handlers: Mapping[type[Action], Handler] = field(default_factory=dict)
    prober: Prober | None = None
    watch: Callable[[ControllerMetrics, Seen], None] | None = None
    on_outcome: OnOutcome = lambda _outcome, _root: None


class Replica(Generic[W]):
    """`async with Replica(...)` competes for partitions and works on them; leaving the block ends it as a crash would, unless
    `hand_over` was called before.
    """

    def __init__(
        self,
        spec: ControllerSpec[W],
        settings: ServiceSettings,
        metrics: ControllerMetrics,
        *,
        bus: Bus,
        kube: Kube,
        events: Events,
        found: StreamSettings,
        parts: Parts,
        clock: Clock = SYSTEM,
    ) -> None:
        self._settings = settings
        self._bus = bus
        self._stack = AsyncExitStack()
        self.history = History(bus, spec.name, instance=settings.replica_id, cluster_uid=found.cluster_uid, clock=clock)
        self.mirror = Mirror(
            bus,
            spec.name,
            spec.routes,
            self._on_change,
            on_ref=self._on_ref,
            on_reread=self._on_reread,
            on_delay=metrics.delivery_seconds.observe,
            settings=found,
            clock=clock,
        )
        self._references = ReferenceReader(kube, self.mirror, self.mirror.learned)
        self.controller = Controller(
            spec,
            Ports(kube, self.mirror, events, self.history),
            clock,
            metrics,
            partitions=found.partitions,
            mine=self._mine,
            read=self.mirror.own,
            handlers=parts.handlers,
            on_outcome=parts.on_outcome,
            prober=parts.prober,
            workers=settings.workers,
            queue_limit=settings.queue_limit,
            namespaces=settings.namespaces,
        )
        self.leases = self._leases(spec, settings, found, clock)
        telemetry.watch_replica(
            metrics, bus, mirror=self.mirror, controller=self.controller, leases=self.leases, history=self.history
        )
        if parts.watch is not None:
            parts.watch(metrics, _Seen(self.mirror, spec.root_kind.kind))

    def _leases(
        self, spec: ControllerSpec[W], settings: ServiceSettings, found: StreamSettings, clock: Clock
    ) -> Leases:
        session = Session(
            replica=settings.replica_id,
            version=metadata.version("raybus"),
            started=rfc3339(clock.now()),
            routes=spec.routes,
        )
        return Leases(
            self._bus,
            streams.lease_bucket(spec.name),
            settings.replica_id,
            found.partitions,
            session=encode_session(session),
            on_gain=self.controller.gained,
            on_lose=self.controller.lost,
            ttl_s=settings.lease_ttl_s,
            clock=clock,
        )

    # Mirror, controller and leases need each other; these break the circle.

    def _on_change(self, key: RootKey, trigger: str) -> None:
        self.controller.on_change(key, trigger)

    def _on_ref(self, key: RootKey, ref: Ref) -> None:
        self._references.want(key, ref)

    def _on_reread(self) -> None:
        self.controller.doubt()

    def _mine(self, part: int) -> bool:
        return self.leases.mine(part)

    def checks(self) -> Checks:
        return readiness.checks(self._bus, self.mirror, self.controller, self.leases.owned, self.leases.unsettled)

    async def __aenter__(self) -> Self:
        await self.history.start()
        self._stack.push_async_callback(self.history.close)
        self._stack.push_async_callback(self.mirror.close)
        self._references.start()
        self._stack.push_async_callback(self._references.close)
        self.controller.start()
        self._stack.push_async_callback(self.controller.close)
        await self.leases.start()
        self._stack.push_async_callback(self.leases.stop)
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self._stack.aclose()

    async def hand_over(self) -> None:
        """Begin no new pass, let the running ones end, then release the partitions one by one."""
        await self.controller.drain(self._settings.drain_s)
        await self.leases.stop()


@dataclass(frozen=True, slots=True)
class _Seen:
    """See telemetry.Seen."""

    mirror: Mirror
    kind: str

    def roots(self) -> Iterator[Json]:
        return (root for _, root in self.trees() if root is not None)

    def trees(self) -> Iterator[tuple[RootKey, Json | None]]:
        return ((key, self.mirror.root(key)) for key in self.mirror.roots() if key.kind == self.kind)

    def kin(self, key: RootKey, kind: str) -> list[Json]:
        return self.mirror.kin(key, kind)
