"""Readiness while NATS or the API server is away: false with the reason within half a minute, true again afterwards.

Real servers are stopped, killed, paused and started; every service is asked at its own /readyz.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from raybus.kube.client import KubeClient
from raybus.kube.config import load
from support.kube import RealKube, install_crds
from support.nats import free_port
from support.operators import Operator
from support.server_process import ServerProcess

pytestmark = pytest.mark.timeout(180)  # most have an API server of their own

SERVICES = ("gateway", "gateway-2", "cluster_ctrl", "job_ctrl")
DETECTED_S = 30.0
BACK_S = 40.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """An API server of this test alone, always at the same address."""
    one = ServerProcess(tmp_path / "kube", "--port", str(free_port()))
    one.folder.mkdir()
    one.start()
    try:
        yield one
    finally:
        if one.process is not None and one.process.poll() is None:
            one.process.send_signal(signal.SIGCONT)
            one.stop()


@pytest.fixture
async def operator(server: ServerProcess, tmp_path: Path) -> AsyncIterator[Operator]:
    async with KubeClient(load(str(server.kubeconfig))) as kube:
        await install_crds(kube)
    async with Operator(tmp_path / "services", str(server.kubeconfig), *SERVICES[1:]) as operator:
        yield operator


async def unready(operator: Operator, holds: Callable[[dict[str, str]], bool], within_s: float = DETECTED_S) -> None:
    """All services say so."""
    said: dict[str, dict[str, str]] = {}
    try:
        async with asyncio.timeout(within_s):
            for name in SERVICES:
                while True:
                    status, said[name] = await operator.checks(name)
                    if status == 503 and holds(said[name]):
                        break
                    await asyncio.sleep(0.2)
    except TimeoutError:
        raise AssertionError(f"not within {within_s:g} s: {said}") from None


async def ready(operator: Operator) -> None:
    async with asyncio.timeout(BACK_S):
        await asyncio.gather(*(operator.ready(name) for name in SERVICES))


async def test_nats_is_stopped_and_comes_back(operator: Operator) -> None:
    operator.nats.stop()
    await unready(operator, lambda said: "NATS" in said.get("nats", ""))
    operator.nats.start()
    await ready(operator)


async def test_an_api_server_that_hangs(operator: Operator, server: ServerProcess) -> None:
    """Connections stand and nobody answers: the worst case for whoever only listens."""
    assert server.process is not None
    server.process.send_signal(signal.SIGSTOP)
    await unready(operator, lambda said: "no answer in" in said.get("kubernetes", ""))
    server.process.send_signal(signal.SIGCONT)
    await ready(operator)


@pytest.mark.night  # test_a_real_api_server_that_restarts is the short one
async def test_an_api_server_that_is_gone(operator: Operator, server: ServerProcess) -> None:
    server.stop(signal.SIGKILL)
    await unready(operator, lambda said: "out of reach" in said.get("kubernetes", ""))
    server.start()
    await ready(operator)


async def test_services_that_wait_at_the_start_say_for_what(server: ServerProcess, tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    shutil.copy(server.kubeconfig, kubeconfig)  # the server's own is not there while it starts
    operator = Operator(tmp_path / "services", str(kubeconfig))
    try:
        operator.start("gateway")
        await waits(operator, "NATS")
        server.stop(signal.SIGKILL)
        operator.nats.start()
        await waits(operator, "the API server")
        server.start()
        await operator.ready("gateway")
    finally:
        await operator.__aexit__(None, None, None)


async def waits(operator: Operator, what: str) -> None:
    async with asyncio.timeout(20):
        while True:
            try:
                if (await operator.checks("gateway"))[1].get("started", "").startswith(f"waiting for {what}"):
                    return
            except OSError:
                pass  # its port is not open yet
            await asyncio.sleep(0.1)


@pytest.mark.realkube
async def test_a_real_api_server_that_restarts(realkube: RealKube, tmp_path: Path) -> None:
    async with KubeClient(load(realkube.kubeconfig)) as kube:
        await install_crds(kube)
    async with Operator(tmp_path, realkube.kubeconfig, *SERVICES[1:]) as operator:
        away = asyncio.create_task(asyncio.to_thread(realkube.restart_apiserver, 20))
        await unready(operator, lambda said: "out of reach" in said.get("kubernetes", ""))
        await away
        await ready(operator)
