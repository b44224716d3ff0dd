"""Used against granted, both ways: every service works under its own account with exactly the generated rights, and the API server's
audit log says which of them it used.

Nothing runs the pods, and Ray is a fake one behind HTTP_PROXY: the scenes below say what becomes of both.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import pytest

from raybus.domain import kinds, labels
from raybus.kube.client import KubeClient
from raybus.kube.config import load
from raybus.kube.errors import Forbidden
from raybus.runtime.provision import plan
from raybus_cluster_ctrl.build.access import AUTOSCALER_RULES
from support.fake_ray import FakeHead, FakeRay
from support.installed import COMPONENTS, PREFIX, Installation, ended, rules
from support.kube import RealKube, fresh_namespace, install_crds
from support.scenes import Scenes

pytestmark = [pytest.mark.realkube, pytest.mark.timeout(300)]

Right = tuple[str, str, str, str]
"""API group, resource with subresource, verb, name ("" for any)."""
MAX_PAYLOAD = 64 << 10  # of NATS: what is larger is read from Kubernetes
EVERYBODY = ("/version", "/livez", "/readyz", "/healthz")  # what each account may ask, without rights of ours


@pytest.fixture
async def client(realkube: RealKube) -> AsyncIterator[KubeClient]:
    async with KubeClient(load(realkube.kubeconfig), user_agent="raybus-tests") as found:
        await install_crds(found)
        yield found


@pytest.fixture
async def installed(
    client: KubeClient, realkube: RealKube, tmp_path: Path
) -> AsyncIterator[tuple[Installation, FakeRay]]:
    async with contextlib.AsyncExitStack() as stack:
        ray = await stack.enter_async_context(FakeRay(default=FakeHead(on_submit="RUNNING")).serving())
        watched = await stack.enter_async_context(fresh_namespace(client))
        release = await stack.enter_async_context(fresh_namespace(client))
        installation = Installation(
            client,
            realkube.kubeconfig,
            tmp_path,
            release=release,
            watched=watched,
            own_accounts=True,
            max_payload=MAX_PAYLOAD,
            env={"HTTP_PROXY": f"http://{ray.address}"},
        )
        await stack.enter_async_context(installation)
        yield installation, ray


async def test_every_right_is_used_and_nothing_else_is_asked_for(
    installed: tuple[Installation, FakeRay], realkube: RealKube, client: KubeClient
) -> None:
    installation, ray = installed
    scenes = Scenes(client, installation.watched, ray)
    await scenes.play_all()
    held_up = await implied(client, installation.watched)  # while the objects are there
    installation.stop("job_ctrl")
    await installation.add_settings("job-ctrl")
    installation.start("job_ctrl", "--delete-job-with-cluster", "true", "--use-kubernetes-proxy", "true")
    await scenes.play_with_other_settings()
    await provision_again(installation, client)

    log = realkube.audit()
    complaints = {}
    for component in COMPONENTS.values():
        user = f"system:serviceaccount:{installation.release}:raybus-{component}"
        # A watch that has not ended yet has a beginning only.
        own = [entry for entry in log if entry["user"]["username"] == user and entry["stage"].startswith("Response")]
        refused = [entry["requestURI"] for entry in own if entry["responseStatus"]["code"] in (401, 403)]
        given = granted(component)
        used = {fitting(right, given) for right in asked_for(own)}
        complaints[component] = {
            "refused": refused,
            "not granted": sorted(used - given),
            "not used": sorted(given - used - held_up[component]),
            "implied by nothing": sorted(held_up[component] - given),
        }

    told = [f"{who}: {what}: {those}" for who, found in complaints.items() for what, those in found.items() if those]
    assert not told, "\n".join(told)


def granted(component: str) -> set[Right]:
    found = rules(component)
    listed = [*found["cluster"], *found["namespaced"], *found["release"]]
    for conditional in (found["settings"], found["clusterSettings"]):
        listed += [rule for value in conditional.values() for rule in value]
    return {right for rule in listed for right in expanded(rule)}


def expanded(rule: dict[str, Any]) -> Iterable[Right]:
    for group in rule["apiGroups"]:
        for resource in rule["resources"]:
            for verb in rule["verbs"]:
                for name in rule.get("resourceNames") or ("",):
                    yield group, resource, verb, name


def asked_for(entries: list[dict[str, Any]]) -> Iterable[Right]:
    """What requests needed; the watch of one list is one right."""
    for entry in entries:
        target = entry.get("objectRef")
        if target is None:
            assert entry["requestURI"].partition("?")[0] in EVERYBODY, entry["requestURI"]
            continue
        resource = "/".join(filter(None, (target["resource"], target.get("subresource"))))
        yield target.get("apiGroup", ""), resource, entry["verb"], target.get("name", "")


def fitting(right: Right, given: set[Right]) -> Right:
    """The grant that allows it: of any name if there is one, else of this name."""
    group, resource, verb, _ = right
    anything = (group, resource, verb, "")
    return anything if anything in given else right


async def implied(client: KubeClient, namespace: str) -> dict[str, set[Right]]:
    """What no request needs by itself: rights given away in Roles, and what objects that hold up their owner's deletion take."""
    roles = await client.list_all(kinds.ROLE, namespace, label_selector=labels.CLUSTER)
    given = {right for role in roles for rule in role["rules"] for right in expanded(rule)}
    owners: set[str] = set()
    for kind in (kinds.POD, kinds.SERVICE, kinds.JOB, kinds.RAYCLUSTER, kinds.ROLE, kinds.INGRESS, kinds.SECRET):
        for obj in await client.list_all(kind, namespace):
            found = obj["metadata"].get("ownerReferences") or ()
            owners |= {one["kind"] for one in found if one.get("blockOwnerDeletion") and one["kind"].startswith("Ray")}
    held_up = {kind: {("ray.io", f"{kind.lower()}s/finalizers", "update", "")} for kind in owners}
    assert given
    assert set(held_up) == {"RayCluster", "RayJob"}
    return {
        "gateway": set(),
        "cluster-ctrl": given | held_up["RayCluster"],
        "job-ctrl": held_up["RayJob"],
        # Applying an object that is not there yet is also to create it.
        "provisioner": {("apiextensions.k8s.io", "customresourcedefinitions", "create", "")},
    }


