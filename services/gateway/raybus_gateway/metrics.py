"""Metrics of the gateway."""

from __future__ import annotations

from raybus.bus.history import History
from raybus.bus.streams import GATEWAY
from raybus.bus.transport import Bus
from raybus.observe.metrics import ServiceMetrics
from raybus.runtime import telemetry
from raybus_gateway.gateway import Gateway


class Recorded:
    """The histories of all terms as one: see telemetry.Recorded."""

    def __init__(self) -> None:
        self._before = (0, 0)
        self._now: History | None = None

    def begins(self, history: History) -> None:
        self._before, self._now = (self.recorded, self.dropped), history

    @property
    def recorded(self) -> int:
        return self._before[0] + (self._now.recorded if self._now else 0)

    @property
    def dropped(self) -> int:
        return self._before[1] + (self._now.dropped if self._now else 0)

    @property
    def waiting(self) -> int:
        return self._now.waiting if self._now else 0


class GatewayMetrics(ServiceMetrics):
    """Also the Counters that terms tell what they do."""

    def __init__(self) -> None:
        super().__init__("gateway")
        self._history = Recorded()
        self._published = self.counter(
            "raybus_gateway_published", "Messages written to object streams.", ("controller", "operation")
        )
        self._publish_seconds = self.seconds(
            "raybus_gateway_publish_seconds",
            "Time until a message was stored, with waiting for its turn on the subject.",
        )
        self._marked = self.counter("raybus_gateway_markers", "Completeness markers written.", ("controller",))
        self._listed = self.counter(
            "raybus_gateway_lists", "Full lists begun, the half-hourly ones included.", ("kind",)
        )
        self._interrupted = self.counter(
            "raybus_gateway_interruptions", "Lists and watches that failed and were retried.", ("kind",)
        )

    def published(self, controller: str, op: str, seconds: float) -> None:
        self._published.labels(controller, op).inc()
        self._publish_seconds.observe(seconds)

    def marked(self, controller: str) -> None:
        self._marked.labels(controller).inc()

    def listing(self, kind: str) -> None:
        self._listed.labels(kind).inc()

    def interrupted(self, kind: str) -> None:
        self._interrupted.labels(kind).inc()

    def recorded(self, history: History) -> None:
        self._history.begins(history)

    def watch_gateway(self, bus: Bus, gateway: Gateway) -> None:
        self.watch("raybus_gateway_active", "1 while this replica holds the lease.", lambda: int(gateway.active))
        self.watch("raybus_gateway_objects", "Objects that are routed.", lambda: gateway.objects)
        self.watch("raybus_gateway_writes", "Messages that are not stored yet.", lambda: gateway.writes)
        self.watch(
            "raybus_gateway_watches",
            "Watches of the active gateway, by whether they live.",
            lambda: dict(zip(("live", "down"), gateway.watches, strict=True)),
            label="state",
        )
        self.watch(
            "raybus_gateway_terms",
            "Terms that ended, by how: the lease was lost, NATS or Kubernetes failed, or a defect.",
            lambda: {how: gateway.terms[how] for how in ("lost", "failed", "defect")},
            label="how",
            counter=True,
        )
        self.watch("raybus_gateway_sessions", "Live replicas of each controller.", gateway.replicas, label="controller")
        telemetry.watch_bus(self, bus)
        telemetry.watch_leases(self, gateway.leases, GATEWAY)
        telemetry.watch_history(self, self._history)
