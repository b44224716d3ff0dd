"""API servers whose built-in controllers are ours, whatever serves the API: localkube, or a real kube-apiserver alone."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from raybus.api import crds
from raybus.kube.client import KubeClient
from raybus.kube.config import load
from raybus_localkube.server.process import Server
from support.kube import REALKUBE
from support.server_process import ServerProcess

TLS_GOODBYE_S = 0.3
"""Connections of cancelled watches say goodbye in the background; the loop must live that long."""


@pytest.fixture(scope="session")
def bare_apiserver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The kubeconfig of a real kube-apiserver without kube-controller-manager."""
    if not REALKUBE.exists():
        pytest.skip("needs ../shared/realkube beside the repository, which starts a real kube-apiserver")
    folder = tmp_path_factory.mktemp("bare")
    up = [REALKUBE, "up", "--serviceaccount-admission", "--dir", folder]
    done = subprocess.run(up, capture_output=True, text=True, timeout=900, check=False)
    try:
        assert done.returncode == 0, done.stderr
        end(json.loads((folder / "run" / "kube-controller-manager.json").read_text())["pid"])
        yield done.stdout.strip().splitlines()[-1]
    finally:
        subprocess.run([REALKUBE, "down", "--dir", folder], capture_output=True, timeout=60, check=False)


def end(pid: int) -> None:
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + 20
    while (
        Path(f"/proc/{pid}/stat").exists() and Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    ):
        assert time.monotonic() < deadline, "kube-controller-manager does not end"
        time.sleep(0.05)


@pytest.fixture(params=["localkube", pytest.param("kube-apiserver", marks=pytest.mark.realkube)])
async def bare(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[KubeClient]:
    """A client of an API server that has no controllers."""
    if request.param == "localkube":
        server = Server(tmp_path, ())
        await server.start(0)
        try:
            yield server.client
        finally:
            await server.stop()
    else:
        async with KubeClient(load(request.getfixturevalue("bare_apiserver"))) as client:
            yield client
        await asyncio.sleep(TLS_GOODBYE_S)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server process of this test alone."""
    one = ServerProcess(tmp_path)
    one.start()
    yield one
    if one.process is not None and one.process.poll() is None:
        one.stop()


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server process with our definitions, for tests that keep to their own namespace."""
    one = ServerProcess(tmp_path_factory.mktemp("server"))
    one.start()
    one.kubectl("create", "-f", "-", stdin=crds.as_yaml())
    yield one
    one.stop()
