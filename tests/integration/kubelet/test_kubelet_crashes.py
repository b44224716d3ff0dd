"""Kill -9 of the kubelet and of the node's processes: nothing is lost that can live on, nothing is left that cannot."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from raybus.domain import kinds
from raybus.kube.client import KubeClient
from support.localnode import LocalNode, kill, main_status, phase, ready, until, until_gone, wait_until

pytestmark = pytest.mark.timeout(120)
FOREVER = ["bash", "-c", "(sleep 1000 &) ; setsid sleep 1001 & while true; do sleep 0.2; done"]


@pytest.fixture
def own_node(own_kubeconfig: str, local_node: LocalNode) -> Iterator[LocalNode]:
    """A node that this test may kill, with the API server of the others; the shared kubelet pauses meanwhile."""
    local_node.kill_kubelet()
    with tempfile.TemporaryDirectory(prefix="rbk-") as folder:
        node = LocalNode(Path(folder), own_kubeconfig, sys.executable)
        try:
            node.start_node()
            node.start_kubelet()
            yield node
        finally:
            node.stop()
            local_node.start_kubelet()


async def run_one(node: LocalNode, kube: KubeClient, ns: str, name: str = "p") -> dict[str, object]:
    await kube.create(kinds.POD, node.pod(ns, name, FOREVER, terminationGracePeriodSeconds=1))
    pod = await until(kube, ns, name, ready, "it runs")
    wait_until(lambda: len(node.marked_processes()) >= 3, "its processes run")
    return pod


async def test_a_new_kubelet_adopts_what_runs(own_node: LocalNode, kube: KubeClient, ns: str) -> None:
    before = await run_one(own_node, kube, ns)
    await kube.create(kinds.POD, own_node.pod(ns, "ends", ["bash", "-c", "sleep 1.5; exit 5"], restartPolicy="Never"))
    await until(kube, ns, "ends", ready, "it runs")
    running = own_node.marked_processes()
    own_node.kill_kubelet()
    await asyncio.sleep(2)  # the pod `ends` ends while nobody looks
    assert set(running) & set(own_node.marked_processes())
    own_node.start_kubelet()
    ended = await until(kube, ns, "ends", lambda p: phase(p) == "Failed", "what ended meanwhile is noticed")
    assert main_status(ended)["state"]["terminated"]["exitCode"] == 5
    await kube.create(kinds.POD, own_node.pod(ns, "new", ["true"], restartPolicy="Never"))
    await until(kube, ns, "new", lambda p: phase(p) == "Succeeded", "new pods run")
    after = await kube.get(kinds.POD, ns, "p")
    assert after["status"] == before["status"]
    await kube.delete(kinds.POD, ns, "p")
    await until_gone(kube, ns, "p")
    wait_until(lambda: not own_node.marked_processes(), "nothing is left")


async def test_a_pod_deleted_while_the_kubelet_was_away(own_node: LocalNode, kube: KubeClient, ns: str) -> None:
    await run_one(own_node, kube, ns)
    own_node.kill_kubelet()
    await kube.delete(kinds.POD, ns, "p", grace_seconds=0)
    await until_gone(kube, ns, "p")
    own_node.start_kubelet()
    wait_until(lambda: not own_node.marked_processes(), "the orphan is ended")
    wait_until(lambda: not list((own_node.folder / "pods").iterdir()), "its files are removed")


@pytest.mark.parametrize("part", ["outer", "inner"])
async def test_with_the_node_everything_in_it_ends(own_node: LocalNode, kube: KubeClient, ns: str, part: str) -> None:
    await run_one(own_node, kube, ns)
    assert own_node.node is not None
    kill(own_node.node.pid if part == "outer" else own_node.inner_pid())
    own_node.node.wait(10)
    wait_until(lambda: not own_node.marked_processes(), "every process of the pod ends")
    own_node.start_node()
    again = await until(
        kube, ns, "p", lambda p: ready(p) and main_status(p)["restartCount"] == 1, "it runs again on the new node"
    )
    assert main_status(again)["lastState"]["terminated"]["reason"] == "ContainerStatusUnknown"
    assert main_status(again)["lastState"]["terminated"]["exitCode"] == 137


async def test_sigterm_to_the_node_ends_all_pods_quickly(own_node: LocalNode, kube: KubeClient, ns: str) -> None:
    await run_one(own_node, kube, ns)
    endless = ["bash", "-c", "trap '' TERM; while true; do sleep 0.1; done"]
    stubborn = own_node.pod(ns, "q", endless, terminationGracePeriodSeconds=300)
    await kube.create(kinds.POD, stubborn)
    await until(kube, ns, "q", ready, "it runs")
    assert own_node.node is not None
    own_node.kill_kubelet()
    own_node.node.send_signal(signal.SIGTERM)
    assert own_node.node.wait(30) == 0, "it does not wait for the pods' grace period"
    assert own_node.marked_processes() == []
    assert not (own_node.folder / "node.sock").exists()


async def test_everything_killed_at_once_leaves_nothing(own_node: LocalNode, kube: KubeClient, ns: str) -> None:
    await run_one(own_node, kube, ns)
    assert own_node.node is not None
    own_node.kill_kubelet()
    os.killpg(own_node.node.pid, signal.SIGKILL)
    own_node.node.wait(10)
    wait_until(lambda: not own_node.marked_processes(), "nothing is left")
