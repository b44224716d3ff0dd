"""Wiring of a controller process: settings in, a running controller, an orderly end. The `run` of every controller's __main__.

def main() -> None:
    settings = load(Settings, "raybus-cluster-ctrl")
    policy = settings.policy()
    spec = ControllerSpec(name="raycluster", ..., decide=partial(decide, policy=policy), ...)
    sys.exit(run(spec, settings, "raybus-cluster-ctrl"))
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any, Self, TypeVar

import uvloop

from raybus.bus import streams
from raybus.bus.entry import Ref
from raybus.bus.envelope import rfc3339
from raybus.bus.history import History
from raybus.bus.leases import Leases
from raybus.bus.mirror import Mirror
from raybus.bus.session import Session, encode_session
from raybus.bus.transport import Bus
from raybus.decide.actions import Action
from raybus.decide.tree import RootKey
from raybus.kube.client import KubeClient
from raybus.kube.events import EventRecorder
from raybus.observe import logging
from raybus.observe.health import Check, Checks, HealthPortError, HealthServer
from raybus.observe.metrics import ControllerMetrics, ServiceMetrics
from raybus.runtime import connections, readiness
from raybus.runtime.clock import SYSTEM, Clock
from raybus.runtime.connections import StartError
from raybus.runtime.controller import Controller
from raybus.runtime.executor import Handler, Ports
from raybus.runtime.lifecycle import Stop, StoppedError
from raybus.runtime.ports import Prober
from raybus.runtime.references import ReferenceReader
from raybus.runtime.settings import ServiceSettings
from raybus.runtime.spec import ControllerSpec

W = TypeVar("W")


@dataclass(frozen=True, slots=True)
class Services:
    """What a service's own parts are made from."""

    settings: ServiceSettings
    kube: KubeClient
    clock: Clock


@dataclass(frozen=True, slots=True)
class Parts:
    """What a service adds: handlers for its own actions, and who asks Ray."""

    handlers: Mapping[type[Action], Handler] = field(default_factory=dict)
    prober: Prober | None = None


MakeParts = Callable[[Services], AbstractAsyncContextManager[Parts]]
"""Opens a service's own parts, and closes them at the end."""


@asynccontextmanager
async def no_parts(_services: Services) -> AsyncIterator[Parts]:
    yield Parts()


def run(spec: ControllerSpec[W], settings: ServiceSettings, prog: str, parts: MakeParts = no_parts) -> int:
    """Run a controller until SIGTERM or SIGINT; the exit code. 1 with one line on standard error if it cannot start."""
    return run_until_stopped(lambda stop: serve(spec, settings, stop, parts), settings, prog, service=spec.name)


def run_until_stopped(
    main: Callable[[Stop], Coroutine[Any, Any, None]], settings: ServiceSettings, prog: str, *, service: str
) -> int:
    """For any service: logs, event loop and signals around `main`, which ends when `stop` is asked. The exit code."""
    logging.configure(
        service=service, replica=settings.replica_id, log_format=settings.log_format, level=settings.log_level
    )

    async def around() -> None:
        with Stop() as stop:
            await main(stop)

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(around())
    except StoppedError:
        return 0
    except (StartError, HealthPortError) as error:
        sys.stderr.write(f"{prog}: {error}\n")
        return 1
    return 0


class Health:
    """A service's health endpoint from the first moment on: not ready until `is_ready` gives it the real checks."""

    def __init__(self, metrics: ServiceMetrics, settings: ServiceSettings) -> None:
        self._checks: dict[str, Callable[[], Check]] = {"started": lambda: Check(ok=False, detail="starting")}
        self._server = HealthServer(metrics, self._checks, host=settings.health_host, port=settings.health_port)

    @property
    def port(self) -> int:
        return self._server.port

    def is_ready(self, checks: Checks) -> None:
        self._checks.clear()
        self._checks.update(checks)

    def stops(self) -> None:
        self._checks["stopping"] = lambda: Check(ok=False, detail="stopping")

    async def __aenter__(self) -> Self:
        await self._server.start()
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self._server.stop()


async def serve(spec: ControllerSpec[W], settings: ServiceSettings, stop: Stop, make_parts: MakeParts) -> None:
    """All of a controller process but its event loop. Raises StartError, HealthPortError, StoppedError."""
    log = logging.get_logger(controller=spec.name)
    metrics = ControllerMetrics(spec.name)
    async with AsyncExitStack() as stack:
        health = await stack.enter_async_context(Health(metrics, settings))
        log.info("starting", version=metadata.version("raybus"), health_port=health.port)
        bus = await stop.unless(stack.enter_async_context(connections.nats(settings, spec.name)))
        kube, uid = await stop.unless(stack.enter_async_context(connections.kube(settings, spec.name)))
        found = await stop.unless(connections.stream_settings(bus, spec.name, uid, settings.nats_wait_s))

        history = History(bus, spec.name, instance=settings.replica_id, cluster_uid=uid)
        await history.start()
        stack.push_async_callback(history.close)
        recorder = EventRecorder(kube, f"{spec.name}-controller", settings.replica_id)
        events = await stack.enter_async_context(recorder)
        parts = await stack.enter_async_context(make_parts(Services(settings, kube, SYSTEM)))

        controller: Controller[W]
        leases: Leases
        references: ReferenceReader

        def on_change(key: RootKey, trigger: str) -> None:
            controller.on_change(key, trigger)

        def mine(part: int) -> bool:
            return leases.mine(part)

        def on_ref(key: RootKey, ref: Ref) -> None:
            references.want(key, ref)

        mirror = Mirror(bus, spec.name, spec.routes, on_change, on_ref=on_ref, settings=found)
        stack.push_async_callback(mirror.close)
        references = ReferenceReader(kube, mirror, mirror.learned)
        references.start()
        stack.push_async_callback(references.close)
        controller = Controller(
            spec,
            Ports(kube, mirror, events, history),
            SYSTEM,
            metrics,
            partitions=found.partitions,
            mine=mine,
            read=mirror.own,
            handlers=parts.handlers,
            prober=parts.prober,
            workers=settings.workers,
            queue_limit=settings.queue_limit,
            namespaces=settings.namespaces,
        )
        leases = _leases(bus, spec, settings, found.partitions, controller)
        readiness.watch(metrics, bus, mirror, controller, leases.owned)
        metrics.watch(
            "raybus_history_dropped", "History records that were not stored.", lambda: history.dropped, counter=True
        )
        controller.start()
        await leases.start()
        health.is_ready(readiness.checks(bus, mirror, controller, leases.owned))
        log.info("started")

        await stop.wait()
        log.info("stopping")
        health.stops()
        drained = await controller.drain(settings.drain_s)
        await leases.stop()
        await controller.close()
        log.info("stopped", drained=drained)


def _leases(
    bus: Bus, spec: ControllerSpec[W], settings: ServiceSettings, partitions: int, controller: Controller[W]
) -> Leases:
    session = Session(
        replica=settings.replica_id,
        version=metadata.version("raybus"),
        started=rfc3339(SYSTEM.now()),
        routes=spec.routes,
    )
    return Leases(
        bus,
        streams.lease_bucket(spec.name),
        settings.replica_id,
        partitions,
        session=encode_session(session),
        on_gain=controller.gained,
        on_lose=controller.lost,
        ttl_s=settings.lease_ttl_s,
    )
