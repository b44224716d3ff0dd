"""RayJobs: run to their end, deleted in the middle, and what must be left of them.

What may live here: scenarios. Each is a coroutine that acts as users do and waits for nothing longer than people would.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from simulation.sim.actors.apiserver import Json
from simulation.sim.scenarios.base import RAYJOBS, STEP_S, USER, Scenario, raycluster

if TYPE_CHECKING:
    from simulation.sim.world import World


def rayjob(name: str, mode: str, ttl_s: int) -> Json:
    cluster = {**raycluster()["spec"], "workerGroupSpecs": []}
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "entrypoint": "python train.py",
            "submissionMode": mode,
            "shutdownAfterJobFinishes": True,
            "ttlSecondsAfterFinished": ttl_s,
            "rayClusterSpec": cluster,
        },
    }


def deployment(world: World, name: str) -> str:
    job = world.api.get("rayjobs.ray.io", "default", name)
    return (job.get("status") or {}).get("jobDeploymentStatus", "") if job else "gone"


async def _job(world: World, mode: str) -> None:
    """Create, run to the end, clean up."""
    world.api.ask(USER, "POST", RAYJOBS, rayjob("train", mode, round(world.between(0, 4))))
    await world.until(lambda: deployment(world, "train") in ("Complete", "Failed"), 25.0)
    await world.until(lambda: not job_matches(world), STEP_S)


async def job_http(world: World) -> None:
    await _job(world, "HTTPMode")


async def job_k8s(world: World) -> None:
    await _job(world, "K8sJobMode")


async def job_deleted(world: World) -> None:
    """A RayJob that is deleted while its job runs; its name is used again at once."""
    world.api.ask(USER, "POST", RAYJOBS, rayjob("train", "HTTPMode", 2))
    await world.until(lambda: bool(world.dashboards.submissions), 15.0)
    await asyncio.sleep(world.between(0.0, 3.0))
    world.story.tell(USER, "deletes the RayJob")
    world.api.ask(USER, "DELETE", f"{RAYJOBS}/train")
    await world.until(lambda: deployment(world, "train") == "gone", STEP_S)
    if deployment(world, "train") == "gone":
        world.api.ask(USER, "POST", RAYJOBS, rayjob("train", "HTTPMode", 2))
    await world.until(lambda: deployment(world, "train") in ("Complete", "Failed"), 25.0)
    await world.until(lambda: not job_matches(world), STEP_S)


def job_matches(world: World) -> str:
    """Every RayJob has come to its end, and what it made is cleaned up."""
    for job in world.api.all("rayjobs.ray.io"):
        status = job.get("status") or {}
        name, state = job["metadata"]["name"], status.get("jobDeploymentStatus")
        if state not in ("Complete", "Failed"):
            return f"RayJob {name} is {state or 'new'}, its job {status.get('jobStatus') or 'unknown'}"
    if left := [cluster["metadata"]["name"] for cluster in world.api.all("rayclusters.ray.io")]:
        return f"RayClusters are left: {left}"
    if pods := [
        pod["metadata"]["name"]
        for pod in world.api.all("pods")
        if "ray.io/cluster" in (pod["metadata"].get("labels") or {})
    ]:
        return f"pods are left: {pods}"
    return ""


ALL_THREE = (("gateway", 2), ("cluster-ctrl", 1), ("job-ctrl", 2))
# A silent dashboard is borne for 40 s where its head Pod is not Ready, else for 300 s.
ALL = tuple(
    Scenario(name, ALL_THREE, act, job_matches, builtin=True, controller="rayjob", bound_s=330.0)
    for name, act in (("job-http", job_http), ("job-k8s", job_k8s), ("job-deleted", job_deleted))
)
