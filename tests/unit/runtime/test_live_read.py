"""Fresh reads of a tree: each route asks the API server for its own objects and for no others."""

from __future__ import annotations

from typing import Any

import pytest

from raybus.decide.routes import FULL, POD_STATUS, Route, Via
from raybus.decide.tree import RootKey, Tree
from raybus.domain import kinds, labels
from raybus.kube import errors
from raybus.runtime import live
from support.scripted import Kube, cluster

KEY = RootKey("RayJob", "ns", "j1")
ORIGIN = ((labels.ORIGINATED_FROM_CRD, "RayJob"),)


def route(kind: kinds.Kind, via: Via, **fields: Any) -> Route:
    return Route(root_kind="RayJob", kind=kind, via=via, projection=fields.pop("projection", FULL), **fields)


ROUTES = (
    route(kinds.RAYJOB, Via.ROOT),
    route(kinds.RAYCLUSTER, Via.LABEL, label=labels.ORIGINATED_FROM_NAME, label_equals=ORIGIN),
    route(kinds.JOB, Via.OWNER),
    route(kinds.POD, Via.CLUSTER, projection=POD_STATUS),
    route(kinds.SERVICE, Via.OWNER, selector="app=ray"),
)


def obj(kind: kinds.Kind, name: str, *, owner: str = "", **own_labels: str) -> dict[str, Any]:
    meta: dict[str, Any] = {"namespace": "ns", "name": name, "labels": own_labels}
    if owner:
        meta["ownerReferences"] = [{"kind": "RayJob", "name": owner, "uid": f"uid-{owner}", "controller": True}]
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta}


def of_job(name: str) -> dict[str, str]:
    return {labels.ORIGINATED_FROM_NAME: name, labels.ORIGINATED_FROM_CRD: "RayJob"}


@pytest.fixture
def kube() -> Kube:
    kube = Kube()
    kube.add(obj(kinds.RAYJOB, "j1"))
    kube.add(obj(kinds.RAYCLUSTER, "j1-abcde", **of_job("j1")))
    kube.add(obj(kinds.JOB, "j1", owner="j1"))
    return kube


def names(objects: list[Any]) -> set[str]:
    return {f"{obj['kind']}/{obj['metadata']['name']}" for obj in objects}


async def test_each_route_brings_its_objects(kube: Kube) -> None:
    kube.add(obj(kinds.POD, "p", **{labels.CLUSTER: "j1-abcde"}))
    kube.add(obj(kinds.SERVICE, "s", owner="j1", app="ray"))

    found = await live.read(kube, ROUTES, Tree(key=KEY, root=None))

    assert names(found) == {"RayJob/j1", "RayCluster/j1-abcde", "Job/j1", "Pod/p", "Service/s"}


async def test_selectors_name_the_root_and_the_clusters_just_read(kube: Kube) -> None:
    await live.read(kube, ROUTES, Tree(key=KEY, root=None))

    lists = {what for verb, what in kube.calls if verb == "list"}
    assert f"RayCluster?{labels.ORIGINATED_FROM_CRD}=RayJob,{labels.ORIGINATED_FROM_NAME}=j1" in lists
    assert f"Pod?{labels.CLUSTER} in (j1-abcde)" in lists
    assert "Service?app=ray" in lists


async def test_jobs_are_read_by_name_because_a_namespace_may_hold_thousands(kube: Kube) -> None:
    seen = obj(kinds.JOB, "j1-retry", owner="j1")
    kube.add(seen)
    tree = Tree(key=KEY, root=None, objects=({**seen, "metadata": {**seen["metadata"], "uid": "u"}},))

    found = await live.read(kube, ROUTES, tree)

    assert not [what for verb, what in kube.calls if verb == "list" and what.startswith("Job")]
    assert {"Job/j1", "Job/j1-retry"} <= names(found)


async def test_objects_of_others_are_not_taken(kube: Kube) -> None:
    kube.add(obj(kinds.SERVICE, "theirs", owner="j2", app="ray"))
    kube.add(obj(kinds.RAYCLUSTER, "j2-fghij", **of_job("j2")))

    found = await live.read(kube, ROUTES, Tree(key=KEY, root=None))

    assert names(found) == {"RayJob/j1", "RayCluster/j1-abcde", "Job/j1"}


async def test_a_root_that_is_gone_is_not_there(kube: Kube) -> None:
    kube.objects.clear()

    assert await live.read(kube, ROUTES, Tree(key=KEY, root=cluster("j1"))) == []


async def test_pods_are_not_asked_for_where_there_is_no_cluster() -> None:
    kube = Kube()

    await live.read(kube, ROUTES, Tree(key=KEY, root=None))

    assert not [what for _, what in kube.calls if what.startswith("Pod")]


async def test_a_read_that_fails_is_no_read(kube: Kube) -> None:
    kube.fail["list"] = [errors.NoAnswer("down")]

    with pytest.raises(errors.NoAnswer):
        await live.read(kube, ROUTES, Tree(key=KEY, root=None))
