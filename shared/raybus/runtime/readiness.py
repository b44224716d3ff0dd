"""What a service's readiness rests on, as checks that say what is missing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from raybus.bus.transport import Bus
from raybus.kube.reach import Reach
from raybus.observe.health import Check, Checks
from raybus.observe.metrics import ControllerMetrics, ServiceMetrics
from raybus.runtime.controller import Controller
from raybus.runtime.ports import Mirror


def checks(
    bus: Bus,
    mirror: Mirror,
    controller: Controller[Any],
    owned: Callable[[], frozenset[int]],
    unsettled: Callable[[], str],
) -> Checks:
    """A replica without a partition is a ready stand-by if others own them all; it follows no trees and needs no markers.

    `unsettled` says why the replica has not taken its part in the assignment yet.
    """

    def nats() -> Check:
        return Check(bus.connected, "" if bus.connected else "no connection to NATS")

    def partitions() -> Check:
        held = owned()
        unread = sorted(p for p in held if p not in controller.ownership.ready or not mirror.caught_up(p))
        missing = [f"still reading {unread}"] if unread else []
        missing += filter(None, [unsettled()])
        return Check(not missing, ", ".join([f"owned {sorted(held)}", *missing]))

    def markers() -> Check:
        stale = controller.stale_kinds() if owned() else {}
        words = [f"{kind}: {'never' if age is None else f'{age:.0f} s ago'}" for kind, age in stale.items()]
        return Check(not stale, f"the gateway last vouched for {', '.join(words)}" if stale else "")

    def queue() -> Check:
        ok = not controller.queue.overloaded
        return Check(ok, f"{len(controller.queue)} due" + ("" if ok else f", more than {controller.queue.limit}"))

    return {"nats": nats, "partitions": partitions, "markers": markers, "queue": queue}


def kubernetes(reach: Reach, server: str) -> Check:
    """Whether the API server at this address is within reach."""
    return Check(not reach.trouble, f"{server} is out of reach: {reach.trouble}" if reach.trouble else "")


def watch_kubernetes(metrics: ServiceMetrics, reach: Reach) -> None:
    metrics.watch(
        "raybus_kubernetes_reachable", "1 while the API server is within reach.", lambda: int(not reach.trouble)
    )


def watch(
    metrics: ControllerMetrics,
    bus: Bus,
    mirror: Mirror,
    controller: Controller[Any],
    owned: Callable[[], frozenset[int]],
    *,
    dropped: Callable[[], int],
) -> None:
    """Metrics of what already lives in these objects; read at the scrape."""

    def ages() -> dict[str, float]:
        known = {kind: mirror.marker_age_s(kind) for kind in controller.spec.kinds}
        return {kind: age for kind, age in known.items() if age is not None}

    metrics.watch("raybus_queue_length", "Trees that are due and wait for a worker.", lambda: len(controller.queue))
    metrics.watch("raybus_queue_running", "Passes under way.", lambda: controller.queue.running)
    metrics.watch("raybus_owned_partitions", "Partitions whose lease this replica holds.", lambda: len(owned()))
    metrics.watch("raybus_marker_age_seconds", "Age of the last completeness marker.", ages, label="kind")
    metrics.watch("raybus_nats_connected", "1 while connected to NATS.", lambda: int(bus.connected))
    metrics.watch("raybus_probes", "Submissions being watched.", lambda: len(controller.probes or ()))
    metrics.watch(
        "raybus_parked_keys", "Trees left alone after repeated bugs.", lambda: controller.backoff.parked_count
    )
    metrics.watch("raybus_history_dropped", "History records not stored.", dropped, counter=True)
