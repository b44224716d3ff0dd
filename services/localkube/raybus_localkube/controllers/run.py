"""Which controllers there are, and running a choice of them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable

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


@contextlib.asynccontextmanager
async def running(
    client: KubeClient, names: Iterable[str] = ALL, *, root_ca: str = "", clock: Clock = SYSTEM
) -> AsyncIterator[Manager]:
    """These controllers at work with `client`, whose user needs all rights; they end with the block.

    `await manager.started.wait()` waits until all of them have seen what there is.
    """
    async with EventRecorder(client, "job-controller", "localkube") as events:
        manager = Manager(client, build(names, root_ca=root_ca), events, clock=clock)
        task = asyncio.create_task(manager.run(), name="controllers")
        try:
            yield manager
        finally:
            task.cancel()
            await asyncio.wait([task])
