"""Logs over HTTP, as the API server asks for them."""

from __future__ import annotations

import asyncio
import re

import aiohttp
import pytest

from raybus.domain import kinds
from raybus.kube.client import KubeClient
from support.localnode import LocalNode, main_status, phase, ready, until

pytestmark = pytest.mark.timeout(60)


async def url_of(kube: KubeClient, ns: str, pod: str, container: str = "main") -> str:
    node = await kube.get(kinds.NODE, None, "local")
    address = next(a["address"] for a in node["status"]["addresses"] if a["type"] == "InternalIP")
    port = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"]
    return f"http://{address}:{port}/containerLogs/{ns}/{pod}/{container}"


async def fetch(node: LocalNode, url: str, token: str | None = None, **query: str) -> tuple[int, str]:
    token = token or (node.folder / "kubelet-token").read_text()
    headers = {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession(headers=headers) as session, session.get(url, params=query) as response:
        return response.status, await response.text()


async def test_logs_of_an_ended_pod(local_node: LocalNode, kube: KubeClient, ns: str) -> None:
    await kube.create(kinds.POD, local_node.pod(ns, "p", ["bash", "-c", "seq 1 5; printf end"], restartPolicy="Never"))
    await until(kube, ns, "p", lambda p: phase(p) == "Succeeded", "it ends")
    url = await url_of(kube, ns, "p")
    assert await fetch(local_node, url) == (200, "1\n2\n3\n4\n5\nend")
    assert await fetch(local_node, url, tailLines="2") == (200, "5\nend")
    assert await fetch(local_node, url, tailLines="0") == (200, "")
    assert await fetch(local_node, url, limitBytes="3") == (200, "1\n2")
    assert await fetch(local_node, url, sinceSeconds="3600", follow="true") == (200, "1\n2\n3\n4\n5\nend")
    status, text = await fetch(local_node, url, timestamps="true", tailLines="2")
    assert re.match(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z 5\n\d{4}.*Z end$", text)
    assert status == 200


async def test_who_may_ask_and_for_what(local_node: LocalNode, kube: KubeClient, ns: str) -> None:
    await kube.create(kinds.POD, local_node.pod(ns, "p", ["true"], restartPolicy="Never"))
    await until(kube, ns, "p", lambda p: phase(p) == "Succeeded", "it ends")
    url = await url_of(kube, ns, "p")
    assert (await fetch(local_node, url, token="wrong"))[0] == 401
    assert (await fetch(local_node, await url_of(kube, ns, "q")))[0] == 404
    assert (await fetch(local_node, url, tailLines="many")) == (
        400,
        "tailLines: must be a number of at least 0, not 'many'",
    )
    status, text = await fetch(local_node, url, previous="true")
    assert (status, text) == (400, 'previous terminated container "main" in pod "p" not found')


async def test_follow_brings_lines_as_they_are_written(local_node: LocalNode, kube: KubeClient, ns: str) -> None:
    script = "echo first; until [ -e /tmp/go ]; do sleep 0.05; done; echo second"
    await kube.create(kinds.POD, local_node.pod(ns, "p", ["bash", "-c", script], restartPolicy="Never"))
    await until(kube, ns, "p", ready, "it runs")
    pod = await kube.get(kinds.POD, ns, "p")
    token = (local_node.folder / "kubelet-token").read_text()
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.get(await url_of(kube, ns, "p"), params={"follow": "true"}) as response,
    ):
        assert await response.content.readline() == b"first\n"
        root = local_node.folder / "pods" / pod["metadata"]["uid"] / "roots" / "main-0"
        (root / "tmp" / "go").touch()
        async with asyncio.timeout(20):
            assert await response.content.readline() == b"second\n"
            assert await response.content.read() == b""


async def test_logs_of_the_run_before(local_node: LocalNode, kube: KubeClient, ns: str) -> None:
    script = "if [ -e /s/x ]; then echo again; sleep 100; fi; touch /s/x; echo once; exit 1"
    pod = local_node.pod(ns, "p", ["bash", "-c", script], volumes=[{"name": "s", "emptyDir": {}}])
    pod["spec"]["containers"][0]["volumeMounts"] = [{"name": "s", "mountPath": "/s"}]
    await kube.create(kinds.POD, pod)
    await until(kube, ns, "p", lambda p: main_status(p).get("restartCount") == 1 and ready(p), "the second run")
    url = await url_of(kube, ns, "p")
    assert await fetch(local_node, url, previous="true") == (200, "once\n")
