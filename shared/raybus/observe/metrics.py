"""Prometheus metrics of a service, in a registry of its own; rendered when somebody asks, never in the background.

A new metric of controllers belongs in `ControllerMetrics`; one of another service in that service, on `ServiceMetrics.registry`.
Values that already live somewhere (a queue's length, a marker's age) are read through `watch` at the scrape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import metadata

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PASS_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

Reading = float | Mapping[str, float] | None
"""One value, values by the one label's value, or nothing to say yet."""


class _Watched(Collector):
    """Values that are read at the scrape."""

    def __init__(self) -> None:
        self.families: list[Callable[[], Metric | None]] = []

    def collect(self) -> Iterable[Metric]:
        return [family for family in (make() for make in self.families) if family is not None]


class ServiceMetrics:
    def __init__(self, service: str) -> None:
        self.registry = CollectorRegistry()
        self._watched = _Watched()
        self.registry.register(self._watched)
        ProcessCollector(registry=self.registry)
        build = Gauge("raybus_build_info", "The running version.", ["service", "version"], registry=self.registry)
        build.labels(service, metadata.version("raybus")).set(1)

    def watch(
        self, name: str, text: str, read: Callable[[], Reading], *, label: str = "", counter: bool = False
    ) -> None:
        """Add a gauge (or counter) whose value `read` gives at each scrape; with `label`, one value per label value."""

        def make() -> Metric | None:
            reading = read()
            if reading is None:
                return None
            family = (CounterMetricFamily if counter else GaugeMetricFamily)(
                name, text, labels=[label] if label else []
            )
            for value, number in reading.items() if isinstance(reading, Mapping) else [("", reading)]:
                family.add_metric([value] if label else [], number)
            return family

        self._watched.families.append(make)

    def render(self) -> bytes:
        return generate_latest(self.registry)


class ControllerMetrics(ServiceMetrics):
    """Metrics that every controller has; `controller` is its name, such as "raycluster"."""

    def __init__(self, controller: str) -> None:
        super().__init__(controller)
        registry = self.registry
        self.passes = Counter("raybus_passes", "Passes over an object, by result.", ["result"], registry=registry)
        self.pass_seconds = Histogram(
            "raybus_pass_seconds", "Time of a pass, its requests included.", buckets=PASS_BUCKETS_S, registry=registry
        )
        self.queue_seconds = Histogram(
            "raybus_queue_wait_seconds",
            "Time a due key waited for a worker.",
            buckets=PASS_BUCKETS_S,
            registry=registry,
        )
        self.actions = Counter(
            "raybus_actions", "Actions carried out, by result.", ["action", "result"], registry=registry
        )
        self.confirmations = Counter(
            "raybus_confirmations", "Trees read afresh from the API server before acting.", registry=registry
        )
