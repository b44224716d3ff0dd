"""Which controllers there are, and running a choice of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from raybus.kube.client import KubeClient
from raybus.kube.events import EventRecorder
from raybus.runtime.clock import SYSTEM, Clock
from raybus_localkube.controllers.accounts import Accounts
from raybus_localkube.controllers.collector import Collector
from raybus_localkube.controllers.controller import Controller
from raybus_localkube.controllers.endpoints.controller import EndpointSlices, LegacyEndpoints
from raybus_localkube.controllers.jobs.controller import Jobs
from raybus_localkube.controllers.manager import Manager
from raybus_localkube.controllers.namespaces import Namespaces

ALL = ("garbage-collector", "jobs", "endpoint-slices", "endpoints", "namespaces", "service-accounts")


def build(names: Iterable[str] = ALL, *, root_ca: str = "") -> list[Controller]:
    """New controllers of these names. `root_ca` is the PEM text for the config maps kube-root-ca.crt. KeyError for another name."""
    factories: dict[str, Callable[[], Controller]] = {
        "garbage-collector": Collector,
        "jobs": Jobs,
        "endpoint-slices": EndpointSlices,
        "endpoints": LegacyEndpoints,
        "namespaces": Namespaces,
        "service-accounts": lambda: Accounts(root_ca),
    }
    return [factories[name]() for name in names]


async def run(client: KubeClient, names: Iterable[str] = ALL, *, root_ca: str = "", clock: Clock = SYSTEM) -> None:
    """Run these controllers with `client` until cancelled. The client's user needs all rights."""
    controllers = build(names, root_ca=root_ca)
    async with EventRecorder(client, "job-controller", "localkube") as events:
        await Manager(client, controllers, events, clock=clock).run()
