"""What happens to pods and to objects at a moment of its own choosing, by nodes and by people.

What may live here: what the faults of class `moment` do to what is stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from simulation.sim.actors.apiserver import Json, Refused
from simulation.sim.actors.kubelet import path_of

if TYPE_CHECKING:
    from simulation.sim.world import World

WHO = "somebody"
AWHILE_S = 6.0
LONG_S = 25.0
LOST_S = 20.0


class Mishaps:
    def __init__(self, world: World) -> None:
        self._world = world
        self._touched = 0

    # Pods

    def pods(self, node_type: str, *, running: bool = True) -> list[Json]:
        return [
            pod
            for pod in self._world.api.all("pods")
            if (pod["metadata"].get("labels") or {}).get("ray.io/node-type") == node_type
            and "deletionTimestamp" not in pod["metadata"]
            and (not running or pod["status"].get("phase") == "Running")
        ]

    def evict_worker(self) -> None:
        for pod in self.pods("worker")[:1]:
            self._world.kubelet.evict(pod)

    def evict_head(self) -> None:
        for pod in self.pods("head")[:1]:
            self._world.kubelet.evict(pod)

    def crash_worker(self) -> None:
        for pod in self.pods("worker")[:1]:
            self._world.kubelet.crash(pod)

    def crash_head(self) -> None:
        for pod in self.pods("head")[:1]:
            self._world.kubelet.crash(pod)

    def unready_worker(self) -> None:
        for pod in self.pods("worker")[:1]:
            self._world.kubelet.unready(pod, AWHILE_S)

    def pending_pods(self) -> None:
        self._world.kubelet.full_until = self._world.loop.now + LONG_S

    def image_error(self) -> None:
        self._world.kubelet.no_image_until = self._world.loop.now + LONG_S

    def node_lost(self) -> None:
        for pod in (*self.pods("head"), *self.pods("worker")):
            self._world.kubelet.unready(pod, LOST_S, known=False)

    def unready_head(self) -> None:
        for pod in self.pods("head")[:1]:
            self._world.kubelet.unready(pod, AWHILE_S)

    def stuck_pod(self) -> None:
        for pod in self.pods("worker", running=False)[-1:]:
            self._world.kubelet.stuck.add(pod["metadata"]["name"])

    def delete_worker(self) -> None:
        for pod in self.pods("worker", running=False)[:1]:
            self.ask("DELETE", path_of(pod))

    def delete_head(self) -> None:
        for pod in self.pods("head", running=False)[:1]:
            self.ask("DELETE", path_of(pod))

    # People

    def ask(self, method: str, path: str, body: Any = None) -> Json | None:
        try:
            return self._world.api.ask(WHO, method, path, body)
        except Refused as refused:
            self._world.story.tell(WHO, f"{method} {path}: {refused}")
            return None

    def annotate(self, path: str) -> None:
        self._touched += 1
        self.ask("PATCH", path, {"metadata": {"annotations": {"example.com/touched": str(self._touched)}}})

    def touch(self) -> None:
        for cluster in self._world.api.all("rayclusters.ray.io")[:1]:
            meta = cluster["metadata"]
            self.annotate(f"/apis/ray.io/v1/namespaces/{meta['namespace']}/rayclusters/{meta['name']}")

    def something_changes(self) -> None:
        """Whatever was just read is old now."""
        self.delete_worker()

    def relabel_pod(self) -> None:
        for pod in self.pods("worker", running=False)[:1]:
            self.ask("PATCH", path_of(pod), {"metadata": {"labels": {"ray.io/cluster": None}}})

    def delete_service(self) -> None:
        for service in self._world.api.all("services"):
            meta = service["metadata"]
            if (meta.get("labels") or {}).get("ray.io/cluster"):
                self.ask("DELETE", f"/api/v1/namespaces/{meta['namespace']}/services/{meta['name']}")

    def own_pod(self) -> None:
        """Its controller is another object from now on, and its labels still say that it is the cluster's.

        Ray's autoscaler goes by the labels and would wait for ever for what it names: that is not for a controller to heal.
        """
        if any(each["spec"].get("enableInTreeAutoscaling") for each in self._world.api.all("rayclusters.ray.io")):
            return
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "other", "uid": "another", "controller": True}
        for pod in self.pods("worker", running=False)[:1]:
            self.ask("PATCH", path_of(pod), {"metadata": {"ownerReferences": [owner]}})
