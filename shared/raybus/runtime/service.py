"""A service process from settings to exit code: logs, event loop, signals, health; and `run`, which every controller's
__main__ calls. What a replica is made of stands in replica.py.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, Self, TypeVar

import uvloop

from raybus.kube.client import KubeClient
from raybus.kube.events import EventRecorder
from raybus.observe import logging
from raybus.observe.health import Check, Checks, HealthPortError, HealthServer
from raybus.observe.metrics import ControllerMetrics, ServiceMetrics
from raybus.runtime import configfile, connections, neighbours, readiness, telemetry
from raybus.runtime.clock import SYSTEM, Clock
from raybus.runtime.connections import StartError
from raybus.runtime.lifecycle import Stop, StoppedError
from raybus.runtime.replica import Parts, Replica
from raybus.runtime.settings import ControllerSettings, ServiceSettings
from raybus.runtime.spec import ControllerSpec

__all__ = ["Health", "MakeParts", "Parts", "Services", "no_parts", "run", "run_until_stopped", "serve"]

W = TypeVar("W")


@dataclass(frozen=True, slots=True)
class Services:
    """What a service's own parts are made from."""

    settings: ServiceSettings
    kube: KubeClient
    clock: Clock
    metrics: ControllerMetrics


MakeParts = Callable[[Services], AbstractAsyncContextManager[Parts]]
"""Opens a service's own parts, and closes them at the end."""


@asynccontextmanager
async def no_parts(_services: Services) -> AsyncIterator[Parts]:
    yield Parts()


def run(spec: ControllerSpec[W], settings: ControllerSettings, prog: str, parts: MakeParts = no_parts) -> int:
    """Run a controller until SIGTERM or SIGINT; the exit code. 1 with one line on standard error if it cannot start."""
    metrics = ControllerMetrics(prog.removeprefix("raybus-"))
    return run_until_stopped(
        lambda stop: serve(spec, settings, stop, metrics, parts), settings, prog, service=spec.name
    )


def run_until_stopped(
    main: Callable[[Stop], Coroutine[Any, Any, None]], settings: ServiceSettings, prog: str, *, service: str
) -> int:
    """For any service: logs, event loop and signals around `main`, which ends when `stop` is asked. The exit code."""
    logging.configure(
        service=service, replica=settings.replica_id, log_format=settings.log_format, level=settings.log_level
    )
    for field, instead in (configfile.without_effect(Path(settings.config)) if settings.config else {}).items():
        logging.get_logger().info("a field of the --config file has no effect", field=field, instead=instead)

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
        self._checks: dict[str, Callable[[], Check]] = {}
        self.waits_for("its start")
        self._server = HealthServer(metrics, self._checks, host=settings.health_host, port=settings.health_port)

    @property
    def port(self) -> int:
        return self._server.port

    def waits_for(self, what: str, why: Callable[[], str] = str) -> None:
        """What must come before the service can start, and why it is not there yet; shown until `is_ready`."""

        def check() -> Check:
            reason = why()
            return Check(ok=False, detail=f"waiting for {what}{f': {reason}' if reason else ''}")

        self._checks["started"] = check

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


async def serve(
    spec: ControllerSpec[W], settings: ControllerSettings, stop: Stop, metrics: ControllerMetrics, make_parts: MakeParts
) -> None:
    """All of a controller process but its event loop. Raises StartError, HealthPortError, StoppedError."""
    log = logging.get_logger(controller=spec.name)
    async with AsyncExitStack() as stack:
        health = await stack.enter_async_context(Health(metrics, settings))
        log.info("starting", version=metadata.version("raybus"), health_port=health.port)
        connection = connections.nats(settings, spec.name, health.waits_for)
        bus = await stop.unless(stack.enter_async_context(connection))
        health.waits_for("the API server")
        kube, uid = await stop.unless(stack.enter_async_context(connections.kube(settings, spec.name, metrics)))
        looking = neighbours.refuse_beside_another(
            kube, settings.namespaces, take_over=settings.take_over, now=SYSTEM.now
        )
        await stop.unless(looking)
        health.waits_for("the gateway to make the streams")
        found = await stop.unless(connections.stream_settings(bus, spec.name, uid, settings.nats_wait_s))
        parts = await stack.enter_async_context(make_parts(Services(settings, kube, SYSTEM, metrics)))
        recorder = EventRecorder(kube, f"{spec.name}-controller", settings.replica_id, clock=SYSTEM.now)
        events = await stack.enter_async_context(recorder)
        replica = Replica(spec, settings, metrics, bus=bus, kube=kube, events=events, found=found, parts=parts)
        await stack.enter_async_context(replica)
        readiness.watch_kubernetes(metrics, kube.reach)
        telemetry.watch_events(metrics, events)
        health.is_ready(
            {**replica.checks(), "kubernetes": partial(readiness.kubernetes, kube.reach, kube.config.server)}
        )
        log.info("started")

        await stop.wait()
        log.info("stopping")
        health.stops()
        await replica.hand_over()
    log.info("stopped")
