"""Steady state is silence: one minute beside a finished job and an idle cluster, on a real API server that writes down every request."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from raybus.domain import kinds
from support.chaos import World, cluster, group, job, playing
from support.kube import RealKube

pytestmark = [pytest.mark.realkube, pytest.mark.timeout(240)]

SERVICES = ("gateway-2", "cluster_ctrl", "cluster_ctrl-2", "job_ctrl", "job_ctrl-2")
QUIET_S = 60.0


async def test_nothing_is_asked_for_in_a_minute(realkube: RealKube, tmp_path: Path) -> None:
    async with playing(realkube.kubeconfig, tmp_path, *SERVICES) as (world, _):
        await world.create(kinds.RAYCLUSTER, cluster("idle", group(replicas=2)))
        for name, mode in (("kept", "HTTPMode"), ("train", "K8sJobMode")):
            await world.create(kinds.RAYJOB, job(name, submissionMode=mode))
        for name in ("kept", "train"):
            await world.until(lambda name=name: runs(world, name), f"{name} to run")
            assert await world.finish(name)
            await world.until(lambda name=name: ended(world, name), f"{name} to end")
        await world.calm()
        before = asked(realkube.audit())
        await world.quiet_for(QUIET_S)
        assert asked(realkube.audit()) - before == Counter()


def runs(world: World, name: str) -> bool:
    return world.objects["RayJob", name].get("status", {}).get("jobStatus") == "RUNNING"


def ended(world: World, name: str) -> bool:
    return world.objects["RayJob", name]["status"].get("jobDeploymentStatus") == "Complete"


def asked(audit: list[dict[str, Any]]) -> Counter[str]:
    """What our services asked for that is more than looking, whatever became of it."""
    return Counter(
        f"{each['userAgent']}: {each['verb']} {each['objectRef']['resource']}"
        for each in audit
        if each["stage"] == "ResponseComplete"
        and each.get("userAgent", "").startswith("raybus-")
        and each["verb"] not in ("get", "list", "watch")
    )
