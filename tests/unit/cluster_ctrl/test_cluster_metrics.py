"""KubeRay's metrics about RayClusters, as a scrape shows them."""

from __future__ import annotations

from typing import Any

import pytest

from raybus.decide.actions import PatchRayClusterStatus
from raybus.decide.outcome import Outcome, Result
from raybus.observe.metrics import ServiceMetrics
from raybus_cluster_ctrl import metrics
from support.trees import Trees


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
    metrics.watch(service, Trees(*roots))
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
    there = Trees(a_cluster("c1"), a_cluster("c2"))
    service = ServiceMetrics("test")
    metrics.watch(service, there)
    assert b'name="c1"' in service.render()
    there.found.pop(0)
    assert b'name="c1"' not in service.render()


def written(before: str, after: str, result: Result = Result.DONE) -> Outcome:
    action = PatchRayClusterStatus(
        namespace="ns",
        name="c",
        uid="uid-c",
        status=a_cluster("c", after)["status"],
        previous=a_cluster("c", before).get("status", {}),
        resource_version="1",
        reason="its pods are ready",
    )
    return Outcome(action=action, result=result)


@pytest.mark.parametrize(
    ("outcome", "root", "expected"),
    [
        (written("", "True"), a_cluster("c"), 90.0),
        (written("False", "True"), a_cluster("c"), 90.0),
        (written("True", "True"), a_cluster("c"), None),
        (written("False", "False"), a_cluster("c"), None),
        (written("False", "True", Result.CONFLICT), a_cluster("c"), None),
        (written("False", "True"), None, None),
    ],
    ids=["first", "again", "still", "not yet", "not written", "gone"],
)
def test_the_time_until_ready_is_counted_when_it_is_written(
    outcome: Outcome, root: dict[str, Any] | None, expected: float | None
) -> None:
    assert metrics.became_provisioned(outcome, root) == expected

    service = ServiceMetrics("test")
    metrics.count(service)(outcome, root)
    text = service.render().decode()
    assert f"raybus_cluster_provisioning_seconds_count {float(expected is not None)}" in text
    assert f'raybus_cluster_provisioning_seconds_bucket{{le="120.0"}} {float(expected is not None)}' in text
    assert 'raybus_cluster_provisioning_seconds_bucket{le="60.0"} 0.0' in text
