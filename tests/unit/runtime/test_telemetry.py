"""What a scrape of a controller and of a gateway shows of the objects in it."""

from __future__ import annotations

from raybus.bus.history import History
from raybus.bus.leases import Leases
from raybus.bus.memory import MemoryBus
from raybus.bus.mirror import Mirror
from raybus.bus.streams import StreamSettings, lease_bucket
from raybus.observe.metrics import ControllerMetrics, ServiceMetrics
from raybus.runtime import telemetry
from raybus.runtime.controller import Controller
from support.scripted import Outside, key_of, scripted


async def _nothing(*_arguments: object) -> None:
    pass


def shown(metrics: ServiceMetrics) -> dict[str, float]:
    lines = (line for line in metrics.render().decode().splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


class TestBus:
    async def test_connection_and_rereads(self) -> None:
        bus, metrics = MemoryBus(), ServiceMetrics("test")
        telemetry.watch_bus(metrics, bus)
        await bus.connect()
        assert shown(metrics)["raybus_nats_connected"] == 1

        follower = await bus.follow("S", ("a.>",), on_message=lambda _message: None)
        bus.cut()
        assert shown(metrics)["raybus_nats_connected"] == 0
        bus.heal()
        follower.restart()

        found = shown(metrics)
        assert found["raybus_nats_disconnects_total"] == 1
        assert found['raybus_nats_rereads_total{reason="reconnect"}'] == 1
        assert found['raybus_nats_rereads_total{reason="asked"}'] == 1
        await bus.close()

    async def test_the_certificates_end_is_absent_without_tls(self) -> None:
        bus, metrics = MemoryBus(), ServiceMetrics("test")
        telemetry.watch_bus(metrics, bus)
        name = "raybus_nats_certificate_expires_timestamp_seconds"
        assert name not in shown(metrics)

        bus.stats.certificate_ends = 2e9
        assert shown(metrics)[name] == 2e9


async def test_a_replica() -> None:
    """Every metric is there from the first scrape on: one that appears later cannot be alerted on."""
    bus, outside, metrics = MemoryBus(), Outside(), ControllerMetrics("test")
    await bus.connect()
    settings = StreamSettings(partitions=4, generation=1, cluster_uid="cluster")
    mirror = Mirror(bus, "raycluster", scripted().routes, lambda _key, _why: None, settings=settings)
    controller = Controller(
        scripted(), outside.ports, outside.clock, metrics, partitions=4, mine=lambda _part: True, read=_nothing
    )
    leases = Leases(bus, lease_bucket("raycluster"), "r", 4, session=b"{}", on_gain=_nothing, on_lose=_nothing, ttl_s=3)
    history = History(bus, "raycluster")
    telemetry.watch_replica(metrics, bus, mirror=mirror, controller=controller, leases=leases, history=history)
    controller.on_change(key_of("a"), "seen")
    controller.on_change(key_of("b"), "seen")
    controller.queue.pause()

    found = shown(metrics)

    assert (
        found.items()
        >= {
            'raybus_partitions{controller="raycluster"}': 4,
            'raybus_owned_partitions{controller="raycluster"}': 0,
            "raybus_leases_gained_total": 0,
            'raybus_leases_lost_total{how="fenced"}': 0,
            "raybus_queue_length": 2,
            "raybus_queue_running": 0,
            "raybus_queue_paused": 1,
            "raybus_failing_keys": 0,
            "raybus_parked_keys": 0,
            "raybus_probes": 0,
            "raybus_mirror_trees": 0,
            "raybus_mirror_objects": 0,
            'raybus_mirror_rereads_total{reason="gap"}': 0,
            "raybus_mirror_skipped_total": 0,
            "raybus_history_dropped_total": 0,
            "raybus_history_waiting": 0,
            "raybus_resyncs_total": 0,
        }.items()
    )
    assert 0 <= found["raybus_queue_oldest_seconds"] < 60
    assert "raybus_mirror_silence_seconds" not in found  # nothing has come yet
    await bus.close()
