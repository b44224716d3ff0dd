from __future__ import annotations

import pytest

from raybus.domain import identity, names

LONG = "ray-cluster-0000000000000000000000011111111122222233333333333333"


@pytest.mark.parametrize(
    ("prefix", "node_type", "generate", "expected"),
    [
        ("ray-cluster-01", "head", True, "ray-cluster-01-head-"),
        (LONG, "head", False, "ray-cluster-00000000000000000000000111111111222222-head"),
        (LONG + "-group-name", "worker", True, "ray-cluster-00000000000000000000000111111111222222-worker-"),
        ("Demo-GroupA", "worker", True, "demo-groupa-worker-"),
    ],
)
def test_pod_name_keeps_the_front_and_is_lower_case(prefix, node_type, generate, expected):
    assert names.pod_name(prefix, node_type, generate=generate) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            "72fbcc7e-a661-4b18e-ca41-e903-fc3ae634b18e-lazer090scholar-director-s",
            "rca41-e903-fc3ae634b18e-lazer090scholar-director-s",
        ),
        (
            "--------566666--------444433-----------222222----------4444",
            "r6666--------444433-----------222222----------4444",
        ),
        ("short", "short"),
        ("9lives", "rlives"),
    ],
)
def test_check_name_keeps_the_end(given, expected):
    assert names.check_name(given) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("cv-traffic-training-202402090958", "cv-traffic-training-2024020909"),
        ("2-step-cv-training-network-revisited", "r-step-cv-training-network-rev"),
    ],
)
def test_check_route_name_shares_the_label_with_the_namespace(given, expected):
    assert names.check_route_name(given, "development-namespace") == expected


def test_check_label_keeps_63_characters():
    assert names.check_label("x" * 10 + "-" + "y" * 62) == "r" + "y" * 62
    assert names.check_label("plain") == "plain"


def test_service_names():
    assert names.head_service_name("demo", {"headGroupSpec": {}}) == "demo-head-svc"
    assert names.head_service_name("demo", {"headGroupSpec": {"headService": {"metadata": {"name": "own"}}}}) == "own"
    assert names.service_fqdn("demo-head-svc", "ns1") == "demo-head-svc.ns1.svc.cluster.local"
    assert names.service_fqdn("a", "b", "corp") == "a.b.svc.corp"


def _child(uid="uid", group="headgroup", slot=0, host=0, **more):
    return names.child_name("demo-head-", names.Place(uid=uid, group=group, slot=slot, host=host), **more)


def test_child_name_depends_on_everything_stored_and_avoids_taken_ones():
    first = _child()
    assert first == "demo-head-" + identity.suffix("uid", "headgroup", 0, 0, "")
    others = {
        _child(uid="uid2"), _child(group="w"), _child(slot=1), _child(host=1), _child(salt="newest"),
        _child(taken={first}),
    }  # fmt: skip
    assert first not in others
    assert len(others) == 6
    assert first == _child()


@pytest.mark.parametrize("length", [1, 40, 47, 50, 51, 53])
def test_every_child_of_a_valid_name_is_a_dns_label(length):
    cluster = "a" + "1" * (length - 1)
    place = names.Place(uid="u", group="g" * 63, slot=7)
    children = [
        names.head_service_name(cluster, {}),
        names.head_ingress_name(cluster),
        names.auth_secret_name(cluster),
        names.autoscaler_account_name(cluster, {}),
        names.child_name(names.pod_name(cluster, "head", generate=True), place),
        names.child_name(names.pod_name(f"{cluster}-{'g' * 63}", "worker", generate=True), place),
    ]
    assert all(len(child) <= 63 and child[0].isalpha() and child[-1].isalnum() for child in children)
