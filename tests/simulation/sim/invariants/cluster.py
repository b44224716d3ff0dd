"""What holds of RayClusters (C1 to C5).

A creation that was under way while its process stood still, or while the network held it, is sent by nobody's decision any more
and has no precondition that Kubernetes would check: each of those is let pass once, and has to be undone like everything else.

What may live here: one class for each invariant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulation.sim.invariants.common import controller_of, is_product
from simulation.sim.invariants.violation import Violation
from simulation.sim.world import Watcher

if TYPE_CHECKING:
    from simulation.sim.actors.apiserver import Change, Json
    from simulation.sim.world import World

WINDOW_S = 45.0  # how old what a replica knows may be: a freeze, and the wait for a lease after it


def node_type(pod: Json) -> str:
    return str((pod["metadata"].get("labels") or {}).get("ray.io/node-type", ""))


def is_live(pod: Json) -> bool:
    return "deletionTimestamp" not in pod["metadata"]


def pods_of(world: World, uid: str, kind: str) -> list[Json]:
    return [pod for pod in world.api.all("pods") if node_type(pod) == kind and controller_of(pod)[1] == uid]


class OneHead(Watcher):
    """C1: never two live heads of one cluster. C2: no head is created while any head pod of it exists."""

    def on_change(self, world: World, change: Change) -> None:
        if change.resource != "pods" or change.type != "ADDED" or node_type(change.obj) != "head":
            return
        uid = controller_of(change.obj)[1]
        heads = pods_of(world, uid, "head")
        live = [pod["metadata"]["name"] for pod in heads if is_live(pod)]
        if len(live) > 1 + world.late_creations:
            raise Violation("C1", f"live heads: {', '.join(live)}")
        if len(heads) > 1 + world.late_creations:
            names = [pod["metadata"]["name"] for pod in heads]
            raise Violation("C2", f"{change.name} was created while there was another head: {', '.join(names)}")


class RightNumber(Watcher):
    """C3: live workers never exceed the largest number that was wanted lately. C4: no deletion goes below the smallest."""

    def __init__(self) -> None:
        self._wanted: dict[tuple[str, str], list[tuple[float, int]]] = {}

    def on_change(self, world: World, change: Change) -> None:
        if change.resource == "rayclusters.ray.io":
            self._note(world, change.obj)
        elif change.resource == "pods" and is_product(change.writer.who) and node_type(change.obj) == "worker":
            if change.type == "ADDED":
                self._created(world, change.obj)
            elif change.old is not None and is_live(change.old):
                self._deleted(world, change)

    def _note(self, world: World, cluster: Json) -> None:
        for group in cluster["spec"].get("workerGroupSpecs") or ():
            number = min(max(group["replicas"], group["minReplicas"]), group["maxReplicas"]) * group.get(
                "numOfHosts", 1
            )
            history = self._wanted.setdefault((cluster["metadata"]["uid"], group["groupName"]), [])
            if not history or history[-1][1] != number:
                history.append((world.loop.now, number))

    def _lately(self, world: World, pod: Json) -> list[int]:
        """The numbers wanted within the window, with the one that it began with."""
        key = (controller_of(pod)[1], pod["metadata"]["labels"]["ray.io/group"])
        since = world.loop.now - WINDOW_S
        history = self._wanted.get(key, [])
        return [
            number
            for index, (_, number) in enumerate(history)
            if index + 1 == len(history) or history[index + 1][0] > since
        ]

    def _live(self, world: World, pod: Json) -> int:
        uid, group = controller_of(pod)[1], pod["metadata"]["labels"]["ray.io/group"]
        return sum(
            is_live(other)
            and other["metadata"]["labels"].get("ray.io/group") == group
            and "ray.io/cluster" in other["metadata"]["labels"]  # without it nobody can see that it is one
            for other in pods_of(world, uid, "worker")
        )

    def _created(self, world: World, pod: Json) -> None:
        most, live = max(self._lately(world, pod), default=0), self._live(world, pod)
        if live > most + world.late_creations:
            raise Violation("C3", f"{pod['metadata']['name']} is worker number {live}, at most {most} were wanted")

    def _deleted(self, world: World, change: Change) -> None:
        assert change.old is not None
        if change.old["status"].get("phase") in ("Failed", "Succeeded"):
            return
        least, live = min(self._lately(world, change.old), default=0), self._live(world, change.old)
        if live < least:
            raise Violation("C4", f"{change.name} was deleted and leaves {live} workers; at least {least} were wanted")


class OnlyNamed(Watcher):
    """C5: where the autoscaler scales, no healthy worker is deleted that it has not named."""

    def on_change(self, world: World, change: Change) -> None:
        old = change.old
        if change.resource != "pods" or change.type == "ADDED" or old is None or not is_product(change.writer.who):
            return
        goes = is_live(old) and (change.type == "DELETED" or not is_live(change.obj))
        if not goes or node_type(old) != "worker" or ended(old):
            return
        uid = controller_of(old)[1]
        cluster = next((each for each in world.api.all("rayclusters.ray.io") if each["metadata"]["uid"] == uid), None)
        if cluster is None or not cluster["spec"].get("enableInTreeAutoscaling"):
            return
        groups = cluster["spec"].get("workerGroupSpecs") or ()
        named = [name for group in groups for name in (group.get("scaleStrategy") or {}).get("workersToDelete") or ()]
        if change.name not in named and "deletionTimestamp" not in cluster["metadata"]:
            raise Violation("C5", f"{change.name} was deleted; the autoscaler named {named or 'nobody'}")


class NoExtraWork(Watcher):
    """X8: whatever crashes, no pod is made or removed that the scenario and the losses from outside do not explain."""

    def __init__(self) -> None:
        self._made = self._removed = self._lost = 0
        self._wanted = 0
        self._groups: dict[str, int] = {}

    def on_change(self, world: World, change: Change) -> None:
        if change.resource == "rayclusters.ray.io" and change.type != "DELETED":
            self._wish(change.obj)
        if change.resource != "pods" or not node_type(change.obj):
            return
        ours = is_product(change.writer.who)
        if change.type == "ADDED":
            self._made += ours
        elif change.old is not None and is_live(change.old) and (change.type == "DELETED" or not is_live(change.obj)):
            self._removed += ours
            self._lost += not ours
        elif (change.type == "MODIFIED" and ended(change.obj) and not ended(change.old)) or (
            change.type == "MODIFIED" and node_type(change.old or {}) and _disowned(change)
        ):
            self._lost += 1

    def _wish(self, cluster: Json) -> None:
        """How many pods are asked for beyond those that were asked for before."""
        for group in cluster["spec"].get("workerGroupSpecs") or ():
            key, number = cluster["metadata"]["uid"] + group["groupName"], int(group["replicas"])
            if key not in self._groups:
                self._wanted += not any(known.startswith(cluster["metadata"]["uid"]) for known in self._groups)
            self._wanted += max(number - self._groups.get(key, 0), 0)
            self._groups[key] = number

    def at_end(self, world: World) -> None:
        if self._made > self._wanted + self._lost + world.late_creations:
            raise Violation("X8", f"{self._made} pods were made, wanted were {self._wanted} and {self._lost} were lost")


def ended(pod: Json | None) -> bool:
    return pod is not None and (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded")


def _disowned(change: Change) -> bool:
    assert change.old is not None
    return _of_cluster(change.old) != _of_cluster(change.obj)


def _of_cluster(pod: Json) -> tuple[str, str]:
    """By its label, and by its controller."""
    return (pod["metadata"].get("labels") or {}).get("ray.io/cluster", ""), controller_of(pod)[1]


ALL: tuple[type[Watcher], ...] = (OneHead, RightNumber, OnlyNamed, NoExtraWork)
