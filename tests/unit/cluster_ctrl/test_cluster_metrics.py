"""KubeRay's metrics about RayClusters, as a scrape shows them."""

from __future__ import annotations

from typing import Any

from raybus.observe.metrics import ServiceMetrics
from raybus_cluster_ctrl import metrics


def a_cluster(name: str, provisioned: str = "", crd: str = "") -> dict[str, Any]:
    meta: dict[str, Any] = {
        "name": name,
        "namespace": "ns",
        "uid": f"uid-{name}",
        "creationTimestamp": "2026-03-01T12:00:00Z",
    }
    if crd:
        meta["labels"] = {"ray.io/originated-from-crd": crd}
    root: dict[str, Any] = {"kind": "RayCluster", "metadata": meta}
    if provisioned:
        root["status"] = {
            "conditions": [
                {"type": "HeadPodReady", "status": "True", "lastTransitionTime": "2026-03-01T12:00:30Z"},
                {"type": "RayClusterProvisioned", "status": provisioned, "lastTransitionTime": "2026-03-01T12:01:30Z"},
            ]
        }
    return root


def scraped(*roots: dict[str, Any]) -> set[str]:
    service = ServiceMetrics("test")
    metrics.watch(service, lambda: roots)
    return {line for line in service.render().decode().splitlines() if line.startswith("kuberay_")}


def test_a_new_cluster() -> None:
    assert scraped(a_cluster("c")) == {
        'kuberay_cluster_info{name="c",namespace="ns",uid="uid-c",owner_kind="None"} 1.0',
        'kuberay_cluster_condition_provisioned{name="c",namespace="ns",uid="uid-c",condition="false"} 1.0',
    }


def test_a_provisioned_cluster_of_a_job() -> None:
    assert scraped(a_cluster("c", "True", crd="RayJob")) == {
        'kuberay_cluster_info{name="c",namespace="ns",uid="uid-c",owner_kind="RayJob"} 1.0',
        'kuberay_cluster_condition_provisioned{name="c",namespace="ns",uid="uid-c",condition="true"} 1.0',
        'kuberay_cluster_provisioned_duration_seconds{name="c",namespace="ns",uid="uid-c"} 90.0',
    }


def test_one_that_is_not_provisioned_any_more_has_no_duration() -> None:
    names = {line.partition("{")[0] for line in scraped(a_cluster("c", "False"))}
    assert "kuberay_cluster_provisioned_duration_seconds" not in names


def test_what_is_gone_is_gone_from_the_metrics() -> None:
    there = [a_cluster("c1"), a_cluster("c2")]
    service = ServiceMetrics("test")
    metrics.watch(service, lambda: there)
    assert b'name="c1"' in service.render()
    there.pop(0)
    assert b'name="c1"' not in service.render()
