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
WORKED_ON = (
    kinds.Kind("apps", "v1", "Deployment", "deployments"), kinds.Kind("apps", "v1", "ReplicaSet", "replicasets"),
    kinds.RAYCRONJOB, kinds.RAYSERVICE, kinds.RAYJOB, kinds.RAYCLUSTER, kinds.JOB, kinds.POD, kinds.SERVICE, kinds.LEASE,
)  # fmt: skip
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
    """A namespace whose objects are gone in the end: what a test leaves would be work for the operator of the next one."""
    name = f"raybus-{secrets.token_hex(4)}"
    await client.create(kinds.NAMESPACE, {"metadata": {"name": name}})
    await _takes_pods(client, name)
    try:
        yield name
    finally:
        try:
            await emptied(client, name)
        finally:
            with contextlib.suppress(errors.NotFound):
                await client.delete(kinds.NAMESPACE, None, name)


async def _takes_pods(client: KubeClient, namespace: str) -> None:
    """Wait for the default account, without which every pod is refused; an API server alone makes none and asks for none.

    After a restart of the API server it takes the controller manager up to half a minute to look again.
    """
    for tries in range(600):
        with contextlib.suppress(errors.NotFound):
            await client.get(kinds.SERVICE_ACCOUNT, namespace, "default")
            return
        if not tries and not await _is_controlled(client, wait_s=0):
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"{namespace} has no default service account after a minute")


async def emptied(client: KubeClient, namespace: str) -> None:
    """Delete what operators work on, owners first, and wait until it is gone, whatever finalizers a failed test left in it.

    Kubernetes itself empties a namespace too, but minutes later where many go at once, and never of an object that is held.
    """
    for kind in WORKED_ON:
        for _ in range(300):
            if not (found := await _listed(client, kind, namespace)):
                break
            await asyncio.gather(*(_end(client, kind, obj["metadata"]) for obj in found))
            await asyncio.sleep(0.1)
        else:
            raise AssertionError(f"{kind.plural} of {namespace} do not go: {[obj['metadata'] for obj in found]}")


async def _listed(client: KubeClient, kind: kinds.Kind, namespace: str) -> list[dict[str, Any]]:
    with contextlib.suppress(errors.NotFound):  # the kind itself
        return await client.list_all(kind, namespace)
    return []


async def _end(client: KubeClient, kind: kinds.Kind, meta: dict[str, Any]) -> None:
    with contextlib.suppress(errors.NotFound, errors.Conflict):
        if "deletionTimestamp" not in meta:
            await client.delete(kind, meta["namespace"], meta["name"], grace_seconds=0)
        elif meta.get("finalizers"):
            await client.merge_patch(kind, meta["namespace"], meta["name"], {"metadata": {"finalizers": None}})
        elif kind is kinds.POD:
            await client.delete(kind, meta["namespace"], meta["name"], grace_seconds=0)  # nobody else ends it here


@contextlib.asynccontextmanager
async def client_of(kubeconfig: str, user_agent: str = "raybus-tests") -> AsyncIterator[KubeClient]:
    """A client of an API server that knows our kinds."""
    async with KubeClient(load(kubeconfig), user_agent=user_agent) as client:
        await install_crds(client)
        yield client


async def install_crds(client: KubeClient) -> None:
    """Ours, unless the cluster has some: KubeRay's own serve the same tests."""
    made = 0
    for crd in crds.build():
        with contextlib.suppress(errors.AlreadyExists):
            await client.create(kinds.CRD, crd)
            made += 1
    for kind in (kinds.RAYCLUSTER, kinds.RAYJOB):
        await _served(client, kind)
    if made:
        await _collected(client)


async def _collected(client: KubeClient) -> None:
    """Wait until the garbage collector knows the new kinds: it looks for them every 30 s, and till then foreground deletions hang.

    An API server alone has none.
    """
    if not await _is_controlled(client):
        return
    container = {"name": "none", "image": "none"}
    spec = {
        "managedBy": "kueue.x-k8s.io/multikueue",
        "headGroupSpec": {"template": {"spec": {"containers": [container]}}},
    }
    meta = {"name": f"collected-{secrets.token_hex(4)}", "namespace": "default"}
    body = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": meta, "spec": spec}
    await client.create(kinds.RAYCLUSTER, body)
    await client.delete(kinds.RAYCLUSTER, "default", meta["name"], propagation="Foreground")
    for _ in range(900):
        with contextlib.suppress(errors.NotFound):
            await client.get(kinds.RAYCLUSTER, "default", meta["name"])
            await asyncio.sleep(0.1)
            continue
        return
    raise AssertionError("the garbage collector does not see RayClusters 90 s after their CRD was created")


async def _is_controlled(client: KubeClient, wait_s: float = 5.0) -> bool:
    """Whether kube-controller-manager works here: it publishes this ConfigMap in each namespace, also in one that is new."""
    for _ in range(1 + round(wait_s * 10)):
        with contextlib.suppress(errors.NotFound):
            await client.get(kinds.CONFIG_MAP, "default", "kube-root-ca.crt")
            return True
        await asyncio.sleep(0.1)
    return False


async def _served(client: KubeClient, kind: kinds.Kind) -> None:
    for _ in range(100):
        with contextlib.suppress(errors.NotFound):
            await client.request("GET", kind.path(), query={"limit": 1})
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"{kind.plural} are not served 10 s after their CRD was created")
