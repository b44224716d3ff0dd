from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest

from raybus.bus.routing import matches, requirements, roots_of, route_from_json, route_id, route_to_json, trees_of
from raybus.bus.session import Session, decode_session, encode_session
from raybus.decide.routes import FULL, POD_STATUS, Projection, Route, Via
from raybus.decide.tree import RootKey
from raybus.domain import kinds, labels
from support.objects import pod, raycluster, rayjob
from support.routes import CLUSTER_ROUTES, CLUSTERS_OF_JOB, JOB, PODS_BY_CLUSTER, PODS_OF_JOB, SUBMITTERS_OF_JOB

ROUTES = (JOB, CLUSTERS_OF_JOB, SUBMITTERS_OF_JOB, PODS_BY_CLUSTER)
KEY = RootKey("RayJob", "ns", "j")


def job(**owner: Any) -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "namespace": "ns", "uid": "u", "resourceVersion": "1", "ownerReferences": [owner]},
    }


def test_a_root_belongs_to_itself() -> None:
    assert roots_of(JOB, rayjob("j")) == {KEY}
    assert roots_of(JOB, raycluster("j")) == frozenset()


def test_another_group_of_the_same_kind_is_another_kind() -> None:
    assert (
        roots_of(SUBMITTERS_OF_JOB, {**job(kind="RayJob", name="j", controller=True), "apiVersion": "volcano.sh/v1"})
        == frozenset()
    )


def test_by_label() -> None:
    ours = {labels.ORIGINATED_FROM_NAME: "j", labels.ORIGINATED_FROM_CRD: "RayJob"}
    assert roots_of(CLUSTERS_OF_JOB, raycluster("c", **ours)) == {KEY}
    assert (
        roots_of(CLUSTERS_OF_JOB, raycluster("c", **{**ours, labels.ORIGINATED_FROM_CRD: "RayService"})) == frozenset()
    )
    assert roots_of(CLUSTERS_OF_JOB, raycluster("c")) == frozenset()


def test_by_controller_reference_only() -> None:
    assert roots_of(SUBMITTERS_OF_JOB, job(kind="RayJob", name="j", controller=True)) == {KEY}
    assert roots_of(SUBMITTERS_OF_JOB, job(kind="RayJob", name="j")) == frozenset()
    assert roots_of(SUBMITTERS_OF_JOB, job(kind="RayCluster", name="j", controller=True)) == frozenset()


def test_by_the_cluster_that_belongs_to_it() -> None:
    def parents(root_kind: str, namespace: str, cluster: str) -> list[RootKey]:
        return [KEY] if (root_kind, namespace, cluster) == ("RayJob", "ns", "c1") else []

    assert roots_of(PODS_BY_CLUSTER, pod("p", "c1"), parents) == {KEY}
    assert roots_of(PODS_BY_CLUSTER, pod("p", "c2"), parents) == frozenset()
    assert roots_of(PODS_BY_CLUSTER, pod("p", "c1")) == frozenset()


def test_all_trees_of_an_object_with_what_each_wants() -> None:
    pods = Route(root_kind="RayCluster", kind=kinds.POD, via=Via.LABEL, projection=POD_STATUS, label=labels.CLUSTER)
    again = Route(
        root_kind="RayCluster",
        kind=kinds.POD,
        via=Via.LABEL,
        projection=FULL,
        label=labels.CLUSTER,
        selector="ray.io/group",
    )
    found = trees_of((*ROUTES, pods, again), pod("p", "c1", **{"ray.io/group": "w"}), lambda *_: [KEY])
    assert found == {KEY: [POD_STATUS], RootKey("RayCluster", "ns", "c1"): [POD_STATUS, FULL]}


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("", True),
        ("a=1", True),
        ("a==1,b=2", True),
        ("a=2", False),
        ("a!=2", True),
        ("c!=2", True),
        ("a!=1", False),
        ("a in (0, 1)", True),
        ("a in (0),b=2", False),
        ("a notin (0,2)", True),
        ("c notin (1)", True),
        ("a", True),
        ("c", False),
        ("!c", True),
        ("!a", False),
        ("ray.io/x in (y),a", True),
    ],
)
def test_label_selectors_mean_what_kubernetes_says(selector: str, expected: bool) -> None:
    assert matches(selector, {"a": "1", "b": "2", "ray.io/x": "y"}) is expected


@pytest.mark.parametrize("selector", ["a in 1", "a b", "()"])
def test_a_selector_that_cannot_be_read_is_named(selector: str) -> None:
    with pytest.raises(ValueError, match="label selector"):
        requirements(selector)


@pytest.mark.parametrize("route", ROUTES)
def test_routes_survive_json(route: Route) -> None:
    assert route_from_json(orjson.loads(orjson.dumps(route_to_json(route)))) == route


def test_a_session_record_reads_back() -> None:
    session = Session(replica="h-1", version="0.1.0", started="2026-11-29T10:00:00Z", routes=ROUTES)
    assert decode_session(encode_session(session)) == session


def test_a_newer_releases_record_is_read_as_far_as_it_can_be() -> None:
    session = Session(replica="h-1", version="9", started="", routes=(JOB,))
    data = orjson.loads(encode_session(session))
    data["new"] = {}
    data["routes"][0]["new"] = 1
    data["routes"].append({**route_to_json(SUBMITTERS_OF_JOB), "via": "telepathy"})
    read = decode_session(orjson.dumps(data))
    assert (read.routes, read.unreadable) == ((JOB,), 1)


@pytest.mark.parametrize("body", [b"1", b"[]", b"", b"{"])
def test_what_is_no_record_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_session(body)


def test_a_route_has_one_id_whatever_of_the_bodies_it_shows_and_another_for_other_objects() -> None:
    for route in (*CLUSTER_ROUTES, JOB, CLUSTERS_OF_JOB, PODS_BY_CLUSTER, PODS_OF_JOB):
        assert route_id(replace(route, projection=Projection("other", ("spec",)))) == route_id(route)
        assert route_id(route_from_json(route_to_json(route))) == route_id(route)
        for change in ({"selector": "a=b"}, {"root_kind": "RayService"}, {"label_equals": (("a", "b"),)}):
            assert route_id(replace(route, **change)) != route_id(route)
    assert route_id(PODS_OF_JOB) == "4ef0a2025a38", "ids are compared between releases: they stay"
