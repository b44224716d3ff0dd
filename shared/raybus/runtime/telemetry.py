"""Metrics of what lives in the objects of a service anyway: read at each scrape, never in between."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from raybus.bus.history import History
from raybus.bus.leases import Leases
from raybus.bus.mirror import Mirror
from raybus.bus.transport import Bus
from raybus.decide.actions import Json
from raybus.decide.tree import RootKey
from raybus.kube.events import EventRecorder
from raybus.observe.metrics import ControllerMetrics, ServiceMetrics
from raybus.runtime.controller import Controller


class Seen(Protocol):
    """What a controller's own metrics are computed from: the trees of this replica's partitions."""

    def roots(self) -> Iterable[Json]:
        """The objects of the root kind."""
        ...

    def trees(self) -> Iterable[tuple[RootKey, Json | None]]:
        """Every tree of the root kind with its root, None where that is gone."""
        ...

    def kin(self, key: RootKey, kind: str) -> list[Json]:
        """The objects of one kind in a tree."""
        ...


class Recorded(Protocol):
    """What the history of a service has become; the gateway's outlives its terms."""

    @property
    def recorded(self) -> int: ...

    @property
    def dropped(self) -> int: ...

    @property
    def waiting(self) -> int: ...


def watch_bus(metrics: ServiceMetrics, bus: Bus) -> None:
    metrics.watch("raybus_nats_connected", "1 while connected to NATS.", lambda: int(bus.connected))
    metrics.watch("raybus_nats_disconnects", "Lost connections to NATS.", lambda: bus.stats.disconnects, counter=True)
    metrics.watch(
        "raybus_nats_rereads",
        "Follows of a stream or bucket that were read from the start again, by why.",
        lambda: bus.stats.rereads,
        label="reason",
        counter=True,
    )
    metrics.watch(
        "raybus_nats_certificate_expires_timestamp_seconds",
        "When the certificate of the NATS server ends; absent without TLS.",
        lambda: bus.stats.certificate_ends,
    )


def watch_leases(metrics: ServiceMetrics, leases: Leases, name: str) -> None:
    """`name` is the controller's in subjects, or "gateway"."""
    metrics.watch(
        "raybus_partitions",
        "Partitions that there are: somebody has to own each.",
        lambda: {name: leases.partitions},
        label="controller",
    )
    metrics.watch(
        "raybus_owned_partitions",
        "Partitions whose lease this replica holds.",
        lambda: {name: len(leases.owned())},
        label="controller",
    )
    metrics.watch("raybus_leases_gained", "Leases of partitions that were gained.", lambda: leases.gained, counter=True)
    metrics.watch(
        "raybus_leases_lost",
        "Leases that ended: released in order, fenced by the own clock, evicted by another replica's record.",
        lambda: {how: leases.lost[how] for how in ("released", "fenced", "evicted")},
        label="how",
        counter=True,
    )


def watch_history(metrics: ServiceMetrics, history: Recorded) -> None:
    metrics.watch("raybus_history_recorded", "History records stored.", lambda: history.recorded, counter=True)
    metrics.watch("raybus_history_dropped", "History records not stored.", lambda: history.dropped, counter=True)
    metrics.watch("raybus_history_waiting", "History records that wait to be stored.", lambda: history.waiting)


def watch_events(metrics: ServiceMetrics, events: EventRecorder) -> None:
    metrics.watch("raybus_events_sent", "Kubernetes events written.", lambda: events.sent, counter=True)
    metrics.watch("raybus_events_dropped", "Kubernetes events given up.", lambda: events.dropped, counter=True)


def watch_mirror(metrics: ControllerMetrics, mirror: Mirror, kinds: frozenset[str]) -> None:
    def ages() -> Mapping[str, float]:
        known = {kind: mirror.marker_age_s(kind) for kind in kinds}
        return {kind: age for kind, age in known.items() if age is not None}

    metrics.watch("raybus_marker_age_seconds", "Age of the last completeness marker.", ages, label="kind")
    metrics.watch(
        "raybus_mirror_silence_seconds",
        "Time since the stream last brought anything; markers come every 10 s.",
        mirror.silence_s,
    )
    metrics.watch("raybus_mirror_trees", "Trees in memory.", lambda: mirror.size()[0])
    metrics.watch("raybus_mirror_objects", "Objects in these trees.", lambda: mirror.size()[1])
    metrics.watch(
        "raybus_mirror_bodiless_objects",
        "Objects that are known to exist and whose bodies have not been seen.",
        lambda: mirror.size()[2],
    )
    metrics.watch(
        "raybus_mirror_rereads",
        "Times that all partitions were read again, by why: ownership moved, or a gap in what the stream brought.",
        lambda: {why: mirror.rereads[why] for why in ("ownership", "gap")},
        label="reason",
        counter=True,
    )
    metrics.watch(
        "raybus_mirror_skipped",
        "Messages passed over: of an unknown type or another cluster.",
        lambda: mirror.skipped,
        counter=True,
    )


def watch_controller(metrics: ControllerMetrics, controller: Controller[Any]) -> None:
    queue, backoff = controller.queue, controller.backoff
    metrics.watch("raybus_queue_length", "Trees that are due and wait for a worker.", lambda: len(queue))
    metrics.watch("raybus_queue_oldest_seconds", "Age of the oldest due key, 0 without any.", queue.oldest_s)
    metrics.watch("raybus_queue_running", "Passes under way.", lambda: queue.running)
    metrics.watch("raybus_queue_paused", "1 while no pass begins, for want of markers.", lambda: int(queue.paused))
    metrics.watch("raybus_failing_keys", "Trees whose last pass failed.", lambda: backoff.failing_count)
    metrics.watch("raybus_parked_keys", "Trees left alone after repeated bugs.", lambda: backoff.parked_count)
    metrics.watch("raybus_probes", "Submissions being watched.", lambda: len(controller.probes or ()))


def watch_replica(
    metrics: ControllerMetrics,
    bus: Bus,
    *,
    mirror: Mirror,
    controller: Controller[Any],
    leases: Leases,
    history: History,
) -> None:
    """All of a controller's replica."""
    watch_bus(metrics, bus)
    watch_leases(metrics, leases, controller.spec.name)
    watch_mirror(metrics, mirror, controller.spec.kinds)
    watch_controller(metrics, controller)
    watch_history(metrics, history)
