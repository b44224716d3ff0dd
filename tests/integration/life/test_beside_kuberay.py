"""Controllers beside a KubeRay operator: its Lease and its pod are real objects, and the services are processes."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from raybus.decide.rights import COEXISTENCE, IDENTITY, REFERENCE_LEASE, Right, Scope, rules
from raybus.domain import kinds
from raybus.domain.kinds import Kind
from raybus.kube.client import KubeClient
from raybus.kube.config import load
from support.kube import RealKube, fresh_namespace
from support.nats import NatsServer

pytestmark = [pytest.mark.kube, pytest.mark.timeout(120)]

POD = "kuberay-operator-5f6d-x7x7x"
BEGAN = "is the gateway running?"
"""What a controller says that got past the question: no gateway runs here."""


async def operator_at_work(kube: KubeClient, namespace: str, *args: str, seconds_ago: float = 2) -> None:
    """What the reference leaves in the cluster while it works."""
    renewed = datetime.now(UTC) - timedelta(seconds=seconds_ago)
    spec = {
        "holderIdentity": f"{POD}_6ff5ab27-58a1-44cb-a17c-30aa6c8c4b6a",
        "leaseDurationSeconds": 15,
        "renewTime": renewed.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
    }
    await kube.create(kinds.LEASE, {"metadata": {"name": REFERENCE_LEASE, "namespace": namespace}, "spec": spec})
    container = {"name": "kuberay-operator", "image": "quay.io/kuberay/operator:v1.5.1", "command": ["/manager"]}
    body = {"metadata": {"name": POD, "namespace": namespace}, "spec": {"containers": [{**container, "args": args}]}}
    await kube.create(kinds.POD, body)


def begin(kubeconfig: str, nats: NatsServer, *flags: str, module: str = "raybus_cluster_ctrl") -> str:
    """What a controller says last on standard error; it always ends with 1."""
    own = {key: value for key, value in os.environ.items() if not key.startswith("RAYBUS_")}
    command = [sys.executable, "-m", module, "--kubeconfig", kubeconfig, "--nats-url", nats.url]
    command += ["--health-port", "0", "--nats-wait-s", "1", *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=own, check=False)
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.fixture
async def theirs(kube: KubeClient) -> AsyncIterator[str]:
    """The namespace of the other operator. Its Lease goes at once, so that no other test meets it."""
    async with fresh_namespace(kube) as name:
        try:
            yield name
        finally:
            with contextlib.suppress(Exception):
                await kube.delete(kinds.LEASE, name, REFERENCE_LEASE)


@pytest.mark.parametrize("module", ["raybus_cluster_ctrl", "raybus_job_ctrl"])
async def test_two_for_all_namespaces_is_one_too_many(
    kube: KubeClient, kubeconfig: str, theirs: str, nats_server: NatsServer, module: str
) -> None:
    await operator_at_work(kube, theirs)
    said = begin(kubeconfig, nats_server, module=module).splitlines()[-1]
    for word in (REFERENCE_LEASE, theirs, POD, "all namespaces", "--namespaces", "--take-over"):
        assert word in said


async def test_each_with_its_own_namespaces(
    kube: KubeClient, kubeconfig: str, theirs: str, nats_server: NatsServer
) -> None:
    await operator_at_work(kube, theirs, "--watch-namespace=team-a,team-b")
    refused = begin(kubeconfig, nats_server, "--namespaces", "team-b,team-c").splitlines()[-1]
    assert "namespaces team-b too (its --watch-namespace)" in refused
    beside = begin(kubeconfig, nats_server, "--namespaces", "team-c")
    assert BEGAN in beside
    assert "looks after other namespaces" in beside


async def test_told_to_take_over(kube: KubeClient, kubeconfig: str, theirs: str, nats_server: NatsServer) -> None:
    await operator_at_work(kube, theirs)
    said = begin(kubeconfig, nats_server, "--take-over")
    assert BEGAN in said
    assert "as told by --take-over" in said


async def test_one_that_has_ended_does_not_count(
    kube: KubeClient, kubeconfig: str, theirs: str, nats_server: NatsServer
) -> None:
    await operator_at_work(kube, theirs, seconds_ago=60)
    assert BEGAN in begin(kubeconfig, nats_server)


async def test_its_configuration_file_counts_more_than_its_flags(
    kube: KubeClient, kubeconfig: str, theirs: str, nats_server: NatsServer
) -> None:
    await operator_at_work(kube, theirs, "--watch-namespace=team-c", "--config=/etc/op/config.yaml")
    pod = await kube.get(kinds.POD, theirs, POD)
    text = yaml.safe_dump({"kind": "Configuration", "watchNamespace": "team-a"})
    await kube.create(
        kinds.CONFIG_MAP, {"metadata": {"name": "op", "namespace": theirs}, "data": {"config.yaml": text}}
    )
    await kube.delete(kinds.POD, theirs, POD, grace_seconds=0)
    container = {**pod["spec"]["containers"][0], "volumeMounts": [{"name": "v", "mountPath": "/etc/op"}]}
    spec = {"containers": [container], "volumes": [{"name": "v", "configMap": {"name": "op"}}]}
    await kube.create(kinds.POD, {"metadata": {"name": POD, "namespace": theirs}, "spec": spec})
    assert BEGAN in begin(kubeconfig, nats_server, "--namespaces", "team-c")
    assert "its configuration file" in begin(kubeconfig, nats_server, "--namespaces", "team-a")


# With narrow rights, which only a real API server knows

RBAC = "rbac.authorization.k8s.io"
CLUSTER_ROLE = Kind(RBAC, "v1", "ClusterRole", "clusterroles", namespaced=False)
CLUSTER_ROLE_BINDING = Kind(RBAC, "v1", "ClusterRoleBinding", "clusterrolebindings", namespaced=False)


async def account(
    kube: KubeClient, kubeconfig: str, folder: Path, namespace: str, *, wide: Iterable[Right], local: Iterable[Right]
) -> str:
    """The kubeconfig of a service account with these rights, in the whole cluster and in its namespace."""
    await kube.create(kinds.SERVICE_ACCOUNT, {"metadata": {"name": "ctrl", "namespace": namespace}})
    subject = {"kind": "ServiceAccount", "name": "ctrl", "namespace": namespace}
    name = f"{namespace}-ctrl"
    role = {"apiGroup": RBAC, "kind": "ClusterRole", "name": name}
    await kube.create(CLUSTER_ROLE, {"metadata": {"name": name}, "rules": rules(wide, Scope.CLUSTER)})
    await kube.create(CLUSTER_ROLE_BINDING, {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]})
    here = {"name": "ctrl", "namespace": namespace}
    await kube.create(kinds.ROLE, {"metadata": here, "rules": rules(local, Scope.CLUSTER)})
    role = {"apiGroup": RBAC, "kind": "Role", "name": "ctrl"}
    await kube.create(kinds.ROLE_BINDING, {"metadata": here, "roleRef": role, "subjects": [subject]})
    answer = await kube.request(
        "POST", kinds.SERVICE_ACCOUNT.path(namespace, "ctrl", "token"), body={"spec": {"expirationSeconds": 3600}}
    )
    return with_token(kubeconfig, answer["status"]["token"], folder / "narrow.kubeconfig")


def with_token(kubeconfig: str, token: str, path: Path) -> str:
    given = yaml.safe_load(Path(kubeconfig).read_text())
    given["users"] = [{"name": user["name"], "user": {"token": token}} for user in given["users"]]
    path.write_text(yaml.safe_dump(given))
    return str(path)


@pytest.mark.realkube
@pytest.mark.parametrize("cluster_wide", [True, False])
async def test_with_the_rights_of_the_chart_and_with_fewer(
    realkube: RealKube, tmp_path: Path, nats_server: NatsServer, cluster_wide: bool
) -> None:
    """The narrow right to list Leases of one name; or none but in the namespaces looked after, which the log then says."""
    async with KubeClient(load(realkube.kubeconfig)) as kube, fresh_namespace(kube) as ours:
        wide, local = ((IDENTITY, COEXISTENCE), ()) if cluster_wide else ((IDENTITY,), (COEXISTENCE,))
        narrow = await account(kube, realkube.kubeconfig, tmp_path, ours, wide=wide, local=local)
        try:
            await operator_at_work(kube, ours)
            said = begin(narrow, nats_server, "--namespaces", ours)
        finally:
            await kube.delete(kinds.LEASE, ours, REFERENCE_LEASE)
            for kind in (CLUSTER_ROLE, CLUSTER_ROLE_BINDING):
                await kube.delete(kind, None, f"{ours}-ctrl")
    assert f"namespaces {ours} too (its pod cannot be read)" in said.splitlines()[-1]
    assert ("no right to list Leases in all namespaces" in said) is not cluster_wide
