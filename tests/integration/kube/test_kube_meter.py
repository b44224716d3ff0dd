"""What clients of the API server and of Ray tell about their requests."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from raybus.kube.client import KubeClient
from raybus.kube.config import KubeConfig
from raybus.kube.errors import KubeError, NoAnswer
from raybus.ray import errors as ray_errors
from raybus.ray.http import Dashboards
from support.nats import free_port


class Told:
    """A meter that keeps what it is told."""

    def __init__(self) -> None:
        self.answers: list[tuple[str, int]] = []
        self.seconds: list[float] = []
        self.waits: list[float] = []
        self.bodies: list[tuple[str, int, int]] = []
        self.again: list[tuple[str, int]] = []

    def waited(self, method: str, seconds: float) -> None:
        self.waits.append(seconds)

    def answered(self, method: str, status: int, seconds: float) -> None:
        self.answers.append((method, status))
        self.seconds.append(seconds)

    def carried(self, method: str, sent: int, received: int) -> None:
        self.bodies.append((method, sent, received))

    def repeated(self, method: str, status: int) -> None:
        self.again.append((method, status))


async def answer(request: web.Request) -> web.StreamResponse:
    await request.read()
    if request.path == "/slow":
        await asyncio.sleep(0.1)
    if request.path == "/hangs":
        await asyncio.sleep(0.5)  # longer than the client waits
    status = int(request.path.removeprefix("/status/")) if request.path.startswith("/status/") else 200
    return web.json_response({}, status=status)


@pytest.fixture
async def address() -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


class TestKube:
    async def test_answers_by_method_and_status(self, address: str) -> None:
        told = Told()
        async with KubeClient(KubeConfig(server=f"http://{address}"), meter=told) as client:
            await client.request("GET", "/slow")
            for method, status in (("POST", 201), ("PATCH", 409), ("DELETE", 404), ("GET", 503)):
                with contextlib.suppress(KubeError):
                    await client.request(method, f"/status/{status}", body={})
        assert told.answers == [("GET", 200), ("POST", 201), ("PATCH", 409), ("DELETE", 404), ("GET", 503)]
        assert 0.1 <= told.seconds[0] < 5
        assert len(told.waits) == 5
        assert told.bodies == [("GET", 0, 2), ("POST", 2, 2), ("PATCH", 2, 2), ("DELETE", 2, 2), ("GET", 2, 2)]
        assert told.again == []

    async def test_what_is_sent_once_more_with_new_credentials_is_counted(self, address: str) -> None:
        told = Told()
        server = f"http://{address}"
        newer = KubeConfig(server=server, authorization="Bearer newer")
        config = KubeConfig(server=server, authorization="Bearer old", refresh=lambda: newer)
        async with KubeClient(config, meter=told) as client:
            with pytest.raises(KubeError):
                await client.request("PATCH", "/status/401", body={})
        assert told.answers == [("PATCH", 401), ("PATCH", 401)]
        assert told.again == [("PATCH", 401)]

    async def test_silence_has_no_status(self, address: str) -> None:
        told = Told()
        async with KubeClient(KubeConfig(server=f"http://{address}"), meter=told) as client:
            with pytest.raises(NoAnswer):
                await client.request("GET", "/hangs", timeout_s=0.1)
        async with KubeClient(KubeConfig(server=f"http://127.0.0.1:{free_port()}"), meter=told) as client:
            with pytest.raises(NoAnswer):
                await client.request("POST", "/", body={})
        assert told.answers == [("GET", 0), ("POST", 0)]
        assert told.bodies == []

    async def test_a_stream_counts_once_when_it_is_accepted_refused_or_not_answered(self, address: str) -> None:
        told = Told()
        async with KubeClient(KubeConfig(server=f"http://{address}"), meter=told) as client:
            async with client.open_stream("/watch") as lines:
                assert told.answers == [("GET", 200)]
                assert [line async for line in lines] == [b"{}"]
            with pytest.raises(KubeError):
                async with client.open_stream("/status/403"):
                    pass
        async with KubeClient(KubeConfig(server=f"http://127.0.0.1:{free_port()}"), meter=told) as client:
            with pytest.raises(NoAnswer):
                async with client.open_stream("/watch"):
                    pass
        assert told.answers == [("GET", 200), ("GET", 403), ("GET", 0)]
        assert told.bodies == []


class TestRay:
    async def test_answers_and_silence(self, address: str) -> None:
        told = Told()
        async with Dashboards(on_answer=told.answered) as ray:
            for path in ("/slow", "/status/404"):
                await ray.request(ray.at(address, namespace="n", service="s"), "GET", path)
            with pytest.raises(ray_errors.NoAnswer):
                await ray.request(ray.at(address, namespace="n", service="s"), "GET", "/hangs", timeout_s=0.1)
        assert told.answers == [("GET", 200), ("GET", 404), ("GET", 0)]
        assert 0.1 <= told.seconds[0] < 5