async def provision_again(installation: Installation, client: KubeClient) -> None:
    """Something is missing in each Secret that is brought up to date, and the definitions are to be replaced."""
    for name in plan.derived():
        key = "GATEWAY_NKEY" if name == "server" else plan.CA_CERTIFICATE
        await client.merge_patch(kinds.SECRET, installation.release, f"{PREFIX}-{name}", {"data": {key: None}})
    again = installation.provision(installation.nats.port, "--crds", "replace")
    await ended(again, installation.folder / "provision.log")


@pytest.mark.parametrize("left_out", [right for rule in AUTOSCALER_RULES for right in expanded(dict(rule))])
async def test_a_right_less_and_autoscalers_cannot_be_given_theirs(
    client: KubeClient, realkube: RealKube, tmp_path: Path, left_out: Right
) -> None:
    """So cluster_ctrl holds what it gives away, and needs no right to give what it has not."""
    wanted = {"rules": [dict(rule) for rule in AUTOSCALER_RULES]}
    has = [
        {"apiGroups": [group], "resources": [resource], "verbs": [verb]}
        for group, resource, verb, _ in sorted(granted("cluster-ctrl") - {left_out})
    ]
    async with fresh_namespace(client) as namespace:
        installation = Installation(client, realkube.kubeconfig, tmp_path, release=namespace, watched=namespace)
        kubeconfig = await installation.account_with("narrow", has)
        async with KubeClient(load(kubeconfig)) as narrow:
            body = {"metadata": {"name": "autoscaler", "namespace": namespace}, **wanted}
            with pytest.raises(Forbidden, match="attempting to grant RBAC permissions not currently held"):
                await narrow.create(kinds.ROLE, body)


async def test_applying_what_is_not_there_takes_the_right_to_create_it(
    client: KubeClient, realkube: RealKube, tmp_path: Path
) -> None:
    has = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "patch"]}]
    async with fresh_namespace(client) as namespace:
        installation = Installation(client, realkube.kubeconfig, tmp_path, release=namespace, watched=namespace)
        kubeconfig = await installation.account_with("narrow", has)
        async with KubeClient(load(kubeconfig)) as narrow:
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new", "namespace": namespace}}
            with pytest.raises(Forbidden, match="cannot create resource"):
                await narrow.apply(kinds.CONFIG_MAP, body, manager="tests")
