"""What is concluded from the reference operator's Lease, its pod and its configuration file."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from raybus.runtime import coexistence
from raybus.runtime.coexistence import ConfigFile, Leader, Watched

NOW = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)
HOLDER = "kuberay-operator-7d9f8-abcde_5b6c9a9e-8d2f-4a43-9c0b-0d1f7c1a2b3c"


def lease(**spec: Any) -> dict[str, Any]:
    whole = {"holderIdentity": HOLDER, "leaseDurationSeconds": 15, "renewTime": "2026-11-30T11:59:58.123456Z"} | spec
    return {"metadata": {"name": "ray-operator-leader", "namespace": "kuberay"}, "spec": whole}


def pod(*args: str, **more: Any) -> dict[str, Any]:
    container = {"name": "kuberay-operator", "command": ["/manager"], "args": list(args)} | more
    return {"metadata": {"name": "x", "namespace": "kuberay"}, "spec": {"containers": [container]}}


def ago(seconds: float) -> str:
    return (NOW - timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


@pytest.mark.parametrize(
    ("spec", "lives"),
    [
        ({}, True),
        ({"renewTime": ago(29)}, True),  # just over its time, and clocks differ
        ({"renewTime": ago(31)}, False),
        ({"renewTime": ago(100), "leaseDurationSeconds": 120}, True),
        ({"renewTime": ago(-300)}, True),  # its clock is ahead of ours
        ({"renewTime": None}, False),
        ({"renewTime": "yesterday"}, False),
        ({"holderIdentity": ""}, False),  # released on its end
        ({"leaseDurationSeconds": None}, True),
    ],
)
def test_a_lease_lives_until_its_time_is_over(spec: dict[str, Any], lives: bool) -> None:
    assert (coexistence.leader(lease(**spec), NOW) is not None) is lives


def test_the_holder_names_its_pod() -> None:
    found = coexistence.leader(lease(), NOW)
    assert found is not None
    assert (found.namespace, found.pod) == ("kuberay", "kuberay-operator-7d9f8-abcde")


ENV = [
    {"name": "NAMES", "value": "a,b"},
    {"name": "HERE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
    {"name": "FAR", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}},
]


@pytest.mark.parametrize(
    ("args", "namespaces"),
    [
        ((), set()),
        (("--enable-leader-election=true",), set()),
        (("--watch-namespace=a,b",), {"a", "b"}),
        (("-watch-namespace", "a"), {"a"}),
        (("--watch-namespace", " a , b "), {"a", "b"}),
        (("--watch-namespace=",), set()),
        (("--watch-namespace=a", "--watch-namespace=b"), {"b"}),
        (("--watch-namespace=$(NAMES)",), {"a", "b"}),
        (("--watch-namespace=$(HERE)",), {"kuberay"}),
        (("--watch-namespace=$(FAR)",), set()),  # unknown: all
        (("--watch-namespace=a", "--config=/etc/op/config.yaml"), set()),  # flags do not count beside a file
    ],
)
def test_what_its_flags_say(args: tuple[str, ...], namespaces: set[str]) -> None:
    assert coexistence.watched(pod(*args, env=ENV), None).namespaces == namespaces


@pytest.mark.parametrize(
    ("text", "namespaces"),
    [
        ("kind: Configuration\nwatchNamespace: a,b\n", {"a", "b"}),
        ("kind: Configuration\n", set()),
        ("- no mapping", set()),
        ("a: [", set()),
        (None, set()),
    ],
)
def test_what_its_configuration_file_says(text: str | None, namespaces: set[str]) -> None:
    assert coexistence.watched(pod("--config", "/etc/op/config.yaml"), text).namespaces == namespaces


def test_a_pod_that_cannot_be_read_counts_as_looking_after_all() -> None:
    assert coexistence.watched(None, None).namespaces == frozenset()


@pytest.mark.parametrize(
    ("mount", "volume", "expected"),
    [
        ({"mountPath": "/etc/op"}, {"configMap": {"name": "cm"}}, ConfigFile(config_map="cm", key="config.yaml")),
        ({"mountPath": "/etc/op/"}, {"configMap": {"name": "cm"}}, ConfigFile(config_map="cm", key="config.yaml")),
        (
            {"mountPath": "/etc/op/config.yaml", "subPath": "config"},
            {"configMap": {"name": "cm"}},
            ConfigFile(config_map="cm", key="config"),
        ),
        (
            {"mountPath": "/etc/op"},
            {"configMap": {"name": "cm", "items": [{"key": "k", "path": "config.yaml"}]}},
            ConfigFile(config_map="cm", key="k"),
        ),
        ({"mountPath": "/etc/op"}, {"emptyDir": {}}, None),
        ({"mountPath": "/etc/operators"}, {"configMap": {"name": "cm"}}, None),
    ],
)
def test_where_its_configuration_file_stands(mount: Any, volume: Any, expected: ConfigFile | None) -> None:
    given = pod("--config=/etc/op/config.yaml", volumeMounts=[{"name": "v", **mount}])
    given["spec"]["volumes"] = [{"name": "v", **volume}]
    assert coexistence.config_file(given) == expected


def test_without_the_flag_there_is_no_configuration_file() -> None:
    assert coexistence.config_file(pod("--watch-namespace=a")) is None


@pytest.mark.parametrize(
    ("ours", "theirs", "both"),
    [
        (set(), set(), set()),
        (set(), {"a"}, {"a"}),
        ({"a"}, set(), {"a"}),
        ({"a", "b"}, {"b", "c"}, {"b"}),
        ({"a"}, {"b"}, None),
    ],
)
def test_overlap(ours: set[str], theirs: set[str], both: set[str] | None) -> None:
    assert coexistence.overlap(frozenset(ours), frozenset(theirs)) == both


def test_the_refusal_names_lease_holder_namespaces_and_remedies() -> None:
    found = Leader(namespace="kuberay", holder=HOLDER, renewed=NOW - timedelta(seconds=3))
    watch = Watched(namespaces=frozenset({"b", "c"}), why="its --watch-namespace")
    text = coexistence.refusal(found, watch, frozenset({"b"}), NOW)
    for word in ("ray-operator-leader", "namespace kuberay", HOLDER, "3 s ago", "namespaces b ", "--namespaces",
                 "--take-over", "Scale the other one to 0", "its --watch-namespace"):  # fmt: skip
        assert word in text
    assert "\n" not in text
    assert "all namespaces" in coexistence.refusal(found, watch, frozenset(), NOW)
