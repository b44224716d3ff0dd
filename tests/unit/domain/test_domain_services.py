from __future__ import annotations

from raybus.domain import services

OWNER = {"kind": "RayCluster", "name": "demo", "uid": "u"}
SELECTOR = {
    "ray.io/cluster": "demo",
    "ray.io/node-type": "head",
    "ray.io/identifier": "demo-head",
    "app.kubernetes.io/name": "kuberay",
    "app.kubernetes.io/created-by": "kuberay-operator",
}


def _spec(ports=None, **head):
    container = {"name": "h"} | ({"ports": ports} if ports is not None else {})
    return {"headGroupSpec": {"template": {"spec": {"containers": [container]}}, **head}}


def _build(spec, **options):
    return services.head_service("demo", "ns1", spec, OWNER, **options)


def test_without_declared_ports_the_usual_ones_are_served_headless():
    service = _build(_spec())
    assert service["metadata"] == {
        "name": "demo-head-svc", "namespace": "ns1", "labels": SELECTOR, "ownerReferences": [OWNER],
    }  # fmt: skip
    assert service["spec"]["selector"] == SELECTOR
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert service["spec"]["ports"] == [
        {"name": "client", "port": 10001, "appProtocol": "tcp"},
        {"name": "dashboard", "port": 8265, "appProtocol": "tcp"},
        {"name": "gcs-server", "port": 6379, "appProtocol": "tcp"},
        {"name": "metrics", "port": 8080, "appProtocol": "tcp"},
        {"name": "serve", "port": 8000, "appProtocol": "tcp"},
    ]


def test_declared_ports_plus_metrics_unnamed_ones_by_number():
    service = _build(_spec([{"containerPort": n} for n in (6379, 8265, 10001)] + [{"name": "x", "containerPort": 1}]))
    assert [(p["name"], p["port"]) for p in service["spec"]["ports"]] == [
        ("10001-port", 10001), ("6379-port", 6379), ("8265-port", 8265), ("metrics", 8080), ("x", 1),
    ]  # fmt: skip


def test_other_types_and_the_setting_are_not_headless():
    assert "clusterIP" not in _build(_spec(serviceType="NodePort"))["spec"]
    assert "clusterIP" not in _build(_spec(), cluster_ip=True)["spec"]
    assert _build(_spec(serviceType="ClusterIP"))["spec"]["clusterIP"] == "None"


def test_only_the_app_name_follows_an_override():
    spec = _spec()
    spec["headGroupSpec"]["template"]["metadata"] = {
        "labels": {"app.kubernetes.io/name": "mine", "ray.io/identifier": "lost"}
    }
    assert _build(spec)["spec"]["selector"] == SELECTOR | {"app.kubernetes.io/name": "mine"}


def test_a_given_head_service_keeps_what_is_the_users():
    given = {
        "metadata": {
            "name": "own",
            "namespace": "elsewhere",
            "labels": {"a": "b", "ray.io/cluster": "other"},
            "annotations": {"k": "user", "l": "user"},
        },
        "spec": {"selector": {"x": "y"}, "type": "LoadBalancer", "ports": [{"name": "mine", "port": 1}]},
    }
    service = _build(_spec(headService=given, serviceType="NodePort") | {"headServiceAnnotations": {"k": "cluster"}})
    assert service["metadata"]["name"] == "own"
    assert service["metadata"]["namespace"] == "ns1"
    assert service["metadata"]["labels"] == {"a": "b"} | SELECTOR
    assert service["metadata"]["annotations"] == {"k": "cluster", "l": "user"}
    assert service["spec"]["selector"] == SELECTOR
    assert service["spec"]["type"] == "LoadBalancer"
    assert "clusterIP" not in service["spec"]
    assert [port["name"] for port in service["spec"]["ports"]][:2] == ["mine", "client"]


def test_an_empty_head_service_is_not_headless():
    service = _build(_spec(headService={}))
    assert service["metadata"]["name"] == "demo-head-svc"
    assert "clusterIP" not in service["spec"]


def test_endpoints_prefer_node_ports_and_skip_unnamed_ones():
    ports = [
        {"name": "a", "port": 1, "targetPort": 2, "nodePort": 30000},
        {"name": "b", "port": 1, "targetPort": "http"},
        {"port": 5, "targetPort": 5},
    ]
    assert services.endpoints({"spec": {"ports": ports}}) == {"a": "30000", "b": "http"}
