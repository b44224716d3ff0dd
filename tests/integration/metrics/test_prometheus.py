"""A real Prometheus scrapes gateway, cluster_ctrl and job_ctrl while a RayCluster and a RayJob live and go."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from raybus.domain import kinds, times
from raybus.observe.metrics import Described
from support.chaos import World, cluster, group, job, playing
from support.operators import Operator
from support.prometheus import ROOT, Prometheus, promtool
from support.scripts import module

pytestmark = [pytest.mark.kube, pytest.mark.timeout(240)]

SERVICES = ("gateway", "cluster_ctrl", "job_ctrl")
OF_TARGETS = {"job", "instance", "namespace", "__name__"}
NOTHING_TO_SHOW = ("Not provisioned", "Failed")  # where all is well
OURS = '{__name__=~"(raybus|rest_client|process)_.*"}'


def described() -> dict[str, Described]:
    sections = module(ROOT / "docs" / "generate.py").described().values()
    return {each.name: each for section in sections for each in section}


@dataclass
class Scene:
    world: World
    operator: Operator
    prometheus: Prometheus

    async def until_scraped(self, expr: str, value: float) -> None:
        await self.prometheus.until(expr, lambda found: found == value)

    async def none(self, expr: str) -> None:
        await self.prometheus.until(expr, lambda found: found is None)


@pytest.fixture
async def scene(kubeconfig: str, tmp_path: Path) -> AsyncIterator[Scene]:
    async with playing(kubeconfig, tmp_path / "raybus", "cluster_ctrl", "job_ctrl") as (world, operator):
        targets = {name: operator.address(name) for name in SERVICES}
        async with Prometheus(tmp_path / "prometheus", targets) as prometheus:
            yield Scene(world, operator, prometheus)


def status(world: World, name: str) -> dict[str, Any]:
    return world.objects.get(("RayJob", name), {}).get("status") or {}


async def run_job(scene: Scene, name: str, **spec: Any) -> None:
    """From its creation to its end, each state as Prometheus sees it."""
    world = scene.world
    states = f'kuberay_job_deployment_status{{name="{name}"'
    await world.create(kinds.RAYJOB, job(name, **spec))
    await world.until(lambda: status(world, name).get("jobStatus") == "RUNNING", "the job to run")
    await scene.until_scraped(f'{states},deployment_status="Running",namespace="{world.namespace}"}}', 1)
    assert await scene.prometheus.query(f'kuberay_job_execution_duration_seconds{{name="{name}"}}') == []
    await scene.until_scraped("sum(raybus_probes)", 1)

    assert await world.finish(name)
    await scene.until_scraped(f'{states},deployment_status="Complete"}}', 1)
    await scene.none(f'{states},deployment_status="Running"}}')  # one series per RayJob


class TestObjects:
    async def test_kuberays_metrics_follow_objects_and_vanish_with_them(self, scene: Scene) -> None:
        await self._follow_a_cluster(scene)
        await self._follow_a_job(scene)

    async def _follow_a_cluster(self, scene: Scene) -> None:
        world, prometheus = scene.world, scene.prometheus
        await world.create(kinds.RAYCLUSTER, cluster("idle", group(replicas=2)))
        await scene.until_scraped('kuberay_cluster_condition_provisioned{name="idle",condition="true"}', 1)

        ((labels, value),) = await prometheus.query('kuberay_cluster_info{name="idle"}')
        found = world.objects["RayCluster", "idle"]
        assert value == 1
        assert labels == {
            "name": "idle",
            "namespace": world.namespace,
            "uid": found["metadata"]["uid"],
            "owner_kind": "None",
            "job": "cluster_ctrl",
            "instance": scene.operator.address("cluster_ctrl"),
        }
        conditions = {each["type"]: each for each in found["status"]["conditions"]}
        since = times.parse(conditions["RayClusterProvisioned"]["lastTransitionTime"])
        created = times.parse(found["metadata"]["creationTimestamp"])
        assert since is not None
        assert created is not None
        took_s = (since - created).total_seconds()
        await scene.until_scraped('kuberay_cluster_provisioned_duration_seconds{name="idle"}', took_s)
        await scene.until_scraped("raybus_cluster_provisioning_seconds_count", 1)
        await scene.until_scraped("raybus_cluster_provisioning_seconds_sum", took_s)
        await scene.until_scraped('sum(raybus_mirror_trees{job="cluster_ctrl"})', 1)
        await scene.until_scraped('raybus_mirror_objects{job="cluster_ctrl"}', 5)  # itself, three pods, a Service

        await world.delete(kinds.RAYCLUSTER, "idle")
        for name in ("info", "condition_provisioned", "provisioned_duration_seconds"):
            await scene.none(f'kuberay_cluster_{name}{{name="idle"}}')
        await scene.until_scraped("raybus_cluster_provisioning_seconds_count", 1)  # a histogram remembers

    async def _follow_a_job(self, scene: Scene) -> None:
        world, prometheus = scene.world, scene.prometheus
        await run_job(scene, "train", shutdownAfterJobFinishes=True)

        told = status(world, "train")
        began, ended = times.parse(told["startTime"]), times.parse(told["endTime"])
        assert began is not None
        assert ended is not None
        took_s = (ended - began).total_seconds()
        ((labels, value),) = await prometheus.query('kuberay_job_execution_duration_seconds{name="train"}')
        assert value == took_s
        assert (labels["job_deployment_status"], labels["retry_count"]) == ("Complete", "0")
        await scene.until_scraped('raybus_job_execution_seconds_count{job_deployment_status="Complete"}', 1)
        await scene.until_scraped('raybus_job_execution_seconds_sum{job_deployment_status="Complete"}', took_s)
        await scene.none('kuberay_cluster_info{owner_kind="RayJob"}')  # its time to live is nothing
        await scene.until_scraped("sum(raybus_job_leftover_clusters)", 0)

        await world.delete(kinds.RAYJOB, "train")
        for name in ("info", "deployment_status", "execution_duration_seconds"):
            await scene.none(f'kuberay_job_{name}{{name="train"}}')


class TestBackbone:
    async def test_what_a_job_costs_is_counted_under_the_documented_names(self, scene: Scene) -> None:
        prometheus = scene.prometheus
        await run_job(scene, "train")

        await scene.until_scraped('raybus_job_leftover_clusters{why="kept"}', 1)
        await scene.until_scraped('sum(raybus_job_leftover_clusters{why!="kept"})', 0)
        for expr, value in (
            ('raybus_gateway_active{namespace="raybus-system"}', 1),
            ('sum(raybus_owned_partitions{controller="raycluster"})', 8),
            ('sum(raybus_owned_partitions{controller="rayjob"})', 8),
            ("min(raybus_ready)", 1),
            ("min(raybus_kubernetes_reachable)", 1),
            ("sum(raybus_actions_total{action='CreateRayCluster',result='done'})", 1),
            ("sum(raybus_actions_total{action='CreatePod',result='done'})", 2),
            ("sum(raybus_parked_keys)", 0),
            ("sum(raybus_history_dropped_total)", 0),
            ("sum(raybus_mirror_skipped_total)", 0),
            ("sum(raybus_queue_length)", 0),
            ('raybus_gateway_sessions{controller="rayjob"}', 1),
        ):
            await scene.until_scraped(expr, value)
        for expr in (
            'sum(raybus_passes_total{job="job_ctrl",result="done"})',
            'sum(raybus_pass_seconds_count{job="job_ctrl",result="done"})',
            'sum(rest_client_requests_total{job="cluster_ctrl",method="POST",code="201"})',
            'sum(rest_client_request_duration_seconds_count{job="job_ctrl",verb="PATCH"})',
            'sum(rest_client_rate_limiter_duration_seconds_count{job="job_ctrl",verb="POST"})',
            'sum(rest_client_request_size_bytes_sum{job="job_ctrl",verb="PATCH"})',
            'sum(rest_client_response_size_bytes_sum{job="gateway",verb="GET"})',
            'sum(raybus_ray_requests_total{method="GET",code="200"})',
            'sum(raybus_gateway_published_total{controller="rayjob",operation="PUT"})',
            "sum(raybus_gateway_publish_seconds_count)",
            'sum(raybus_gateway_lists_total{kind="Pod"})',
            'raybus_gateway_watches{state="live"}',
            "sum(raybus_gateway_markers_total)",
            'sum(raybus_mirror_delivery_seconds_count{job="job_ctrl"})',
            'sum(raybus_history_recorded_total{job="job_ctrl"})',
            'sum(raybus_history_recorded_total{job="gateway"})',
            'sum(raybus_events_sent_total{job="job_ctrl"})',
            'sum(raybus_leases_gained_total{job="cluster_ctrl"})',
        ):
            await prometheus.until(expr, lambda found: found is not None and found > 0)
        assert (await prometheus.value("max(raybus_marker_age_seconds)") or 0) < 30
        assert (await prometheus.value('max(raybus_mirror_silence_seconds{job="job_ctrl"})') or 0) < 15
        await self._is_as_documented(scene)
        await self._has_bounded_labels(scene)
        await self._passes_promtools_lint(scene)
        await self._is_what_the_dashboard_asks_for(scene)

    async def _is_as_documented(self, scene: Scene) -> None:
        """Types and help as Prometheus understood them, and nothing that the reference does not have."""
        known = described()
        seen = await scene.prometheus.get("metadata")
        assert {name for name in seen if name not in known} == set()
        for name, ((*_, about),) in ((name, (found,)) for name, found in seen.items()):
            assert (about["type"], about["help"]) == (known[name].type, known[name].text), name
        absent = {name for name in known if name not in seen}
        assert absent == {"raybus_nats_certificate_expires_timestamp_seconds"}  # there is no TLS here

        for labels in await scene.prometheus.get(
            "series", **{"match[]": '{__name__=~"(raybus|kuberay|rest_client)_.*"}'}
        ):
            name = labels["__name__"]
            base = name if name in known else name.rpartition("_")[0]
            assert set(labels) <= {*known[base].labels, *OF_TARGETS, "le"}, labels

    async def _has_bounded_labels(self, scene: Scene) -> None:
        """No value of a label is the name of anything that users make."""
        names = {name for _, name in scene.world.objects} | {scene.world.namespace}
        names |= {uid for uids in scene.world.uids.values() for uid in uids}
        assert len(names) > 10
        for labels in await scene.prometheus.get("series", **{"match[]": OURS}):
            for label, value in labels.items():
                assert not any(name in value for name in names if label not in ("job", "instance")), labels

    async def _passes_promtools_lint(self, scene: Scene) -> None:
        for name in SERVICES:
            done = promtool("check", "metrics", given=await scene.operator.metrics(name))
            assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}"

    async def _is_what_the_dashboard_asks_for(self, scene: Scene) -> None:
        """Prometheus takes every query, and those about what is there now find something."""
        panels = json.loads((ROOT / "deploy" / "dashboards" / "raybus.json").read_text())["panels"]
        for panel in panels:
            for target in panel.get("targets", ()):
                found = await scene.prometheus.query(target["expr"].replace("$namespace", ".*"))
                assert found or "[" in target["expr"] or panel["title"] in NOTHING_TO_SHOW, target["expr"]

    async def test_a_nats_that_is_gone_raises_the_alert(self, scene: Scene) -> None:
        """Alerts are evaluated by a real Prometheus, on real metrics, because of a real fault."""
        prometheus = scene.prometheus
        await scene.until_scraped("count(raybus_nats_connected == 1)", 3)
        groups = (await prometheus.get("rules"))["groups"]
        assert [rule["name"] for found in groups for rule in found["rules"] if rule["health"] == "err"] == []

        rereads = 'sum(raybus_mirror_rereads_total{job="job_ctrl"})'
        before = await prometheus.value(rereads) or 0

        scene.operator.kill("nats")
        await scene.until_scraped('count(ALERTS{alertname="RaybusNatsDisconnected",alertstate="pending"})', 3)
        await scene.until_scraped('count(raybus_ready{check="nats"} == 0)', 3)
        scene.operator.start("nats")
        await scene.none('count(ALERTS{alertname="RaybusNatsDisconnected"})')
        await scene.until_scraped("min(raybus_nats_disconnects_total)", 1)
        await prometheus.until(
            'min(raybus_nats_rereads_total{reason="reconnect",job="job_ctrl"})', lambda found: (found or 0) >= 1
        )
        # For a gap; or, where NATS was away for longer than a lease, because partitions were owned anew.
        await prometheus.until(rereads, lambda found: (found or 0) > before)
