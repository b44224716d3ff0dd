"""What a head needs beside itself."""

from __future__ import annotations

import pytest

from raybus.decide.actions import CreateAuthSecret, CreateIngress, CreatePod, CreateServiceAccount
from support.clusters import Kubernetes, actions, cluster

TEMPLATE = {"spec": {"containers": [{"name": "ray-head"}]}}


def _made(root):
    plan = Kubernetes(root).decide()
    return [type(action).__name__ for action in plan.steps[0]], plan


def test_the_autoscalers_rights_come_before_the_head():
    first, plan = _made(cluster(enableInTreeAutoscaling=True))
    assert first == ["CreateServiceAccount", "CreateRole", "CreateRoleBinding"]
    assert len(plan.steps) == 2
    assert actions(plan, CreatePod)[0].body["spec"]["serviceAccountName"] == "demo"


def test_an_account_of_the_users_own_is_not_made():
    template = {"spec": {**TEMPLATE["spec"], "serviceAccountName": "mine"}}
    first, plan = _made(cluster(enableInTreeAutoscaling=True, headGroupSpec={"template": template}))
    assert first == ["CreateRole", "CreateRoleBinding"]
    assert plan.steps[0][1].body["subjects"] == [{"kind": "ServiceAccount", "name": "mine", "namespace": "ns1"}]


@pytest.mark.parametrize(
    ("auth", "made"),
    [
        ({"mode": "token"}, True),
        ({}, True),
        ({"mode": "disabled"}, False),
        ({"mode": "token", "secretName": "own"}, False),
        (None, False),
    ],
)
def test_a_token_is_made_where_none_is_given(auth, made):
    plan = Kubernetes(cluster(authOptions=auth, rayVersion="2.52.0")).decide()
    assert bool(actions(plan, CreateAuthSecret)) is made
    assert "stringData" not in str(plan)


def test_with_a_head_nothing_is_made_again():
    world = Kubernetes(cluster(enableInTreeAutoscaling=True, authOptions={"mode": "token"}, rayVersion="2.52.0"))
    world.settle()
    assert world.decide().actions == ()
    world.delete(*world.names("headgroup"))
    assert actions(world.decide(), CreateServiceAccount)


def test_ingress_options():
    options = {"host": "ray.example", "path": "/ray", "pathType": "Exact", "tls": [{"secretName": "s"}]}
    head = {"template": TEMPLATE, "enableIngress": True, "ingressOptions": options}
    root = cluster(headGroupSpec=head)
    root["metadata"]["annotations"] = {"kubernetes.io/ingress.class": "nginx", "a": "b"}
    (ingress,) = actions(Kubernetes(root).decide(), CreateIngress)
    assert ingress.body["metadata"]["annotations"] == {"a": "b"}
    assert ingress.body["spec"]["ingressClassName"] == "nginx"
    assert ingress.body["spec"]["tls"] == options["tls"]
    (rule,) = ingress.body["spec"]["rules"]
    assert rule["host"] == "ray.example"
    (path,) = rule["http"]["paths"]
    assert (path["path"], path["pathType"]) == ("/ray", "Exact")
    assert path["backend"]["service"] == {"name": "demo-head-svc", "port": {"number": 8265}}


def test_the_ingress_leads_to_the_port_called_dashboard():
    container = {"name": "h", "ports": [{"name": "dashboard", "containerPort": 9999}]}
    head = {"template": {"spec": {"containers": [container]}}, "enableIngress": True}
    (ingress,) = actions(Kubernetes(cluster(headGroupSpec=head)).decide(), CreateIngress)
    assert ingress.body["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"]["port"] == {"number": 9999}
