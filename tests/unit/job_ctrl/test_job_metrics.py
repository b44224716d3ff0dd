"""KubeRay's metrics about RayJobs, as a scrape shows them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, ClassVar

import pytest

from raybus.decide.actions import PatchRayJobStatus
from raybus.decide.outcome import Outcome, Result
from raybus.decide.tree import RootKey
from raybus.observe.metrics import ServiceMetrics
from raybus_job_ctrl import metrics
from support.trees import Trees

START, END = "2026-03-01T12:00:00Z", "2026-03-01T12:02:05Z"
NOW = datetime(2026, 3, 1, 12, 10, 0, tzinfo=UTC)


def scraped(**status: Any) -> set[str]:
    root = {"kind": "RayJob", "metadata": {"name": "j", "namespace": "ns", "uid": "u"}, "status": status}
    service = ServiceMetrics("test")
    metrics.watch(service, Trees(root), lambda: NOW)
    return {line for line in service.render().decode().splitlines() if line.startswith("kuberay_")}


def test_a_new_job() -> None:
    assert scraped() == {
        'kuberay_job_info{name="j",namespace="ns",uid="u"} 1.0',
        'kuberay_job_deployment_status{name="j",namespace="ns",uid="u",deployment_status=""} 1.0',
    }


def test_a_running_job_has_no_duration_yet() -> None:
    assert scraped(jobDeploymentStatus="Running", startTime=START) == {
        'kuberay_job_info{name="j",namespace="ns",uid="u"} 1.0',
        'kuberay_job_deployment_status{name="j",namespace="ns",uid="u",deployment_status="Running"} 1.0',
    }


@pytest.mark.parametrize(
    ("state", "failed", "retries"), [("Complete", 0, 0), ("Complete", 2, 2), ("Failed", 1, 0), ("Failed", 3, 2)]
)
def test_how_long_an_ended_job_took(state: str, failed: int, retries: int) -> None:
    labels = f'name="j",namespace="ns",uid="u",job_deployment_status="{state}",retry_count="{retries}"'
    lines = scraped(jobDeploymentStatus=state, failed=failed, startTime=START, endTime=END)
    assert f"kuberay_job_execution_duration_seconds{{{labels}}} 125.0" in lines


def test_one_that_never_began_has_no_duration() -> None:
    names = {line.partition("{")[0] for line in scraped(jobDeploymentStatus="Failed", endTime=END)}
    assert names == {"kuberay_job_info", "kuberay_job_deployment_status"}


class TestLeftoverClusters:
    """Promise: no job that has ended leaks its cluster silently."""

    CLUSTER: ClassVar[dict[str, Any]] = {
        "kind": "RayCluster",
        "metadata": {"name": "j-abcde", "namespace": "ns", "uid": "c"},
    }

    def count(self, root: dict[str, Any] | None, *kin: dict[str, Any]) -> dict[str, int]:
        trees = Trees()
        if root is None:
            trees.orphan(RootKey("RayJob", "ns", "j"), *kin)
        else:
            trees.add(root, *kin)
        found = metrics.leftover_clusters(trees, NOW)
        assert set(found) == set(metrics.WHYS)
        return {why: number for why, number in found.items() if number}

    def job(self, state: str = "Complete", **spec: Any) -> dict[str, Any]:
        meta = {"name": "j", "namespace": "ns", "uid": "u"}
        status = {"jobDeploymentStatus": state, "endTime": END} if state in ("Complete", "Failed") else {}
        return {"kind": "RayJob", "metadata": meta, "spec": spec, "status": status}

    def test_a_running_job_may_have_its_cluster(self) -> None:
        assert self.count(self.job("Running", shutdownAfterJobFinishes=True), self.CLUSTER) == {}

    def test_one_without_a_cluster(self) -> None:
        assert self.count(self.job(), {"kind": "Pod", "metadata": {"name": "p"}}) == {}

    @pytest.mark.parametrize("state", ["Complete", "Failed"])
    @pytest.mark.parametrize(
        ("spec", "why"),
        [
            ({}, "kept"),
            ({"shutdownAfterJobFinishes": True, "ttlSecondsAfterFinished": 3600}, "ttl"),
            ({"shutdownAfterJobFinishes": True, "ttlSecondsAfterFinished": 435}, "ttl"),  # over for 40 s
            ({"shutdownAfterJobFinishes": True, "ttlSecondsAfterFinished": 405}, "overdue"),  # over for 70 s
            ({"shutdownAfterJobFinishes": True}, "overdue"),
        ],
    )
    def test_one_that_has_ended(self, state: str, spec: dict[str, Any], why: str) -> None:
        assert self.count(self.job(state, **spec), self.CLUSTER) == {why: 1}

    def test_two_clusters_of_one_job_are_two(self) -> None:
        other = {"kind": "RayCluster", "metadata": {"name": "j-fghij", "namespace": "ns", "uid": "d"}}
        assert self.count(self.job(), self.CLUSTER, other) == {"kept": 2}

    @pytest.mark.parametrize(
        ("deleted", "why"), [("", "orphaned"), ("2026-03-01T12:09:30Z", "ttl"), ("2026-03-01T12:08:30Z", "orphaned")]
    )
    def test_one_whose_job_is_gone(self, deleted: str, why: str) -> None:
        meta = self.CLUSTER["metadata"] | ({"deletionTimestamp": deleted} if deleted else {})
        assert self.count(None, {**self.CLUSTER, "metadata": meta}) == {why: 1}


def written(before: str, after: str, result: Result = Result.DONE) -> Outcome:
    action = PatchRayJobStatus(
        namespace="ns",
        name="j",
        uid="u",
        status={"jobDeploymentStatus": after, "startTime": START, "endTime": END},
        previous={"jobDeploymentStatus": before},
        resource_version="1",
        reason="Ray says so",
    )
    return Outcome(action=action, result=result)


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (written("Running", "Complete"), ("Complete", 125.0)),
        (written("Running", "Failed"), ("Failed", 125.0)),
        (written("Complete", "Complete"), None),
        (written("Initializing", "Running"), None),
        (written("Running", "Complete", Result.CONFLICT), None),
    ],
    ids=["complete", "failed", "as before", "not ended", "not written"],
)
def test_the_time_of_a_job_is_counted_when_its_end_is_written(
    outcome: Outcome, expected: tuple[str, float] | None
) -> None:
    assert metrics.has_ended(outcome) == expected

    service = ServiceMetrics("test")
    metrics.count(service)(outcome, None)
    text = service.render().decode()
    state = expected[0] if expected else ""
    line = f'raybus_job_execution_seconds_sum{{job_deployment_status="{state}"}} 125.0'
    assert (line in text) is (expected is not None)
