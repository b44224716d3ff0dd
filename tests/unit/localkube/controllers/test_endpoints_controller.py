"""EndpointSlices and Endpoints as pure machines."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import count
from typing import Any

import pytest

from raybus.domain.kinds import ENDPOINT_SLICE, ENDPOINTS, NODE, POD, SERVICE
from raybus_localkube.controllers.controller import Ref
from raybus_localkube.controllers.endpoints import slices
from raybus_localkube.controllers.endpoints.controller import EndpointSlices, LegacyEndpoints, ServiceController
from raybus_localkube.controllers.work import Call

NOW = datetime(2026, 1, 1, tzinfo=UTC)
VERSIONS = count(1)
Object = dict[str, Any]


def service(name: str = "web", **spec: Any) -> Object:
    spec = {"selector": {"app": "web"}, "ports": [{"port": 80}], **spec}
    return {"metadata": {"name": name, "namespace": "ns", "uid": f"u-{name}", "resourceVersion": "1"}, "spec": spec}


def pod(name: str, *, ready: bool = True, ip: str = "10.0.0.1", phase: str = "Running", **more: Any) -> Object:
    meta = {"name": name, "namespace": "ns", "uid": f"u-{name}", "resourceVersion": str(next(VERSIONS))}
    meta |= {"labels": {"app": "web", "pod": name}} | more.pop("metadata", {})
    status = {"phase": phase, "podIP": ip, "conditions": [{"type": "Ready", "status": "True" if ready else "False"}]}
    return {"metadata": meta, "spec": {"containers": [{"name": "c"}], **more}, "status": status}


class World:
    """A controller; what it writes comes back to it as an object of the server's."""

    def __init__(self, controller: ServiceController) -> None:
        self.controller = controller
        self.kind = ENDPOINT_SLICE if isinstance(controller, EndpointSlices) else ENDPOINTS
        self.objects: dict[str, Object] = {}
        self.writes: list[Call] = []

    def put(self, kind: Any, obj: Object) -> list[str]:
        return [key.name for key in self.controller.changed(kind, obj)]

    def settle(self, name: str = "web") -> list[Object]:
        for _ in range(5):
            work = self.controller.decide(self.controller.key("ns", name), NOW)
            for step in work.steps:
                for call in step:
                    self._do(call)
            if not work.steps:
                return list(self.objects.values())
        raise AssertionError("never at rest")

    def _do(self, call: Call) -> None:
        self.writes.append(call)
        if call.method == "DELETE":
            name = call.path.rpartition("/")[2]
            self.controller.gone(self.kind, Ref(self.objects.pop(name)["metadata"]["uid"], "ns", name))
            return
        assert call.body is not None
        number = str(next(VERSIONS))
        meta = {"uid": f"uid-{number}", **call.body["metadata"], "resourceVersion": number}
        self.objects[meta["name"]] = {**call.body, "metadata": meta}
        self.controller.changed(self.kind, self.objects[meta["name"]])


@pytest.fixture
def world() -> World:
    return World(EndpointSlices())


@pytest.fixture
def legacy() -> World:
    return World(LegacyEndpoints())


