"""Real Ray in local pods, built as KubeRay builds them: head and worker with probes and init container, a job through the proxy."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

import aiohttp
import pytest

from raybus.domain import kinds
from raybus.kube.client import KubeClient
from support.localnode import NODE_NAME, LocalNode, main_status, ready, until, until_gone

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]

WORKER_CHECK = "wget --tries 1 -T 2 -q -O- http://localhost:52365/api/local_raylet_healthz | grep success"
HEAD_CHECK = f"{WORKER_CHECK} && wget --tries 1 -T 10 -q -O- http://localhost:8265/api/gcs_healthz | grep success"
FLAGS = "--block  --dashboard-agent-listen-port=52365  --metrics-export-port=8080 "
WAIT = """
SECONDS=0
while true; do
  if (( SECONDS <= 120 )); then
    if ray health-check --address {gcs} > /dev/null 2>&1; then echo ready; break; fi
    echo "$SECONDS seconds elapsed: waiting for GCS"
  else
    if ray health-check --address {gcs}; then echo ready; break; fi
  fi
  sleep 5
done
"""
FIELDS = {
    "RAY_CLUSTER_NAME": "metadata.labels['ray.io/cluster']",
    "RAY_CLUSTER_NAMESPACE": "metadata.namespace",
    "RAY_CLOUD_INSTANCE_ID": "metadata.name",
    "RAY_NODE_TYPE_NAME": "metadata.labels['ray.io/group']",
}


def tell(text: str) -> None:
    """Timings are a result of these tests: pytest -s shows them."""
    sys.stdout.write(text + "\n")


def probe(check: str, delay: int, failures: int, timeout: int) -> dict[str, Any]:
    return {
        "exec": {"command": ["bash", "-c", check]}, "initialDelaySeconds": delay, "timeoutSeconds": timeout,
        "periodSeconds": 5, "successThreshold": 1, "failureThreshold": failures,
    }  # fmt: skip


def ray_pod(  # noqa: PLR0917 -- a pod has as many parts
    node: LocalNode, namespace: str, kind: str, start: str, check: str, address: str
) -> dict[str, Any]:
    timeout = 5 if kind == "head" else 2
    env: list[dict[str, Any]] = [*node.marks(namespace, f"demo-{kind}")]
    env += [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in FIELDS.items()]
    env += [{"name": "KUBERAY_GEN_RAY_START_CMD", "value": start}, {"name": "RAY_ADDRESS", "value": address}]
    container = {
        "name": f"ray-{kind}", "image": "unused", "command": ["/bin/bash", "-c", "--"],
        "args": ["ulimit -n ${RAY_START_ULIMIT_OPEN_FILES:-65536}; " + start], "env": env,
        "livenessProbe": probe(check, 30, 120, timeout), "readinessProbe": probe(check, 10, 10, timeout),
        "resources": {"limits": {"cpu": "1", "memory": "2Gi"}},
        "volumeMounts": [{"name": "shared-mem", "mountPath": "/dev/shm"}],
    }  # fmt: skip
    labels = {
        "ray.io/cluster": "demo",
        "ray.io/node-type": kind,
        "ray.io/group": "headgroup" if kind == "head" else "w",
    }
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"demo-{kind}", "namespace": namespace, "labels": labels},
        "spec": {
            "nodeName": NODE_NAME, "containers": [container],
            "volumes": [{"name": "shared-mem", "emptyDir": {"medium": "Memory"}}],
        },
    }  # fmt: skip


async def make_cluster(node: LocalNode, kube: KubeClient, namespace: str) -> str:
    """Create Service, head and worker at once, as a controller does; the dashboard's URL."""
    service = {
        "metadata": {"name": "demo-head-svc", "namespace": namespace},
        "spec": {
            "clusterIP": "None", "publishNotReadyAddresses": True,
            "selector": {"ray.io/cluster": "demo", "ray.io/node-type": "head"},
            "ports": [{"name": "dashboard", "port": 8265}, {"name": "gcs-server", "port": 6379}],
        },
    }  # fmt: skip
    host = f"demo-head-svc.{namespace}.svc.cluster.local"
    head = ray_pod(
        node,
        namespace,
        "head",
        f"ray start --head  --dashboard-host=0.0.0.0  --num-cpus=1  {FLAGS}",
        HEAD_CHECK,
        "127.0.0.1:6379",
    )
    worker = ray_pod(
        node,
        namespace,
        "worker",
        f"ray start  --address={host}:6379  --num-cpus=1  {FLAGS}",
        WORKER_CHECK,
        f"{host}:6379",
    )
    worker["spec"]["initContainers"] = [
        {
            "name": "wait-gcs-ready", "image": "unused", "command": ["/bin/bash", "-c", "--"],
            "args": [WAIT.format(gcs=f"{host}:6379")],
            "resources": {"limits": {"cpu": "200m", "memory": "256Mi"}},
        }
    ]  # fmt: skip
    await kube.create(kinds.SERVICE, service)
    await kube.create(kinds.POD, head)
    await kube.create(kinds.POD, worker)
    return f"http://{host}:8265"


