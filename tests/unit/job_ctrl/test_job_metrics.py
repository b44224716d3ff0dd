"""KubeRay's metrics about RayJobs, as a scrape shows them."""

from __future__ import annotations

from typing import Any

import pytest

from raybus.observe.metrics import ServiceMetrics
from raybus_job_ctrl import metrics

START, END = "2026-03-01T12:00:00Z", "2026-03-01T12:02:05Z"


def scraped(**status: Any) -> set[str]:
    root = {"kind": "RayJob", "metadata": {"name": "j", "namespace": "ns", "uid": "u"}, "status": status}
    service = ServiceMetrics("test")
    metrics.watch(service, lambda: [root])
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
