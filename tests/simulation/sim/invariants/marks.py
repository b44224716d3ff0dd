"""What was reached: edges of state machines, counted, so that a night can say which were never taken.

What may live here: the edges, and who counts them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raybus_job_ctrl.decide.table import EDGES as JOB_EDGES
from simulation.sim.world import Watcher

if TYPE_CHECKING:
    from simulation.sim.actors.apiserver import Change
    from simulation.sim.world import World

CLUSTER_EDGES = (
    "HeadPodReady ->True", "HeadPodReady True->False", "HeadPodReady False->True", "RayClusterProvisioned False->True",
    "state ->ready",
)  # fmt: skip
EDGES = (
    *(f"RayCluster {edge}" for edge in CLUSTER_EDGES),
    *(f"RayJob {before or 'New'}->{after or 'New'}" for before, ends in JOB_EDGES.items() for after in sorted(ends)),
)


class Marks(Watcher):
    def on_change(self, world: World, change: Change) -> None:
        if change.type != "MODIFIED" or change.old is None:
            return
        old, new = change.old.get("status") or {}, change.obj.get("status") or {}
        if change.resource == "rayjobs.ray.io":
            before, after = old.get("jobDeploymentStatus") or "New", new.get("jobDeploymentStatus") or "New"
            if before != after:
                world.marks[f"RayJob {before}->{after}"] += 1
        if change.resource == "rayclusters.ray.io":
            was = {each["type"]: each["status"] for each in old.get("conditions") or ()}
            for each in new.get("conditions") or ():
                if was.get(each["type"], "") != each["status"]:
                    world.marks[f"RayCluster {each['type']} {was.get(each['type'], '')}->{each['status']}"] += 1
            if old.get("state", "") != new.get("state", ""):
                world.marks[f"RayCluster state {old.get('state', '')}->{new.get('state', '')}"] += 1
