"""The plain manifests: pods under `restricted`, no Secrets and no definitions in them, rights where they belong. Needs no Helm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from support.podsecurity import complaints, pod_of

FOLDER = Path(__file__).resolve().parents[3] / "deploy" / "manifests"
FILES = sorted(path.name for path in FOLDER.glob("*.yaml"))


def manifests(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FOLDER / name).read_text()))


def test_there_are_both() -> None:
    assert FILES == ["raybus-namespaced.yaml", "raybus.yaml"]


@pytest.mark.parametrize("name", FILES)
def test_pods_are_restricted(name: str) -> None:
    pods = {each["metadata"]["name"]: pod for each in manifests(name) if (pod := pod_of(each)) is not None}
    assert len(pods) == 5
    assert {who: said for who, pod in pods.items() if (said := complaints(pod))} == {}


@pytest.mark.parametrize("name", FILES)
def test_the_namespace_comes_first_and_nothing_stands_outside_of_it(name: str) -> None:
    first, *others = manifests(name)
    assert (first["kind"], first["metadata"]["name"]) == ("Namespace", "raybus-system")
    watched = {"default"} if "namespaced" in name else set()
    for each in others:
        assert each["kind"] not in ("Secret", "CustomResourceDefinition")
        assert each["kind"].startswith("ClusterRole") or each["metadata"]["namespace"] in {"raybus-system", *watched}


def test_with_a_namespace_nothing_but_identity_coexistence_and_definitions_is_cluster_wide() -> None:
    allowed = {"namespaces", "leases", "customresourcedefinitions"}
    for each in manifests("raybus-namespaced.yaml"):
        if each["kind"] == "ClusterRole":
            assert {resource for rule in each["rules"] for resource in rule["resources"]} <= allowed


@pytest.mark.parametrize("name", FILES)
def test_tokens_are_mounted_where_they_are_needed_and_nowhere_else(name: str) -> None:
    mounts = {
        each["metadata"]["labels"]["app.kubernetes.io/component"]: pod["automountServiceAccountToken"]
        for each in manifests(name)
        if (pod := pod_of(each)) is not None
    }
    assert mounts == {"gateway": True, "cluster-ctrl": True, "job-ctrl": True, "provisioner": True, "nats": False}
    accounts = [each for each in manifests(name) if each["kind"] == "ServiceAccount"]
    assert all(each["automountServiceAccountToken"] is False for each in accounts)
