"""What a service's readiness rests on, as checks that say what is missing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from raybus.bus.transport import Bus
from raybus.kube.reach import Reach
from raybus.observe.health import Check, Checks
from raybus.observe.metrics import ServiceMetrics
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
        return Check(bus.connected, bus.refusal if bus.connected else "no connection to NATS")

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
