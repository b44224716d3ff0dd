"""The built-in controllers at work, as their effect is seen through the API of localkube and of a real kube-apiserver."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime
from typing import Any

import pytest

from raybus.decide.tree import RootKey
from raybus.domain.kinds import (
    CONFIG_MAP,
    CRD,
    ENDPOINT_SLICE,
    ENDPOINTS,
    EVENT,
    JOB,
    NAMESPACE,
    NODE,
    POD,
    SERVICE,
    SERVICE_ACCOUNT,
    Kind,
)
from raybus.kube import errors
from raybus.kube.client import KubeClient
from raybus_localkube.controllers.accounts import Accounts
from raybus_localkube.controllers.controller import Keys
from raybus_localkube.controllers.manager import Manager
from raybus_localkube.controllers.run import running
from raybus_localkube.controllers.work import Json, Work

Object = dict[str, Any]
GONE = "gone"


@pytest.fixture
async def kube(bare: KubeClient) -> AsyncIterator[KubeClient]:
    """A client of a server with all built-in controllers."""
    async with running(bare, root_ca="PEM") as manager:
        await asyncio.wait_for(manager.started.wait(), 20)
        yield bare


@pytest.fixture
async def ns(bare: KubeClient) -> AsyncIterator[str]:
    """A namespace with a service account, as admission of a real server wants it before the first pod."""
    name = f"ctl-{secrets.token_hex(4)}"
    await bare.create(NAMESPACE, {"metadata": {"name": name}})
    account = {"metadata": {"name": "default", "namespace": name}}
    with contextlib.suppress(errors.AlreadyExists):
        await bare.create(SERVICE_ACCOUNT, account)
    yield name
    await bare.delete(NAMESPACE, None, name)


async def eventually(read: Callable[[], Awaitable[Any]], expected: Callable[[Any], bool], within_s: float = 20) -> Any:
    """What `read` gives once it is as expected; an object that is not there reads as GONE."""
    deadline = asyncio.get_running_loop().time() + within_s
    while True:
        try:
            found = await read()
        except errors.NotFound:
            found = GONE
        if expected(found):
            return found
        assert asyncio.get_running_loop().time() < deadline, f"after {within_s} s still {found}"
        await asyncio.sleep(0.05)


async def gone(client: KubeClient, kind: Kind, namespace: str | None, name: str) -> None:
    await eventually(lambda: client.get(kind, namespace, name), lambda found: found == GONE)


def owner(kind: Kind, obj: Object, *, block: bool = True) -> Object:
    meta = obj["metadata"]
    reference = {"apiVersion": kind.api_version, "kind": kind.kind, "name": meta["name"], "uid": meta["uid"]}
    return reference | ({"blockOwnerDeletion": True} if block else {})


async def config_map(client: KubeClient, namespace: str, name: str, *owners: Object, **metadata: Any) -> Object:
    meta = {"name": name, "namespace": namespace, **metadata} | ({"ownerReferences": list(owners)} if owners else {})
    return await client.create(CONFIG_MAP, {"metadata": meta})


async def pod(client: KubeClient, namespace: str, name: str, *, node: str = "", **metadata: Any) -> Object:
    spec: Object = {"containers": [{"name": "main", "image": "example/app"}], "automountServiceAccountToken": False}
    if node:
        spec["nodeName"] = node
    return await client.create(POD, {"metadata": {"name": name, "namespace": namespace, **metadata}, "spec": spec})


def job(name: str = "j", **spec: Any) -> Object:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "example/app"}]}}
    return {"metadata": {"name": name}, "spec": {"template": template, **spec}}


async def pods_of(client: KubeClient, namespace: str) -> list[Object]:
    return await client.list_all(POD, namespace)


async def end_pod(client: KubeClient, found: Object, phase: str) -> None:
    meta = found["metadata"]
    status = {"status": {"phase": phase}}
    await client.merge_patch(POD, meta["namespace"], meta["name"], status, subresource="status")


def conditions(found: Any) -> list[str]:
    if found == GONE:
        return []
    return [each["type"] for each in found["status"].get("conditions") or () if each["status"] == "True"]


# --- garbage collector


async def test_dependents_follow_their_owner(kube: KubeClient, ns: str) -> None:
    top = await config_map(kube, ns, "top")
    middle = await config_map(kube, ns, "middle", owner(CONFIG_MAP, top))
    await config_map(kube, ns, "leaf", owner(CONFIG_MAP, middle))
    await kube.delete(CONFIG_MAP, ns, "top")
    await gone(kube, CONFIG_MAP, ns, "leaf")


async def test_foreground_deletion_waits_for_what_blocks_it(kube: KubeClient, ns: str) -> None:
    top = await config_map(kube, ns, "top")
    await pod(kube, ns, "slow", node="elsewhere", ownerReferences=[owner(CONFIG_MAP, top)])
    await config_map(kube, ns, "quick", owner(CONFIG_MAP, top))
    await kube.delete(CONFIG_MAP, ns, "top", propagation="Foreground")
    await gone(kube, CONFIG_MAP, ns, "quick")
    slow = await eventually(lambda: kube.get(POD, ns, "slow"), lambda found: "deletionTimestamp" in found["metadata"])
    waiting = await kube.get(CONFIG_MAP, ns, "top")
    assert waiting["metadata"]["finalizers"] == ["foregroundDeletion"]
    await kube.delete(POD, ns, "slow", uid=slow["metadata"]["uid"], grace_seconds=0)
    await gone(kube, CONFIG_MAP, ns, "top")


async def test_orphans_stay(kube: KubeClient, ns: str) -> None:
    top = await config_map(kube, ns, "top")
    await config_map(kube, ns, "leaf", owner(CONFIG_MAP, top))
    await kube.delete(CONFIG_MAP, ns, "top", propagation="Orphan")
    await gone(kube, CONFIG_MAP, ns, "top")
    leaf = await kube.get(CONFIG_MAP, ns, "leaf")
    assert "ownerReferences" not in leaf["metadata"]


async def test_object_with_an_owner_that_never_was(kube: KubeClient, ns: str) -> None:
    never = {"metadata": {"name": "never", "uid": "b7c0fd3c-0000-4000-8000-000000000000"}}
    await config_map(kube, ns, "leaf", owner(CONFIG_MAP, never))
    await gone(kube, CONFIG_MAP, ns, "leaf")


async def test_owner_of_a_kind_that_came_later_and_went(kube: KubeClient, ns: str) -> None:
    group = f"g{secrets.token_hex(3)}.example.com"
    kind = Kind(group, "v1", "Thing", "things")
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    names = {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    spec = {"group": group, "names": names, "scope": "Namespaced", "versions": [version]}
    await kube.create(CRD, {"metadata": {"name": f"things.{group}"}, "spec": spec})
    await eventually(lambda: kube.list_all(kind, ns), lambda found: found == [])
    thing = await kube.create(
        kind, {"apiVersion": kind.api_version, "kind": "Thing", "metadata": {"name": "t", "namespace": ns}}
    )
    await config_map(kube, ns, "first", owner(kind, thing))
    await config_map(kube, ns, "second", owner(kind, thing))
    await kube.merge_patch(CONFIG_MAP, ns, "first", {"data": {"seen": "yes"}})
    await kube.delete(kind, ns, "t")
    await gone(kube, CONFIG_MAP, ns, "first")
    await gone(kube, CONFIG_MAP, ns, "second")
    other = await kube.create(
        kind, {"apiVersion": kind.api_version, "kind": "Thing", "metadata": {"name": "u", "namespace": ns}}
    )
    await config_map(kube, ns, "third", owner(kind, other))
    await kube.delete(CRD, None, f"things.{group}")
    await gone(kube, CRD, None, f"things.{group}")


async def test_owner_that_went_while_the_controllers_were_away(bare: KubeClient, ns: str) -> None:
    top = await config_map(bare, ns, "top")
    await config_map(bare, ns, "leaf", owner(CONFIG_MAP, top))
    async with running(bare) as manager:
        await asyncio.wait_for(manager.started.wait(), 20)
        assert (await bare.get(CONFIG_MAP, ns, "leaf"))["metadata"]["name"] == "leaf"
    await bare.delete(CONFIG_MAP, ns, "top")
    async with running(bare):
        await gone(bare, CONFIG_MAP, ns, "leaf")


# --- jobs


async def test_job_runs_to_its_end_and_is_cleaned_up(kube: KubeClient, ns: str) -> None:
    await kube.create(JOB, job(ttlSecondsAfterFinished=2), namespace=ns)
    (found,) = await eventually(lambda: pods_of(kube, ns), lambda pods: len(pods) == 1)
    assert found["metadata"]["finalizers"] == ["batch.kubernetes.io/job-tracking"]
    await eventually(lambda: kube.get(JOB, ns, "j"), lambda found: found["status"].get("active") == 1)
    await end_pod(kube, found, "Succeeded")
    done = await eventually(lambda: kube.get(JOB, ns, "j"), lambda found: "Complete" in conditions(found))
    assert conditions(done) == ["SuccessCriteriaMet", "Complete"]
    assert done["status"]["succeeded"] == 1
    events = await eventually(lambda: kube.list_all(EVENT, ns), lambda events: len(events) >= 2)
    assert {"SuccessfulCreate", "Completed"} <= {event["reason"] for event in events}
    await gone(kube, JOB, ns, "j")
    await eventually(lambda: pods_of(kube, ns), lambda pods: pods == [])


async def test_failed_job(kube: KubeClient, ns: str) -> None:
    await kube.create(JOB, job(backoffLimit=0), namespace=ns)
    (found,) = await eventually(lambda: pods_of(kube, ns), lambda pods: len(pods) == 1)
    await end_pod(kube, found, "Failed")
    done = await eventually(lambda: kube.get(JOB, ns, "j"), lambda found: "Failed" in conditions(found))
    assert conditions(done) == ["FailureTarget", "Failed"]
    assert done["status"]["failed"] == 1


async def test_job_deleted_in_the_foreground_waits_for_its_pods(kube: KubeClient, ns: str) -> None:
    await kube.create(JOB, job(), namespace=ns)
    (found,) = await eventually(lambda: pods_of(kube, ns), lambda pods: len(pods) == 1)
    name = found["metadata"]["name"]
    target = {"target": {"kind": "Node", "name": "elsewhere"}, "metadata": {"name": name}}
    await kube.request("POST", POD.path(ns, name, "binding"), body={"apiVersion": "v1", "kind": "Binding", **target})
    await kube.delete(JOB, ns, "j", propagation="Foreground")
    await eventually(lambda: kube.get(POD, ns, name), lambda pod: "deletionTimestamp" in pod["metadata"])
    assert (await kube.get(JOB, ns, "j"))["metadata"]["finalizers"] == ["foregroundDeletion"]
    await kube.delete(POD, ns, name, grace_seconds=0)
    await gone(kube, JOB, ns, "j")
    assert await pods_of(kube, ns) == []


async def test_pods_are_made_once_though_controllers_die(bare: KubeClient, ns: str) -> None:
    await bare.create(JOB, job(parallelism=5, completions=5), namespace=ns)
    for _ in range(5):
        async with running(bare, ["jobs"]):
            await asyncio.sleep(0.15)
    async with running(bare, ["jobs"]):
        await eventually(lambda: bare.get(JOB, ns, "j"), lambda found: found["status"].get("active") == 5)
        pods = await pods_of(bare, ns)
        assert len(pods) == 5
        for each in pods:
            await end_pod(bare, each, "Succeeded")
        await eventually(lambda: bare.get(JOB, ns, "j"), lambda found: "Complete" in conditions(found))
        for each in pods:
            await bare.delete(POD, ns, each["metadata"]["name"], grace_seconds=0)


# --- namespaces, accounts


async def test_namespace_is_furnished_and_emptied(kube: KubeClient) -> None:
    name = f"ctl-{secrets.token_hex(4)}"
    await kube.create(NAMESPACE, {"metadata": {"name": name}})
    await eventually(lambda: kube.get(SERVICE_ACCOUNT, name, "default"), lambda found: found != GONE)
    bundle = await eventually(lambda: kube.get(CONFIG_MAP, name, "kube-root-ca.crt"), lambda found: found != GONE)
    assert bundle["data"] == {"ca.crt": "PEM"}
    await config_map(kube, name, "held", finalizers=["example.com/hold"])
    await kube.create(JOB, job(), namespace=name)
    await eventually(lambda: pods_of(kube, name), lambda pods: len(pods) == 1)
    await kube.delete(NAMESPACE, None, name)
    waiting = await eventually(
        lambda: kube.get(NAMESPACE, None, name), lambda found: "NamespaceFinalizersRemaining" in conditions(found)
    )
    assert waiting["status"]["phase"] == "Terminating"
    await eventually(lambda: pods_of(kube, name), lambda pods: pods == [])
    await kube.merge_patch(CONFIG_MAP, name, "held", {"metadata": {"finalizers": None}})
    await gone(kube, NAMESPACE, None, name)


async def test_default_account_comes_back(kube: KubeClient, ns: str) -> None:
    first = await eventually(lambda: kube.get(SERVICE_ACCOUNT, ns, "default"), lambda found: found != GONE)
    await kube.delete(SERVICE_ACCOUNT, ns, "default")
    uid = first["metadata"]["uid"]
    await eventually(
        lambda: kube.get(SERVICE_ACCOUNT, ns, "default"),
        lambda found: found != GONE and found["metadata"]["uid"] != uid,
    )


# --- endpoints


async def test_endpoints_follow_pods(kube: KubeClient, ns: str) -> None:
    node = f"node-{secrets.token_hex(3)}"
    await kube.create(NODE, {"metadata": {"name": node}})
    spec = {"selector": {"app": "web"}, "ports": [{"name": "http", "port": 80}]}
    await kube.create(SERVICE, {"metadata": {"name": "web", "namespace": ns}, "spec": spec})
    await pod(kube, ns, "a", node=node, labels={"app": "web"})
    ready = [{"type": "Ready", "status": "True"}]
    status = {"phase": "Running", "podIP": "10.1.1.1", "podIPs": [{"ip": "10.1.1.1"}], "conditions": ready}
    await kube.merge_patch(POD, ns, "a", {"status": status}, subresource="status")

    async def addresses() -> list[str]:
        found = await kube.list_all(ENDPOINT_SLICE, ns, label_selector="kubernetes.io/service-name=web")
        return [address for each in found for end in each.get("endpoints") or () for address in end["addresses"]]

    await eventually(addresses, lambda found: found == ["10.1.1.1"])
    legacy = await eventually(
        lambda: kube.get(ENDPOINTS, ns, "web"), lambda found: found != GONE and found.get("subsets")
    )
    assert legacy["subsets"][0]["addresses"][0]["ip"] == "10.1.1.1"
    await kube.delete(POD, ns, "a", grace_seconds=0)
    await eventually(addresses, lambda found: found == [])
    await kube.delete(SERVICE, ns, "web")
    await eventually(lambda: kube.list_all(ENDPOINT_SLICE, ns), lambda found: found == [])
    await gone(kube, ENDPOINTS, ns, "web")
    await kube.delete(NODE, None, node)


# --- the loop itself


async def test_rest_brings_no_request(bare: KubeClient, ns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    request_bytes = bare.request_bytes

    async def counting(method: str, path: str, **more: Any) -> bytes:
        asked.append(f"{method} {path}")
        return await request_bytes(method, path, **more)

    await bare.create(JOB, job(suspend=True), namespace=ns)
    async with running(bare) as manager:
        await asyncio.wait_for(manager.started.wait(), 20)
        await eventually(lambda: bare.get(JOB, ns, "j"), lambda found: conditions(found) == ["Suspended"])
        await asyncio.sleep(2)
        monkeypatch.setattr(bare, "request_bytes", counting)
        await asyncio.sleep(3)
        assert asked == []


class Broken(Accounts):
    """Fails over one namespace, and cannot read one config map."""

    def __init__(self, bad: str) -> None:
        super().__init__()
        self._bad = bad

    def changed(self, kind: Kind, obj: Json) -> Keys:
        if kind == CONFIG_MAP and obj["metadata"]["name"] == self._bad:
            raise ZeroDivisionError
        return super().changed(kind, obj)

    def decide(self, key: RootKey, now: datetime) -> Work:
        if key.namespace == self._bad:
            raise ZeroDivisionError
        return super().decide(key, now)


async def test_mistake_in_one_decision_stops_no_other(bare: KubeClient, caplog: pytest.LogCaptureFixture) -> None:
    bad, good = f"bad-{secrets.token_hex(3)}", f"good-{secrets.token_hex(3)}"
    manager = Manager(bare, [Broken(bad)])
    task = asyncio.create_task(manager.run())
    try:
        await config_map(bare, "default", bad)
        for name in (bad, good):
            await bare.create(NAMESPACE, {"metadata": {"name": name}})
        await eventually(lambda: bare.get(SERVICE_ACCOUNT, good, "default"), lambda found: found != GONE)
        await eventually(
            _told(caplog), lambda told: "decision about" in told and f"cannot read ConfigMap {bad}" in told
        )
        assert manager.alive
    finally:
        task.cancel()
        await bare.delete(CONFIG_MAP, "default", bad)
        for name in (bad, good):
            await bare.delete(NAMESPACE, None, name)


def _told(caplog: pytest.LogCaptureFixture) -> Callable[[], Awaitable[str]]:
    async def read() -> str:
        return caplog.text

    return read
