"""Creates many plain RayClusters and measures the way to "all pods exist", on any cluster that has no nodes of its own to fill.

    python benchmarks/create_clusters.py --kubeconfig K [--clusters 1000] [--workers 2] [--json]

Starts `raybus up --kubeconfig K` on a folder of its own, creates the clusters in one namespace from 8 connections, waits until
every pod exists and ten seconds more for late writes, then prints seconds, CPU seconds and memory (PSS) of each process, and
writes for each cluster as the API server counted them. Deletes the namespace at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import psutil

from raybus.domain import kinds
from raybus.kube.client import KubeClient
from raybus.kube.config import load

CONNECTIONS = 8
LATE_WRITES_S = 10.0
LIMIT_S = 1200.0
READY_S = 90.0
# What Kubernetes' own controllers write by themselves.
NOT_OURS = ("endpoints", "endpointslices", "leases", "replicasets", "namespaces", "serviceaccounts", "configmaps")
REQUESTS = re.compile(r"^apiserver_request_total\{(?P<labels>.*)\} (?P<count>[0-9.e+]+)$", re.MULTILINE)
CPU = re.compile(r"^process_cpu_seconds_total (?P<seconds>[0-9.e+]+)$", re.MULTILINE)
LABEL = re.compile(r'(\w+)="([^"]*)"')


def cluster(name: str, namespace: str, workers: int) -> dict[str, Any]:
    container = {
        "name": "ray",
        "image": "rayproject/ray:2.52.0",
        "resources": {"limits": {"cpu": "1", "memory": "2Gi"}, "requests": {"cpu": "1", "memory": "2Gi"}},
    }
    template = {"spec": {"containers": [container]}}
    group = {"groupName": "w", "replicas": workers, "minReplicas": 0, "maxReplicas": workers, "template": template}
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"rayVersion": "2.52.0", "headGroupSpec": {"template": template}, "workerGroupSpecs": [group]},
    }


class Processes:
    """`raybus up` and what it started: CPU seconds and memory by name."""

    def __init__(self, root: int) -> None:
        self._root = psutil.Process(root)

    def measured(self) -> dict[str, dict[str, float]]:
        found: dict[str, dict[str, float]] = {}
        for process in (self._root, *self._root.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                times, memory = process.cpu_times(), process.memory_full_info()
                one = found.setdefault(_name(process), {"cpu_s": 0.0, "pss_mb": 0.0})
                one["cpu_s"] += times.user + times.system
                one["pss_mb"] += getattr(memory, "pss", memory.rss) / 1e6
        return found


def _name(process: psutil.Process) -> str:
    words = " ".join(process.cmdline())
    names = ("nats-server", "raybus_gateway", "raybus_cluster_ctrl", "raybus_job_ctrl", "raybus_localkube")
    return next((name for name in names if name in words), "raybus up")


@contextlib.asynccontextmanager
async def raybus(kubeconfig: str) -> AsyncIterator[Processes]:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="raybus-bench-") as folder:
        program = str(Path(sys.executable).parent / "raybus")
        up = [program, "up", "--kubeconfig", kubeconfig, "--dir", folder, "--foreground", "--health-port", str(port)]
        with (Path(folder) / "up.log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(*up, stdout=log, stderr=subprocess.STDOUT)
        try:
            await _ready(f"http://127.0.0.1:{port}/readyz", process, Path(folder) / "up.log")
            yield Processes(process.pid)
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()


async def _ready(url: str, process: asyncio.subprocess.Process, log: Path) -> None:
    end = time.monotonic() + READY_S
    async with aiohttp.ClientSession() as session:
        while time.monotonic() < end:
            if process.returncode is not None:
                raise SystemExit(f"raybus up ended:\n{_end_of(log)}")
            with contextlib.suppress(aiohttp.ClientError):
                async with session.get(url) as response:
                    if response.status == 200:
                        return
            await asyncio.sleep(0.2)
    raise SystemExit(f"raybus up is not ready after {READY_S:g} s:\n{_end_of(log)}")


def _end_of(log: Path) -> str:
    return log.read_text()[-3000:]


async def counted(kubeconfig: str) -> tuple[dict[str, float], float] | None:
    """Successful writes by resource, and CPU seconds of the API server, so far; None where it does not tell."""
    kubectl = str(Path(sys.executable).parent / "kubectl")
    process = await asyncio.create_subprocess_exec(
        kubectl,
        "--kubeconfig",
        kubeconfig,
        "get",
        "--raw",
        "/metrics",
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    text = (await process.communicate())[0].decode()
    if process.returncode:
        return None
    writes: dict[str, float] = {}
    for match in REQUESTS.finditer(text):
        labels = dict(LABEL.findall(match["labels"]))
        is_write = labels.get("verb") in ("POST", "PUT", "PATCH", "APPLY", "DELETE")
        if is_write and labels.get("code", "").startswith("2") and labels.get("resource") not in NOT_OURS:
            key = "/".join(filter(None, (labels.get("resource", ""), labels.get("subresource", ""))))
            writes[key] = writes.get(key, 0) + float(match["count"])
    cpu = CPU.search(text)
    return writes, float(cpu["seconds"]) if cpu else 0.0


async def pods_in(kube: KubeClient, namespace: str) -> int:
    page = await kube.request("GET", kinds.POD.path(namespace), query={"limit": 1})
    return len(page["items"]) + int(page["metadata"].get("remainingItemCount") or 0)


async def create(kube: KubeClient, namespace: str, clusters: int, workers: int) -> None:
    numbers = iter(range(clusters))

    async def one_after_the_other() -> None:
        for number in numbers:
            await kube.create(kinds.RAYCLUSTER, cluster(f"bench-{number}", namespace, workers))

    async with asyncio.TaskGroup() as group:
        for _ in range(CONNECTIONS):
            group.create_task(one_after_the_other())


async def measure(
    kube: KubeClient, kubeconfig: str, processes: Processes, clusters: int, workers: int
) -> dict[str, Any]:
    namespace = f"raybus-bench-{secrets.token_hex(3)}"
    await kube.create(kinds.NAMESPACE, {"metadata": {"name": namespace}})
    try:
        before, counts = processes.measured(), await counted(kubeconfig)
        began = time.monotonic()
        creating = asyncio.create_task(create(kube, namespace, clusters, workers))
        wanted, found = clusters * (1 + workers), 0
        while found < wanted and time.monotonic() - began < LIMIT_S:
            await asyncio.sleep(0.25)
            found = await pods_in(kube, namespace)
        seconds = time.monotonic() - began
        await creating
        await asyncio.sleep(LATE_WRITES_S)
        after, counts_after = processes.measured(), await counted(kubeconfig)
    finally:
        await kube.delete(kinds.NAMESPACE, None, namespace)
    result: dict[str, Any] = {"clusters": clusters, "workers": workers, "pods": found, "seconds": round(seconds, 2)}
    result["processes"] = {
        name: {
            "cpu_s": round(now["cpu_s"] - before.get(name, {"cpu_s": 0.0})["cpu_s"], 2),
            "pss_mb": round(now["pss_mb"], 1),
        }
        for name, now in sorted(after.items())
    }
    if counts and counts_after:
        result |= _writes(counts, counts_after, clusters)
    return result


def _writes(
    before: tuple[dict[str, float], float], after: tuple[dict[str, float], float], clusters: int
) -> dict[str, Any]:
    by_resource = {name: after[0][name] - before[0].get(name, 0) for name in after[0]}
    by_resource["rayclusters"] = by_resource.get("rayclusters", 0) - clusters  # the driver's own
    each = {name: round(count / clusters, 2) for name, count in sorted(by_resource.items()) if count}
    return {
        "writes_per_cluster": round(sum(each.values()), 2),
        "writes_by_resource": each,
        "apiserver_cpu_s": round(after[1] - before[1], 1),
    }


def printed(result: dict[str, Any]) -> str:
    lines = [f"{result['pods']} pods of {result['clusters']} clusters after {result['seconds']} s"]
    lines += [f"  {name:22} {p['cpu_s']:8.2f} CPU s {p['pss_mb']:8.1f} MB" for name, p in result["processes"].items()]
    total_cpu = sum(p["cpu_s"] for p in result["processes"].values())
    total_mb = sum(p["pss_mb"] for p in result["processes"].values())
    lines.append(f"  {'all':22} {total_cpu:8.2f} CPU s {total_mb:8.1f} MB")
    if "writes_per_cluster" in result:
        detail = ", ".join(f"{name} {count}" for name, count in result["writes_by_resource"].items())
        lines.append(f"  {result['writes_per_cluster']} writes a cluster: {detail}")
        lines.append(f"  API server {result['apiserver_cpu_s']} CPU s")
    return "\n".join(lines)


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kubeconfig", default=os.environ.get("KUBECONFIG"), help="default: KUBECONFIG")
    parser.add_argument("--clusters", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if not args.kubeconfig:
        parser.error("name a cluster with --kubeconfig or KUBECONFIG")
    config = load(args.kubeconfig)
    async with KubeClient(config, user_agent="raybus-bench") as kube, raybus(args.kubeconfig) as processes:
        result = await measure(kube, args.kubeconfig, processes, args.clusters, args.workers)
    print(json.dumps(result) if args.json else printed(result))
    return 0 if result["pods"] == result["clusters"] * (1 + result["workers"]) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