class Jobs:
    """Ray's job API, asked through the node's proxy."""

    def __init__(self, node: LocalNode, url: str) -> None:
        self._proxy = f"http://127.0.0.1:{node.proxy_port}"
        self._url = url

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, self._url + path, json=body, proxy=self._proxy) as response,
        ):
            text = await response.text()
            assert response.status == 200, text
            return json.loads(text)

    async def until_final(self, job: str) -> dict[str, Any]:
        for _ in range(400):
            record: dict[str, Any] = await self.call("GET", f"/api/jobs/{job}")
            if record["status"] in ("SUCCEEDED", "FAILED", "STOPPED"):
                return record
            await asyncio.sleep(0.15)
        pytest.fail(f"job {job} did not end")


COUNT = (
    "python -c \"import ray, socket; ray.init(); f = ray.remote(num_cpus=1)(lambda: __import__('time').sleep(0.5) or socket.gethostname());"
    " print('hosts', sorted(set(ray.get([f.remote() for _ in range(6)])))); print(ray.cluster_resources())\""
)


async def test_a_job_runs_on_head_and_worker(local_node: LocalNode, kube: KubeClient, ns: str) -> None:
    began = time.monotonic()

    def took() -> str:
        return f"{time.monotonic() - began:.1f} s"

    url = await make_cluster(local_node, kube, ns)
    await until(kube, ns, "demo-head", ready, "the head is ready", within_s=90)
    tell(f"head ready after {took()}")
    worker = await until(kube, ns, "demo-worker", ready, "the worker is ready", within_s=60)
    tell(f"worker ready after {took()}")
    jobs = Jobs(local_node, url)
    await jobs.call("POST", "/api/jobs/", {"entrypoint": COUNT, "submission_id": "count"})
    record = await jobs.until_final("count")
    logs = (await jobs.call("GET", "/api/jobs/count/logs"))["logs"]
    tell(f"job ended after {took()}")
    assert record["status"] == "SUCCEEDED", (record, logs)
    assert "'demo-head', 'demo-worker'" in logs
    assert "'memory': " in logs
    assert main_status(worker)["restartCount"] == 0
    ending = time.monotonic()
    for name in ("demo-worker", "demo-head"):
        await kube.delete(kinds.POD, ns, name)
    for name in ("demo-worker", "demo-head"):
        await until_gone(kube, ns, name)
    tell(f"both pods gone {time.monotonic() - ending:.1f} s after their deletion")
    assert local_node.processes_of(ns, "demo-head") + local_node.processes_of(ns, "demo-worker") == []


async def test_a_job_outlives_the_kubelet(local_node: LocalNode, kube: KubeClient, ns: str) -> None:
    url = await make_cluster(local_node, kube, ns)
    head = await until(kube, ns, "demo-head", ready, "the head is ready", within_s=90)
    worker = await until(kube, ns, "demo-worker", ready, "the worker is ready", within_s=60)
    jobs = Jobs(local_node, url)
    sleep = "python -c \"import ray, time; ray.init(); print(ray.get(ray.remote(lambda: time.sleep(8) or 'slept').remote()))\""
    await jobs.call("POST", "/api/jobs/", {"entrypoint": sleep, "submission_id": "sleep"})
    local_node.kill_kubelet()
    await asyncio.sleep(1)
    local_node.start_kubelet()
    record = await jobs.until_final("sleep")
    assert record["status"] == "SUCCEEDED", record
    for before in (head, worker):
        after = await kube.get(kinds.POD, ns, before["metadata"]["name"])
        assert ready(after)
        assert main_status(after)["restartCount"] == 0
        assert main_status(after)["containerID"] == main_status(before)["containerID"]
        assert after["status"]["podIP"] == before["status"]["podIP"]
