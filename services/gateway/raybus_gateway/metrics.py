"""Metrics of the gateway."""

from __future__ import annotations

from raybus.bus.transport import Bus
from raybus.observe.metrics import ServiceMetrics
from raybus_gateway.gateway import Gateway


class GatewayMetrics(ServiceMetrics):
    def __init__(self) -> None:
        super().__init__("gateway")
        self._published = self.counter(
            "raybus_gateway_published", "Messages written to object streams.", ("controller", "operation")
        )
        self._interrupted = self.counter(
            "raybus_gateway_interruptions", "Lists and watches that failed and were retried.", ("kind",)
        )

    def published(self, controller: str, op: str) -> None:
        self._published.labels(controller, op).inc()

    def interrupted(self, kind: str) -> None:
        self._interrupted.labels(kind).inc()

    def watch_gateway(self, bus: Bus, gateway: Gateway) -> None:
        self.watch("raybus_gateway_active", "1 while this replica holds the lease.", lambda: int(gateway.active))
        self.watch("raybus_gateway_objects", "Objects that are routed.", lambda: gateway.objects)
        self.watch("raybus_nats_connected", "1 while connected to NATS.", lambda: int(bus.connected))
