"""A node and a kubelet as real processes, against an API server of their own.

Of their own, because a kubelet runs whatever pods it finds: those that other tests leave behind are none of its business.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from raybus.kube.client import KubeClient
from raybus.kube.config import load
from support.kube import LOCALKUBE, REALKUBE, RealKube, fresh_namespace, given_kubeconfig, real_api_wanted
from support.localnode import LocalNode


@pytest.fixture(scope="session")
def own_kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """KUBECONFIG if given, else a localkube without kubelet, else a real control plane without nodes."""
    if given := given_kubeconfig():
        yield given
        return
    folder = tmp_path_factory.mktemp("kubelet-api")
    if not real_api_wanted():
        up = [LOCALKUBE, "up", "--dir", folder, "--no-kubelet"]
        started = subprocess.run(up, capture_output=True, text=True, timeout=60, check=False)
        assert started.returncode == 0, f"localkube up: {started.stderr}"
        try:
            yield started.stdout.strip().splitlines()[-1]
        finally:
            subprocess.run([LOCALKUBE, "down", "--dir", folder], check=True, capture_output=True, timeout=60)
        return
    if not REALKUBE.exists():
        pytest.skip(
            "needs an API server: localkube, KUBECONFIG, or ../shared/realkube, which is not beside the repository"
        )
    kube = RealKube(folder)
    kube.up()
    try:
        yield kube.kubeconfig
    finally:
        kube.down()


@pytest.fixture(scope="session")
def local_node(own_kubeconfig: str) -> Iterator[LocalNode]:
    """Runs for the whole session; tests that kill parts of it start them again."""
    # A short path: it holds unix sockets.
    with tempfile.TemporaryDirectory(prefix="rbk-") as folder:
        node = LocalNode(Path(folder), own_kubeconfig, sys.executable)
        try:
            node.start_node()
            node.start_kubelet()
            yield node
        finally:
            node.stop()


@pytest.fixture
async def kube(own_kubeconfig: str) -> AsyncIterator[KubeClient]:
    async with KubeClient(load(own_kubeconfig), user_agent="raybus-tests") as client:
        yield client


@pytest.fixture
async def ns(kube: KubeClient) -> AsyncIterator[str]:
    async with fresh_namespace(kube) as name:
        yield name
