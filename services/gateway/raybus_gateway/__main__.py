"""raybus-gateway: brings Kubernetes' objects to the streams of the controllers that asked for them."""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack
from functools import partial
from importlib import metadata

from raybus.bus.transport import BusError
from raybus.kube.errors import KubeError
from raybus.observe.logging import get_logger
from raybus.runtime import connections, flags, readiness
from raybus.runtime.connections import StartError
from raybus.runtime.lifecycle import Stop
from raybus.runtime.service import Health, run_until_stopped
from raybus_gateway.gateway import Gateway
from raybus_gateway.metrics import GatewayMetrics
from raybus_gateway.settings import GatewaySettings
from raybus_gateway.term import TermSettings

PROG = "raybus-gateway"


async def serve(settings: GatewaySettings, stop: Stop) -> None:
    """The whole process but its event loop. Raises StartError, HealthPortError, StoppedError."""
    log = get_logger()
    metrics = GatewayMetrics()
    async with AsyncExitStack() as stack:
        health = await stack.enter_async_context(Health(metrics, settings))
        log.info("starting", version=metadata.version("raybus"), health_port=health.port)
        connection = connections.nats(settings, "gateway", health.waits_for)
        bus = await stop.unless(stack.enter_async_context(connection))
        health.waits_for("the API server")
        kube, _ = await stop.unless(stack.enter_async_context(connections.kube(settings, "gateway", metrics)))
        health.waits_for("its streams")
        gateway = Gateway(bus, kube, _term_settings(settings), metrics, lease_ttl_s=settings.lease_ttl_s)
        try:
            async with asyncio.timeout(settings.nats_wait_s):
                await stop.unless(gateway.start())
        except (BusError, KubeError, TimeoutError) as error:
            raise StartError(f"the streams cannot be made: {error or 'no answer in time'}") from None
        metrics.watch_gateway(bus, gateway)
        readiness.watch_kubernetes(metrics, kube.reach)
        health.is_ready(
            {**gateway.checks(), "kubernetes": partial(readiness.kubernetes, kube.reach, kube.config.server)}
        )
        log.info("started")
        await stop.wait()
        log.info("stopping")
        health.stops()
        await gateway.stop()
        log.info("stopped")


def _term_settings(settings: GatewaySettings) -> TermSettings:
    return TermSettings(
        replica=settings.replica_id,
        partitions=settings.partitions,
        generation=settings.generation,
        stream_replicas=settings.stream_replicas,
        history_bytes=settings.history_bytes,
        relist_s=settings.relist_s,
        namespaces=settings.namespaces,
    )


def main() -> None:
    settings = flags.load(GatewaySettings, PROG, description=__doc__ or "")
    sys.exit(run_until_stopped(lambda stop: serve(settings, stop), settings, PROG, service="gateway"))


if __name__ == "__main__":
    main()
