"""Recordings of Kubernetes' own controllers, replayed against ours on a real kube-apiserver.

The recordings and their replayer stand in ../shared/exchanges beside the repository.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from raybus.kube.client import KubeClient
from raybus.kube.config import load
from raybus_localkube.controllers.run import running

EXCHANGES = Path(__file__).resolve().parents[4] / "shared" / "exchanges"
TLS_GOODBYE_S = 0.3

pytestmark = [
    pytest.mark.realkube,
    pytest.mark.timeout(240),
    pytest.mark.skipif(not EXCHANGES.exists(), reason="../shared/exchanges is not beside the repository"),
]


@pytest.mark.parametrize("scenarios", ["gc-*", "jobs-*", "namespaces-*", "services-*", "crud-03*"])
async def test_answers_are_those_of_the_real_controllers(bare_apiserver: str, scenarios: str) -> None:
    command = [str(EXCHANGES / "replay.py"), "--kubeconfig", bare_apiserver, "--only", scenarios, str(EXCHANGES)]
    async with KubeClient(load(bare_apiserver)) as client, running(client, root_ca="PEM") as manager:
        await asyncio.wait_for(manager.started.wait(), 20)
        replay = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=asyncio.subprocess.PIPE)
        told, _ = await replay.communicate()
    await asyncio.sleep(TLS_GOODBYE_S)
    assert replay.returncode == 0, told.decode()
    assert b" exchanges equal" in told
