"""What is wanted of the world, step by step, and what must have come true at the end.

What may live here: scenarios. Each is a coroutine that acts as users do and waits for nothing longer than people would.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simulation.sim.actors.apiserver import Json, Refused
from simulation.sim.actors.kubelet import is_ready
from simulation.sim.invariants.violation import SECRET

if TYPE_CHECKING:
    from simulation.sim.world import World

USER = "user"
RAYJOBS = "/apis/ray.io/v1/namespaces/default/rayjobs"
CLUSTERS = "/apis/ray.io/v1/namespaces/default/rayclusters"
STEP_S = 12.0  # a user waits this long for what was asked for, then goes on


@dataclass(frozen=True, slots=True)
class Scenario:
    """`services` run; `act` is what users do while things go wrong; `matches` says what is not yet as wanted, in words."""

    name: str
    services: tuple[tuple[str, int], ...]
    act: Callable[[World], Awaitable[None]]
    matches: Callable[[World], str]
    builtin: bool = False  # whether Kubernetes' own controllers are needed
    controller: str = "raycluster"  # whose replicas and streams are broken
    bound_s: float = 80.0  # from the end of all faults to the wanted state


def template(name: str) -> Json:
    secret = {"name": "PASSWORD", "value": SECRET}
    return {"spec": {"containers": [{"name": name, "image": "rayproject/ray:2.52.0", "env": [secret]}]}}


def raycluster(name: str = "demo", workers: int = 2, **spec: Any) -> Json:
    group = {
        "groupName": "small",
        "replicas": workers,
        "minReplicas": 0,
        "maxReplicas": 10,
        "rayStartParams": {},
        "template": template("ray-worker"),
    }
    head = {"rayStartParams": {}, "template": template("ray-head")}
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"rayVersion": "2.52.0", "headGroupSpec": head, "workerGroupSpecs": [group], **spec},
    }


class User:
    """Asks until it is done: people try again when the API server refuses."""

    def __init__(self, world: World) -> None:
        self.world = world

    def scale(self, name: str, workers: int) -> None:
        self.world.story.tell(USER, f"wants {workers} workers of {name}")
        cluster = self.world.api.get("rayclusters.ray.io", "default", name)
        assert cluster is not None
        group = {**cluster["spec"]["workerGroupSpecs"][0], "replicas": workers}
        self.world.api.ask(USER, "PATCH", f"{CLUSTERS}/{name}", {"spec": {"workerGroupSpecs": [group]}})

    def kill_pod(self, number: int) -> None:
        pods = self.world.trouble.pods("worker", running=False)
        if pods:
            name = pods[number % len(pods)]["metadata"]["name"]
            self.world.story.tell(USER, f"kills pod {name}")
            try:
                self.world.api.ask(USER, "DELETE", f"/api/v1/namespaces/default/pods/{name}")
            except Refused as refused:
                self.world.story.tell(USER, str(refused))


async def core(world: World) -> None:
    """Create, 2 workers, 2 -> 1 -> 3, one pod killed."""
    user = User(world)
    world.api.ask(USER, "POST", CLUSTERS, raycluster())

    def as_wanted() -> bool:
        return not cluster_matches(world)

    await world.until(as_wanted, STEP_S)
    user.scale("demo", 1)
    await world.until(as_wanted, STEP_S)
    user.scale("demo", 3)
    await world.until(as_wanted, STEP_S)
    user.kill_pod(1)
    await asyncio.sleep(1.0)
    await world.until(as_wanted, STEP_S)


def cluster_matches(world: World) -> str:
    """What is not as the specs of all RayClusters say; empty if everything is."""
    for cluster in world.api.all("rayclusters.ray.io"):
        if problem := _lacks(world, cluster):
            return f"RayCluster {cluster['metadata']['name']}: {problem}"
    return ""


def _lacks(world: World, cluster: Json) -> str:
    meta, status = cluster["metadata"], cluster.get("status") or {}
    pods = [pod for pod in owned(world, "pods", meta["uid"]) if "ray.io/cluster" in pod["metadata"]["labels"]]
    live = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    if len(live) != len(pods):
        return "pods are still terminating"
    heads = [pod for pod in live if pod["metadata"]["labels"]["ray.io/node-type"] == "head"]
    if len(heads) != 1:
        return f"{len(heads)} heads"
    wanted = 0
    for group in cluster["spec"].get("workerGroupSpecs") or ():
        members = [pod for pod in live if pod["metadata"]["labels"]["ray.io/group"] == group["groupName"]]
        count = min(max(group["replicas"], group["minReplicas"]), group["maxReplicas"]) * group.get("numOfHosts", 1)
        wanted += count
        if len(members) != count:
            return f"{len(members)} workers in group {group['groupName']}, wanted {count}"
    if unready := [pod["metadata"]["name"] for pod in live if not is_ready(pod)]:
        return f"not ready: {unready}"
    if not [
        each for each in owned(world, "services", meta["uid"]) if each["metadata"]["name"] == f"{meta['name']}-head-svc"
    ]:
        return "no head Service"
    return _status_lacks(status, heads[0], wanted)


def _status_lacks(status: Json, head: Json, workers: int) -> str:
    """Where the status differs from what the world shows."""
    conditions = {each["type"]: each["status"] for each in status.get("conditions") or ()}
    said = status.get("head") or {}
    found = {
        "state": (status.get("state"), "ready"),
        "desiredWorkerReplicas": (status.get("desiredWorkerReplicas", 0), workers),
        "availableWorkerReplicas": (status.get("availableWorkerReplicas", 0), workers),
        "readyWorkerReplicas": (status.get("readyWorkerReplicas", 0), workers),
        "head.podName": (said.get("podName"), head["metadata"]["name"]),
        "head.podIP": (said.get("podIP"), head["status"]["podIP"]),
        "HeadPodReady": (conditions.get("HeadPodReady"), "True"),
        "RayClusterProvisioned": (conditions.get("RayClusterProvisioned"), "True"),
    }
    wrong = [f"{field} is {is_} and should be {should}" for field, (is_, should) in found.items() if is_ != should]
    return "status: " + "; ".join(wrong) if wrong else ""


def owned(world: World, resource: str, uid: str) -> list[Json]:
    """The objects whose controller is this uid."""
    return [
        obj
        for obj in world.api.all(resource)
        if any(
            owner.get("controller") and owner["uid"] == uid for owner in obj["metadata"].get("ownerReferences") or ()
        )
    ]


# After a roll-back of NATS an own write is doubted 60 s later, with the next marker.
CORE = Scenario("core", (("gateway", 2), ("cluster-ctrl", 2)), core, cluster_matches)


def rayjob(name: str, mode: str) -> Json:
    cluster = {**raycluster()["spec"], "workerGroupSpecs": []}
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "entrypoint": "python train.py",
            "submissionMode": mode,
            "shutdownAfterJobFinishes": True,
            "ttlSecondsAfterFinished": 2,
            "rayClusterSpec": cluster,
        },
    }


def deployment(world: World, name: str) -> str:
    job = world.api.get("rayjobs.ray.io", "default", name)
    return (job.get("status") or {}).get("jobDeploymentStatus", "") if job else "gone"


async def _job(world: World, mode: str) -> None:
    """Create, run to the end, clean up."""
    world.api.ask(USER, "POST", RAYJOBS, rayjob("train", mode))
    await world.until(lambda: deployment(world, "train") in ("Complete", "Failed"), 25.0)
    await world.until(lambda: not job_matches(world), STEP_S)


async def job_http(world: World) -> None:
    await _job(world, "HTTPMode")


async def job_k8s(world: World) -> None:
    await _job(world, "K8sJobMode")


async def job_deleted(world: World) -> None:
    """A RayJob that is deleted while its job runs; its name is used again at once."""
    world.api.ask(USER, "POST", RAYJOBS, rayjob("train", "HTTPMode"))
    await world.until(lambda: bool(world.dashboards.submissions), 15.0)
    await asyncio.sleep(world.between(0.0, 3.0))
    world.story.tell(USER, "deletes the RayJob")
    world.api.ask(USER, "DELETE", f"{RAYJOBS}/train")
    await world.until(lambda: deployment(world, "train") == "gone", STEP_S)
    if deployment(world, "train") == "gone":
        world.api.ask(USER, "POST", RAYJOBS, rayjob("train", "HTTPMode"))
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
JOBS = tuple(
    Scenario(name, ALL_THREE, act, job_matches, builtin=True, controller="rayjob", bound_s=330.0)
    for name, act in (("job-http", job_http), ("job-k8s", job_k8s), ("job-deleted", job_deleted))
)
SCENARIOS = {scenario.name: scenario for scenario in (CORE, *JOBS)}
