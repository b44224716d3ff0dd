"""Prometheus metrics of a service, in a registry of its own; rendered when somebody asks, never in the background.

Where a new one belongs: what is counted in every controller in `ControllerMetrics`; what already lives somewhere in a service
(a queue's length, a marker's age) in raybus.runtime.telemetry, through `watch`, read at the scrape; what only one service has in
that service's metrics.py. Labels have few values and name no object, except in KubeRay's own metrics, which do. `make docs` brings it into docs/reference/metrics.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Literal, TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PASS_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
SIZE_BUCKETS = (64, 256, 512, 1024, 4096, 16_384, 65_536, 262_144, 1_048_576, 4_194_304, 16_777_216)

# Otherwise each counter and histogram shows a second series: when it was made. The library gives this function no types.
disable_created_metrics()  # type: ignore[no-untyped-call]

Reading = float | Mapping[str, float] | None
"""One value, values by the one label's value, or nothing to say yet."""


T = TypeVar("T")

Sample = tuple[tuple[str, ...], float]
"""Values of the labels, and the number."""


class _Watched(Collector):
    """Values that are read at the scrape."""

    def __init__(self) -> None:
        self.families: list[Callable[[], Metric | None]] = []

    def collect(self) -> Iterable[Metric]:
        return [family for family in (make() for make in self.families) if family is not None]


@dataclass(frozen=True, slots=True)
class Described:
    """A metric as /metrics shows it, without its values."""

    name: str
    type: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    text: str


PROCESS = (
    Described("process_cpu_seconds_total", "counter", (), "Total user and system CPU time spent in seconds."),
    Described("process_max_fds", "gauge", (), "Maximum number of open file descriptors."),
    Described("process_open_fds", "gauge", (), "Number of open file descriptors."),
    Described("process_resident_memory_bytes", "gauge", (), "Resident memory size in bytes."),
    Described("process_start_time_seconds", "gauge", (), "Start time of the process since unix epoch in seconds."),
    Described("process_virtual_memory_bytes", "gauge", (), "Virtual memory size in bytes."),
)
"""What the library's ProcessCollector shows, in its words."""


class ServiceMetrics:
    def __init__(self, service: str) -> None:
        self.registry = CollectorRegistry()
        self.described: list[Described] = []
        self._watched = _Watched()
        self._each: list[Callable[[], Iterable[str]]] = []
        self.registry.register(self._watched)
        ProcessCollector(registry=self.registry)
        build = self._gauge("raybus_build_info", "1; the running version.", ("component", "version"))
        build.labels(service, metadata.version("raybus")).set(1)

    def counter(self, name: str, text: str, labels: tuple[str, ...] = ()) -> Counter:
        """`name` is without `_total`, which is added where it is shown."""
        self.described.append(Described(f"{name}_total", "counter", labels, text))
        return Counter(name, text, labels, registry=self.registry)

    def seconds(
        self, name: str, text: str, labels: tuple[str, ...] = (), *, buckets: tuple[float, ...] = PASS_BUCKETS_S
    ) -> Histogram:
        """A histogram of times, in seconds."""
        return self._histogram(name, text, labels, buckets)

    def sizes(self, name: str, text: str, labels: tuple[str, ...] = ()) -> Histogram:
        """A histogram of sizes, in bytes."""
        return self._histogram(name, text, labels, SIZE_BUCKETS)

    def _histogram(self, name: str, text: str, labels: tuple[str, ...], buckets: tuple[float, ...]) -> Histogram:
        self.described.append(Described(name, "histogram", labels, text))
        return Histogram(name, text, labels, buckets=buckets, registry=self.registry)

    def _gauge(self, name: str, text: str, labels: tuple[str, ...]) -> Gauge:
        self.described.append(Described(name, "gauge", labels, text))
        return Gauge(name, text, labels, registry=self.registry)

    def watch(
        self, name: str, text: str, read: Callable[[], Reading], *, label: str = "", counter: bool = False
    ) -> None:
        """Add a gauge (or counter) whose value `read` gives at each scrape; with `label`, one value per label value."""
        labels = (label,) if label else ()
        shown = f"{name}_total" if counter else name
        self.described.append(Described(shown, "counter" if counter else "gauge", labels, text))

        def make() -> Metric | None:
            reading = read()
            if reading is None:
                return None
            family = (CounterMetricFamily if counter else GaugeMetricFamily)(name, text, labels=labels)
            for value, number in reading.items() if isinstance(reading, Mapping) else [("", reading)]:
                family.add_metric([value] if label else [], number)
            return family

        self._watched.families.append(make)

    def watch_each(
        self,
        name: str,
        text: str,
        labels: tuple[str, ...],
        objects: Callable[[], Iterable[T]],
        samples: Callable[[T], Iterable[Sample]],
    ) -> None:
        """Add a gauge that shows, at each scrape, the `samples` of each of the `objects`.

        Written by hand: with ten thousand objects the library's own way holds up the event loop for half a second.
        """
        self.described.append(Described(name, "gauge", labels, text))

        def lines() -> Iterable[str]:
            yield f"# HELP {name} {text}"
            yield f"# TYPE {name} gauge"
            for obj in objects():
                for values, number in samples(obj):
                    yield f"{name}{{{_pairs(labels, values)}}} {number}"

        self._each.append(lines)

    def render(self) -> bytes:
        text = "\n".join(line for lines in self._each for line in lines())
        return generate_latest(self.registry) + (text + "\n").encode() if text else generate_latest(self.registry)


def _pairs(labels: tuple[str, ...], values: tuple[str, ...]) -> str:
    return ",".join(f'{label}="{_escaped(value)}"' for label, value in zip(labels, values, strict=True))


def _escaped(value: str) -> str:
    if value.isalnum():
        return value
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class ControllerMetrics(ServiceMetrics):
    """Metrics that every controller has; `component` is what it is called in a cluster, such as "cluster-ctrl"."""

    def __init__(self, component: str) -> None:
        super().__init__(component)
        self.passes = self.counter("raybus_passes", "Passes over an object, by result.", ("result",))
        self.pass_seconds = self.seconds("raybus_pass_seconds", "Time of a pass, its requests included.", ("result",))
        self.queue_seconds = self.seconds("raybus_queue_wait_seconds", "Time a due key waited for a worker.")
        self.actions = self.counter("raybus_actions", "Actions carried out, by result.", ("action", "result"))
        self.confirmations = self.counter(
            "raybus_confirmations", "Trees read afresh from the API server before acting."
        )
        self.resyncs = self.counter("raybus_resyncs", "Trees that were due because it was time to look again.")
        self.delivery_seconds = self.seconds(
            "raybus_mirror_delivery_seconds", "Time from NATS storing a message until the mirror took it in."
        )
        self._of_result: dict[str, tuple[Counter, Histogram]] = {}

    def passed(self, result: str, seconds: float) -> None:
        """A pass is over. The labels are looked up once: this is on the way of every pass."""
        found = self._of_result.get(result)
        if found is None:
            found = self._of_result[result] = (self.passes.labels(result), self.pass_seconds.labels(result))
        counter, timer = found
        counter.inc()
        timer.observe(seconds)
