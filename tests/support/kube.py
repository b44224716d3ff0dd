"""API servers for tests.

`kubeconfig` is any API server: the one of KUBECONFIG, else localkube, or with RAYBUS_TEST_API=realkube a real one. `realkube` is a
real kube-apiserver without nodes. Each process of pytest starts its own and ends it: operators of two would do each other's work.
For the same reason KUBECONFIG counts only where tests run in one process.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import secrets
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from raybus.api import crds
from raybus.domain import kinds
from raybus.kube import errors
from raybus.kube.client import KubeClient
from raybus.kube.config import load

ROOT = Path(__file__).resolve().parents[2]
REALKUBE = ROOT.parent / "shared" / "realkube" / "realkube"
LOCALKUBE = Path(sys.executable).parent / "localkube"
HAS_LOCALKUBE = LOCALKUBE.exists() and importlib.util.find_spec("raybus_localkube.cli") is not None


def given_kubeconfig() -> str | None:
    """The user's own cluster."""
    return None if "PYTEST_XDIST_WORKER" in os.environ else os.environ.get("KUBECONFIG")


def real_api_wanted() -> bool:
    return os.environ.get("RAYBUS_TEST_API") == "realkube" or not HAS_LOCALKUBE


class RealKube:
    """A control plane of its own folder; `restart_apiserver` kills the API server and starts it again on the same data."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.kubeconfig = ""

    def up(self) -> None:
        self.kubeconfig = self._run("up", "--audit", "--serviceaccount-admission").strip().splitlines()[-1]

    def audit(self) -> list[dict[str, Any]]:
        """Who asked for what so far: one entry per answered request, its bodies left out."""
        lines = (self._folder / "logs" / "audit.log").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def down(self) -> None:
        self._run("down")

    def restart_apiserver(self, down_s: float = 0) -> None:
        self._run("restart-apiserver", *(("--down", f"{down_s:g}") if down_s else ()))

    def _run(self, command: str, *arguments: str) -> str:
        done = subprocess.run(
            [REALKUBE, command, "--dir", self._folder, *arguments],
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        assert done.returncode == 0, f"realkube {command}: {done.stderr}"
        return done.stdout


@pytest.fixture(scope="session")
def realkube(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealKube]:
    if not REALKUBE.exists():
        pytest.skip(
            "needs a real kube-apiserver, and ../shared/realkube, which starts one, is not beside the repository"
        )
    kube = RealKube(tmp_path_factory.mktemp("realkube"))
    kube.up()
    try:
        yield kube
    finally:
        kube.down()


@pytest.fixture(scope="session")
def kubeconfig(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Path of a kubeconfig; no pod runs there unless the user's cluster has nodes."""
    if given := given_kubeconfig():
        yield given
        return
    if real_api_wanted():
        yield request.getfixturevalue("realkube").kubeconfig
        return
    folder = tmp_path_factory.mktemp("localkube")
    up = [LOCALKUBE, "up", "--dir", folder, "--no-kubelet"]
    started = subprocess.run(up, capture_output=True, text=True, timeout=60, check=False)
    assert started.returncode == 0, f"localkube up: {started.stderr}"
    try:
        yield started.stdout.strip().splitlines()[-1]
    finally:
        subprocess.run([LOCALKUBE, "down", "--dir", folder], check=True, capture_output=True, timeout=60)


@pytest.fixture
async def kube(kubeconfig: str) -> AsyncIterator[KubeClient]:
    async with KubeClient(load(kubeconfig), user_agent="raybus-tests") as client:
        yield client


@pytest.fixture
async def namespace(kube: KubeClient) -> AsyncIterator[str]:
    """A namespace of this test alone."""
    async with fresh_namespace(kube) as name:
        yield name


@contextlib.asynccontextmanager
async def fresh_namespace(client: KubeClient) -> AsyncIterator[str]:
    name = f"raybus-{secrets.token_hex(4)}"
    await client.create(kinds.NAMESPACE, {"metadata": {"name": name}})
    try:
        yield name
    finally:
        with contextlib.suppress(errors.NotFound):
            await client.delete(kinds.NAMESPACE, None, name)


@contextlib.asynccontextmanager
async def client_of(kubeconfig: str, user_agent: str = "raybus-tests") -> AsyncIterator[KubeClient]:
    """A client of an API server that knows our kinds."""
    async with KubeClient(load(kubeconfig), user_agent=user_agent) as client:
        await install_crds(client)
        yield client


async def install_crds(client: KubeClient) -> None:
    """Ours, unless the cluster has some: KubeRay's own serve the same tests."""
    for crd in crds.build():
        with contextlib.suppress(errors.AlreadyExists):
            await client.create(kinds.CRD, crd)
    for kind in (kinds.RAYCLUSTER, kinds.RAYJOB):
        await _served(client, kind)


async def _served(client: KubeClient, kind: kinds.Kind) -> None:
    for _ in range(100):
        with contextlib.suppress(errors.NotFound):
            await client.request("GET", kind.path(), query={"limit": 1})
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"{kind.plural} are not served 10 s after their CRD was created")
