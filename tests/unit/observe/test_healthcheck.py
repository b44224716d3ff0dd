"""What the image's health check asks, and of whom."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web

from raybus.observe.health import HealthServer
from raybus.observe.healthcheck import ask, target
from raybus.observe.metrics import ServiceMetrics
from support.nats import free_port

GATEWAY = ("/opt/raybus/bin/python", "/opt/raybus/bin/raybus-gateway")


@pytest.mark.parametrize(
    ("argv", "environment", "expected"),
    [
        pytest.param(GATEWAY, {}, ("127.0.0.1", 8082), id="defaults of the service"),
        pytest.param(
            GATEWAY,
            {"RAYBUS_HEALTH_PORT": "8080", "RAYBUS_HEALTH_HOST": "0.0.0.0"},
            ("127.0.0.1", 8080),
            id="environment",
        ),
        pytest.param(
            (*GATEWAY, "--health-port", "9"), {"RAYBUS_HEALTH_PORT": "8080"}, ("127.0.0.1", 9), id="flag first"
        ),
        pytest.param((*GATEWAY, "--health-host=10.1.2.3", "--health-port=9"), {}, ("10.1.2.3", 9), id="flag with ="),
        pytest.param(GATEWAY, {"RAYBUS_HEALTH_HOST": "::"}, ("::1", 8082), id="every address of IPv6"),
        pytest.param(
            ("/sbin/docker-init", "--", "raybus-job-ctrl"), {}, ("127.0.0.1", 8082), id="below an init process"
        ),
        pytest.param(("python", "/opt/raybus/bin/raybus", "get"), {}, None, id="the command line"),
        pytest.param(("sleep", "9"), {}, None, id="another program"),
    ],
)
def test_it_asks_where_the_service_listens(
    argv: tuple[str, ...], environment: dict[str, str], expected: tuple[str, int] | None
) -> None:
    assert target(argv, environment) == expected


async def test_a_service_that_answers_is_healthy() -> None:
    server = HealthServer(ServiceMetrics("test"), {})
    await server.start()
    try:
        assert await asyncio.to_thread(ask, "127.0.0.1", server.port) == ""
    finally:
        await server.stop()


async def test_whoever_answers_otherwise_is_not() -> None:
    runner = web.AppRunner(web.Application(), access_log=None)  # it has no /healthz
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    try:
        assert await asyncio.to_thread(ask, "127.0.0.1", port) == f"/healthz at 127.0.0.1:{port} answers 404"
    finally:
        await runner.cleanup()


def test_nobody_there_is_told_with_the_address() -> None:
    port = free_port()

    assert f"127.0.0.1:{port} does not answer" in ask("127.0.0.1", port)
