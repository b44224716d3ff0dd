"""What the gateway counts itself, as a scrape shows it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from raybus.bus.history import History
from raybus.bus.memory import MemoryBus
from raybus_gateway.gateway import Gateway
from raybus_gateway.metrics import GatewayMetrics


def a_gateway() -> Gateway:
    """One that stands still; the real one is scraped in tests/integration/metrics."""
    leases: Any = SimpleNamespace(
        partitions=1, owned=lambda: frozenset({0}), gained=1, lost={"released": 0, "fenced": 2, "evicted": 0}
    )
    return cast(
        Gateway,
        SimpleNamespace(
            active=True, objects=7, writes=3, watches=(5, 1), leases=leases,
            terms={"lost": 0, "failed": 4, "defect": 0}, replicas=lambda: {"rayjob": 2},
        ),
    )  # fmt: skip


def shown(metrics: GatewayMetrics) -> dict[str, float]:
    lines = (line for line in metrics.render().decode().splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_what_lives_in_the_gateway_is_read_at_the_scrape() -> None:
    metrics = GatewayMetrics()
    metrics.watch_gateway(MemoryBus(), a_gateway())

    assert (
        shown(metrics).items()
        >= {
            "raybus_gateway_active": 1,
            "raybus_gateway_objects": 7,
            "raybus_gateway_writes": 3,
            'raybus_gateway_watches{state="live"}': 5,
            'raybus_gateway_watches{state="down"}': 1,
            'raybus_gateway_terms_total{how="failed"}': 4,
            'raybus_gateway_sessions{controller="rayjob"}': 2,
            'raybus_owned_partitions{controller="gateway"}': 1,
            'raybus_leases_lost_total{how="fenced"}': 2,
            "raybus_nats_connected": 0,
        }.items()
    )


def test_what_terms_tell_is_counted() -> None:
    metrics = GatewayMetrics()

    metrics.published("rayjob", "PUT", 0.004)
    metrics.published("rayjob", "DELETED", 0.2)
    metrics.marked("rayjob")
    metrics.listing("Pod")
    metrics.interrupted("Pod")

    assert (
        shown(metrics).items()
        >= {
            'raybus_gateway_published_total{controller="rayjob",operation="PUT"}': 1,
            'raybus_gateway_published_total{controller="rayjob",operation="DELETED"}': 1,
            'raybus_gateway_publish_seconds_bucket{le="0.005"}': 1,
            "raybus_gateway_publish_seconds_count": 2,
            'raybus_gateway_markers_total{controller="rayjob"}': 1,
            'raybus_gateway_lists_total{kind="Pod"}': 1,
            'raybus_gateway_interruptions_total{kind="Pod"}': 1,
        }.items()
    )


def test_history_counts_over_all_terms() -> None:
    """A counter that went back at each new term would look like a restart."""
    metrics = GatewayMetrics()
    metrics.watch_gateway(MemoryBus(), a_gateway())
    for recorded, dropped in ((5, 1), (2, 2)):
        history = History(MemoryBus(), "gateway")
        metrics.recorded(history)
        history.recorded, history.dropped = recorded, dropped

    assert (
        shown(metrics).items()
        >= {
            "raybus_history_recorded_total": 7,
            "raybus_history_dropped_total": 3,
            "raybus_history_waiting": 0,
        }.items()
    )