def test_ready_pod_stands_in_the_slice(world: World) -> None:
    world.put(NODE, {"metadata": {"name": "n1"}})
    world.put(SERVICE, service())
    assert world.put(POD, pod("a", nodeName="n1")) == ["web"]
    (slice_,) = world.settle()
    assert slice_["endpoints"] == [
        {
            "addresses": ["10.0.0.1"],
            "conditions": {"ready": True, "serving": True, "terminating": False},
            "targetRef": {"kind": "Pod", "namespace": "ns", "name": "a", "uid": "u-a"},
            "nodeName": "n1",
        }
    ]
    assert slice_["ports"] == [{"name": "", "protocol": "TCP", "port": 80}]
    assert slice_["addressType"] == "IPv4"
    assert slice_["metadata"]["labels"] == {
        "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
        "kubernetes.io/service-name": "web",
    }
    (owner,) = slice_["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("Service", "u-web", True)


def test_service_without_pods_has_one_empty_slice(world: World) -> None:
    world.put(SERVICE, service())
    (slice_,) = world.settle()
    assert (slice_["endpoints"], slice_["ports"]) == (None, None)


@pytest.mark.parametrize(
    ("given", "unready_too", "conditions"),
    [
        ({"ready": False}, False, (False, False, False)),
        ({"ready": False}, True, (True, False, False)),
        ({"metadata": {"deletionTimestamp": "t"}}, False, (False, True, True)),
        ({"metadata": {"deletionTimestamp": "t"}}, True, (True, True, True)),
    ],
)
def test_conditions(world: World, given: Any, unready_too: bool, conditions: tuple[bool, bool, bool]) -> None:
    world.put(SERVICE, service(publishNotReadyAddresses=unready_too))
    world.put(POD, pod("a", **given))
    (slice_,) = world.settle()
    (endpoint,) = slice_["endpoints"]
    assert tuple(endpoint["conditions"].values()) == conditions


@pytest.mark.parametrize("given", [pod("a", phase="Succeeded"), pod("a", phase="Failed"), pod("a", ip="")])
def test_pods_that_are_left_out(world: World, given: Object) -> None:
    world.put(SERVICE, service())
    world.put(POD, given)
    assert world.settle()[0]["endpoints"] is None


def test_pod_whose_node_does_not_exist_is_left_out_until_it_does(world: World) -> None:
    world.put(SERVICE, service())
    world.put(POD, pod("a", nodeName="n1"))
    assert world.settle()[0]["endpoints"] is None
    assert world.put(NODE, {"metadata": {"name": "n1"}}) == ["web"]
    assert len(world.settle()[0]["endpoints"]) == 1
    assert [key.name for key in world.controller.gone(NODE, Ref("u", "", "n1"))] == ["web"]
    assert world.settle()[0]["endpoints"] is None


def test_headless_service_names_its_pods(world: World) -> None:
    world.put(SERVICE, service(clusterIP="None"))
    world.put(POD, pod("a", hostname="host", subdomain="web"))
    world.put(POD, pod("b", ip="10.0.0.2", hostname="host", subdomain="other"))
    (slice_,) = world.settle()
    assert [endpoint.get("hostname") for endpoint in slice_["endpoints"]] == ["host", None]
    assert slice_["metadata"]["labels"]["service.kubernetes.io/headless"] == ""


def test_named_ports_are_looked_up_per_pod(world: World) -> None:
    ports = [{"name": "http", "port": 80, "targetPort": "web", "appProtocol": "http"}, {"name": "x", "port": 7}]
    world.put(SERVICE, service(ports=ports))
    for number, name in ((8080, "a"), (9090, "b")):
        containers = [{"name": "c", "ports": [{"name": "web", "containerPort": number}]}]
        world.put(POD, pod(name, containers=containers))
    world.put(POD, pod("none"))
    found = sorted(world.settle(), key=lambda each: each["endpoints"][0]["targetRef"]["name"])
    assert [[port["port"] for port in each["ports"]] for each in found] == [[8080, 7], [9090, 7], [7]]
    assert found[0]["ports"][0] == {"name": "http", "protocol": "TCP", "port": 8080, "appProtocol": "http"}
    world.put(POD, pod("a", phase="Failed"))
    world.put(POD, pod("none", phase="Failed"))
    assert len(world.settle()) == 1


def test_more_pods_than_fit_into_one_slice(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "LIMIT", 2)
    world.put(SERVICE, service())
    for number in range(5):
        world.put(POD, pod(f"p{number}", ip=f"10.0.0.{number}"))
    assert sorted(len(each["endpoints"]) for each in world.settle()) == [1, 2, 2]


def test_only_news_that_endpoints_show_wakes_a_service(world: World) -> None:
    world.put(SERVICE, service())
    world.put(POD, pod("a"))
    assert world.put(POD, pod("a", metadata={"annotations": {"x": "y"}})) == []
    assert world.put(POD, pod("a", ready=False)) == ["web"]


def test_labels_that_stop_matching_wake_the_service(world: World) -> None:
    world.put(SERVICE, service())
    world.put(POD, pod("a"))
    assert world.put(POD, pod("a", metadata={"labels": {"app": "other"}})) == ["web"]
    assert world.settle()[0]["endpoints"] is None


def test_each_service_finds_its_own_pods(world: World) -> None:
    world.put(SERVICE, service("all"))
    world.put(SERVICE, service("one", selector={"app": "web", "pod": "a"}))
    assert set(world.put(POD, pod("a"))) == {"all", "one"}
    assert world.put(POD, pod("b", ip="10.0.0.2")) == ["all"]
    assert len(world.settle("all")[0]["endpoints"]) == 2


@pytest.mark.parametrize("spec", [{"selector": None}, {"selector": {}}, {"type": "ExternalName"}])
def test_services_whose_endpoints_are_not_ours(world: World, legacy: World, spec: Any) -> None:
    for each in (world, legacy):
        each.put(SERVICE, service(**spec))
        assert each.settle() == []


def test_rest_is_quiet_and_foreign_slices_are_left_alone(world: World) -> None:
    world.put(SERVICE, service())
    world.put(POD, pod("a"))
    world.settle()
    before = len(world.writes)
    foreign = {"name": "own", "namespace": "ns", "uid": "f", "resourceVersion": "1"}
    foreign |= {"labels": {"kubernetes.io/service-name": "web"}}
    assert world.put(ENDPOINT_SLICE, {"metadata": foreign, "endpoints": []}) == []
    world.settle()
    assert len(world.writes) == before


def test_slice_that_somebody_changed_is_put_right(world: World) -> None:
    world.put(SERVICE, service())
    world.put(POD, pod("a"))
    (slice_,) = world.settle()
    assert world.put(ENDPOINT_SLICE, {**slice_, "endpoints": []}) == ["web"]
    (repaired,) = world.settle()
    assert len(repaired["endpoints"]) == 1


def test_legacy_object_has_ready_and_unready_apart(legacy: World) -> None:
    legacy.put(SERVICE, service(ports=[{"name": "b", "port": 9}, {"name": "a", "port": 7}]))
    legacy.put(POD, pod("a"))
    legacy.put(POD, pod("b", ready=False, ip="10.0.0.2"))
    legacy.put(POD, pod("c", ip="10.0.0.3", metadata={"deletionTimestamp": "t"}))
    (endpoints,) = legacy.settle()
    (subset,) = endpoints["subsets"]
    assert [each["ip"] for each in subset["addresses"]] == ["10.0.0.1"]
    assert [each["ip"] for each in subset["notReadyAddresses"]] == ["10.0.0.2"]
    assert subset["ports"] == [
        {"name": "a", "protocol": "TCP", "port": 7},
        {"name": "b", "protocol": "TCP", "port": 9},
    ]


def test_legacy_object_goes_with_its_service_unless_it_is_not_ours(legacy: World) -> None:
    legacy.put(SERVICE, service())
    legacy.settle()
    assert [key.name for key in legacy.controller.gone(SERVICE, Ref("u-web", "ns", "web"))] == ["web"]
    assert legacy.settle() == []
    foreign = {"metadata": {"name": "web", "namespace": "ns", "uid": "f", "resourceVersion": "1"}, "subsets": []}
    legacy.put(ENDPOINTS, foreign)
    legacy.writes.clear()
    legacy.settle()
    assert legacy.writes == []
