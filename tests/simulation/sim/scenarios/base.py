"""What scenarios are made of.

What may live here: the shape of a scenario, the objects that users write, and how users ask.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simulation.sim.actors.apiserver import Json, Refused
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
    calm: bool = False  # has its own trouble; faults are not drawn besides


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

    def create(self, cluster: Json) -> None:
        """A RayCluster, unless one of that name is still there."""
        try:
            self.world.api.ask(USER, "POST", CLUSTERS, cluster)
        except Refused as refused:
            self.world.story.tell(USER, str(refused))

    def delete(self, name: str) -> None:
        self.world.story.tell(USER, f"deletes {name}")
        try:
            self.world.api.ask(USER, "DELETE", f"{CLUSTERS}/{name}")
        except Refused as refused:
            self.world.story.tell(USER, str(refused))

    def scale(self, name: str, workers: int) -> None:
        self.world.story.tell(USER, f"wants {workers} workers of {name}")
        cluster = self.world.api.get("rayclusters.ray.io", "default", name)
        assert cluster is not None
        group = {**cluster["spec"]["workerGroupSpecs"][0], "replicas": workers}
        self.world.api.ask(USER, "PATCH", f"{CLUSTERS}/{name}", {"spec": {"workerGroupSpecs": [group]}})

    def kill_pod(self, number: int) -> None:
        pods = self.world.mishaps.pods("worker", running=False)
        if pods:
            name = pods[number % len(pods)]["metadata"]["name"]
            self.world.story.tell(USER, f"kills pod {name}")
            try:
                self.world.api.ask(USER, "DELETE", f"/api/v1/namespaces/default/pods/{name}")
            except Refused as refused:
                self.world.story.tell(USER, str(refused))


def owned(world: World, resource: str, uid: str) -> list[Json]:
    """The objects whose controller is this uid."""
    return [
        obj
        for obj in world.api.all(resource)
        if any(
            owner.get("controller") and owner["uid"] == uid for owner in obj["metadata"].get("ownerReferences") or ()
        )
    ]
