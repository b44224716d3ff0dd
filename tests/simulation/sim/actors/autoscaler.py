"""Ray's autoscaler, beside the head: writes how many workers it needs into the RayCluster, and which of them are to go.

It looks, thinks for a moment, and writes by then; what it read may be old. Who is to go is named together with the smaller number;
while a named one is there it asks for nothing else, and afterwards it takes the names out again.

What may live here: what Ray's process of that name does. Written after the behaviour of its node provider for KubeRay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulation.sim.actors.apiserver import Json, Refused
from simulation.sim.actors.kubelet import is_ready
from simulation.sim.loop import Process

if TYPE_CHECKING:
    from simulation.sim.world import World

WHO = "autoscaler"
EVERY_S = (3.0, 6.0)
THINKS_S = (0.01, 0.6)


class Autoscaler:
    """`demand` is how many workers are needed in the first group of each cluster that is scaled automatically."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.process = Process(world.loop, WHO)
        self.demand = 0

    def start(self) -> None:
        self.process.call_later(self._world.between(*EVERY_S), self._round)

    def _round(self) -> None:
        self.start()
        for cluster in self._world.api.all("rayclusters.ray.io"):
            if cluster["spec"].get("enableInTreeAutoscaling") and self._runs_beside(cluster):
                wanted = self._wanted(cluster)
                if wanted is not None:
                    self.process.call_later(self._world.between(*THINKS_S), self._write, cluster, wanted)

    def _pods(self, cluster: Json, node_type: str) -> list[Json]:
        return [
            pod
            for pod in self._world.api.all("pods")
            if (pod["metadata"].get("labels") or {}).get("ray.io/cluster") == cluster["metadata"]["name"]
            and pod["metadata"]["labels"].get("ray.io/node-type") == node_type
            and "deletionTimestamp" not in pod["metadata"]
        ]

    def _runs_beside(self, cluster: Json) -> bool:
        return any(is_ready(pod) for pod in self._pods(cluster, "head"))

    def _wanted(self, cluster: Json) -> Json | None:
        """What the group should say; None if that is what it says."""
        group = cluster["spec"]["workerGroupSpecs"][0]
        named = (group.get("scaleStrategy") or {}).get("workersToDelete") or []
        workers = [pod["metadata"]["name"] for pod in self._pods(cluster, "worker")]
        if named:
            return None if set(named) & set(workers) else {**group, "scaleStrategy": {"workersToDelete": []}}
        if self.demand > group["replicas"]:
            return {**group, "replicas": self.demand}
        surplus = len(workers) - self.demand  # it counts what is there, also what came too late to be wanted
        if surplus <= 0 or len(workers) < group["replicas"]:
            return None
        return {**group, "replicas": self.demand, "scaleStrategy": {"workersToDelete": workers[:surplus]}}

    def _write(self, cluster: Json, group: Json) -> None:
        meta = cluster["metadata"]
        self._world.story.tell(
            WHO, f"wants {group['replicas']} workers, without {group.get('scaleStrategy') or 'names'}"
        )
        path = f"/apis/ray.io/v1/namespaces/{meta['namespace']}/rayclusters/{meta['name']}"
        try:
            self._world.api.ask(WHO, "PATCH", path, {"spec": {"workerGroupSpecs": [group]}})
        except Refused as refused:
            self._world.story.tell(WHO, str(refused))
