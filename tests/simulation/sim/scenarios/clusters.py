"""RayClusters: what users want of them, step by step, and what must have come true at the end.

What may live here: scenarios. Each is a coroutine that acts as users do and waits for nothing longer than people would.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from simulation.sim.actors.apiserver import Json
from simulation.sim.actors.kubelet import is_ready
from simulation.sim.scenarios.base import STEP_S, Scenario, User, owned, raycluster

if TYPE_CHECKING:
    from simulation.sim.world import World


async def core(world: World) -> None:
    """Create, 2 workers, 2 -> 1 -> 3, one pod killed."""
    user = User(world)
    user.create(raycluster())

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


async def recreated(world: World) -> None:
    """Deleted while it comes up or runs; its name is used again at once, for one of another size."""
    user = User(world)
    user.create(raycluster())
    await asyncio.sleep(world.between(0.0, 8.0))
    user.delete("demo")
    await world.until(lambda: world.api.get("rayclusters.ray.io", "default", "demo") is None, STEP_S)
    user.create(raycluster(workers=1))
    await world.until(lambda: not cluster_matches(world), STEP_S)


async def autoscaled(world: World) -> None:
    """Ray's autoscaler asks for 3 workers, then for 1, and says which are to go; a user writes the object meanwhile."""
    user = User(world)
    user.create(raycluster(workers=0, enableInTreeAutoscaling=True))
    world.autoscaler.start()

    def as_wanted() -> bool:
        return not autoscaled_matches(world)

    world.autoscaler.demand = 3
    await world.until(as_wanted, 2 * STEP_S)
    world.autoscaler.demand = 1
    await asyncio.sleep(world.between(0.0, 4.0))
    world.mishaps.touch()
    await world.until(as_wanted, 2 * STEP_S)
    world.autoscaler.demand = 2
    await world.until(as_wanted, 2 * STEP_S)


def autoscaled_matches(world: World) -> str:
    """As the specs say, and the specs say what the autoscaler wants."""
    if problem := cluster_matches(world):
        return problem
    for cluster in world.api.all("rayclusters.ray.io"):
        group = cluster["spec"]["workerGroupSpecs"][0]
        if group["replicas"] != world.autoscaler.demand:
            return f"{group['replicas']} workers are asked for, {world.autoscaler.demand} are needed"
        if named := (group.get("scaleStrategy") or {}).get("workersToDelete"):
            return f"still named to go: {named}"
    return ""


async def neighbours(world: World) -> None:
    """Nothing can be written of one RayCluster; the other one, beside it, is scaled as if that were not so."""
    user = User(world)
    world.sick = "sick"
    user.create(raycluster("sick", workers=4))
    await asyncio.sleep(world.between(1.0, 5.0))
    user.create(raycluster("well"))
    for workers in (2, 4, 1, 3):
        await asyncio.sleep(world.between(2.0, 9.0))
        user.scale("well", workers)
    await asyncio.sleep(5.0)


WITH_ONE = (("gateway", 2), ("cluster-ctrl", 1))
WITH_TWO = (("gateway", 2), ("cluster-ctrl", 2))
ALL = (
    # After a roll-back of NATS an own write is doubted 60 s later, with the next marker.
    Scenario("core", WITH_TWO, core, cluster_matches),
    Scenario("recreated", WITH_TWO, recreated, cluster_matches, builtin=True),
    Scenario("autoscaled", WITH_TWO, autoscaled, autoscaled_matches),
    Scenario("neighbours", WITH_ONE, neighbours, cluster_matches, bound_s=400.0, calm=True),
)
