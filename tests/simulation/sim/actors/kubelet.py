"""Node and kubelet: pods are bound, run, become ready, end, and go when they are told to.

It reads the true state, as if its own watch never lagged.

What may live here: the life of pods. What breaks them on purpose stands in trouble.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from simulation.sim.actors.apiserver import Change, Json, Refused
from simulation.sim.loop import Process

if TYPE_CHECKING:
    from simulation.sim.world import World

WHO = "kubelet"
STUCK_S = 15.0


def path_of(pod: Json, subresource: str = "") -> str:
    meta = pod["metadata"]
    return f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}" + (f"/{subresource}" if subresource else "")


def is_ready(pod: Json) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


class Kubelet:
    """`pace` scales all its times; `stuck` names pods whose end takes long."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.process = Process(world.loop, WHO)
        self._addresses = 0
        self.stuck: set[str] = set()
        self.full_until = self.no_image_until = 0.0
        self._restarts: dict[str, int] = {}

    def on_change(self, change: Change) -> None:
        if change.resource != "pods":
            return
        meta = change.obj["metadata"]
        if change.type == "ADDED":
            self._soon(0.05, 0.4, self._bind, meta["uid"])
        elif change.type == "MODIFIED" and "deletionTimestamp" in meta:
            assert change.old is not None
            if "deletionTimestamp" not in change.old["metadata"]:
                self._soon(0.1, 2.0, self._end, meta["uid"])

    def _soon(self, least: float, most: float, call: Any, *arguments: Any) -> None:
        self.process.call_later(self._world.between(least, most), call, *arguments)

    def pod(self, uid: str) -> Json | None:
        return next((pod for pod in self._world.api.all("pods") if pod["metadata"]["uid"] == uid), None)

    def _write(self, pod: Json, *, status: Json, **spec: Any) -> None:
        """What a node says of its pod is taken as it is; the full way through the API server would cost a tenth of a run."""
        status = {**(pod.get("status") or {}), **status}
        self._world.api.put(WHO, "pods", {**pod, "spec": {**pod["spec"], **spec}, "status": status})

    # Life

    def _bind(self, uid: str) -> None:
        pod = self.pod(uid)
        if pod is None or "deletionTimestamp" in pod["metadata"] or pod["spec"].get("nodeName"):
            return
        if self._world.faults.active and self._world.loop.now < self.full_until:
            self._soon(1.0, 2.0, self._bind, uid)
            return
        self._write(pod, status={}, nodeName="node-1")
        self._soon(0.2, 1.5, self.run, uid)

    def run(self, uid: str) -> None:
        """All containers run and are ready. Workers wait for a head, as their init container does."""
        pod = self.pod(uid)
        if (
            pod is None
            or "deletionTimestamp" in pod["metadata"]
            or (pod["status"].get("phase") in ("Failed", "Succeeded"))
        ):
            return
        if self._world.faults.active and self._world.loop.now < self.no_image_until:
            self._no_image(pod)
            self._soon(2.0, 4.0, self.run, uid)
            return
        if self._waits_for_head(pod):
            self._soon(0.3, 0.6, self.run, uid)
            return
        self._addresses += 1
        self.report(pod, phase="Running", ready=True, ip=pod["status"].get("podIP") or f"10.0.0.{self._addresses}")

    def _no_image(self, pod: Json) -> None:
        waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}}
        if waiting not in [each.get("state") for each in pod["status"].get("containerStatuses") or ()]:
            self.report(pod, phase="Pending", ready=False, state=waiting)

    def _waits_for_head(self, pod: Json) -> bool:
        marks = pod["metadata"].get("labels") or {}
        if marks.get("ray.io/node-type") != "worker":
            return False
        return not any(
            (other["metadata"].get("labels") or {}).get("ray.io/cluster") == marks.get("ray.io/cluster")
            and other["metadata"]["labels"].get("ray.io/node-type") == "head"
            and is_ready(other)
            for other in self._world.api.all("pods")
        )

    def report(
        self, pod: Json, *, phase: str, ready: bool | None, ip: str = "", reason: str = "", state: Json | None = None
    ) -> None:
        """The pod's status, as a kubelet would write it; with `ready` None as the node controller does when it hears nothing."""
        now = self._world.stamp()
        said = {True: "True", False: "False", None: "Unknown"}[ready]
        status = {
            "phase": phase,
            "conditions": [{"type": "Ready", "status": said, "lastTransitionTime": now}],
            "containerStatuses": [
                {
                    "name": container["name"],
                    "ready": bool(ready),
                    "started": bool(ready),
                    "restartCount": self._restarts.get(pod["metadata"]["uid"], 0),
                    "image": container["image"],
                    "imageID": "",
                    "state": state or {"running": {"startedAt": now}},
                }
                for container in pod["spec"]["containers"]
            ],
        }
        status |= {"podIP": ip} if ip else {}
        status |= {"reason": reason} if reason else {}
        self._write(pod, status=status)

    def _end(self, uid: str) -> None:
        pod = self.pod(uid)
        if pod is None:
            return
        if pod["metadata"]["name"] in self.stuck:
            self.stuck.discard(pod["metadata"]["name"])
            self.process.call_later(STUCK_S, self._end, uid)
            return
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
        try:
            self._world.api.ask(WHO, "DELETE", path_of(pod), {"apiVersion": "v1", "kind": "DeleteOptions", **options})
        except Refused as refused:
            self._world.story.tell(WHO, f"pod {pod['metadata']['name']}: {refused}")

    def complete(self, pod: Json, code: int) -> None:
        """Its containers have ended by themselves and are not started again."""
        ended = {
            "terminated": {
                "exitCode": code,
                "reason": "Completed" if not code else "Error",
                "finishedAt": self._world.stamp(),
            }
        }
        self.report(pod, phase="Failed" if code else "Succeeded", ready=False, state=ended)

    # What may happen to a pod

    def evict(self, pod: Json) -> None:
        self.report(pod, phase="Failed", ready=False, reason="Evicted")

    def crash(self, pod: Json) -> None:
        """Its containers end; where the policy says so they start again."""
        ended = {"terminated": {"exitCode": 1, "reason": "Error", "finishedAt": self._world.stamp()}}
        if pod["spec"].get("restartPolicy", "Always") == "Never":
            self.report(pod, phase="Failed", ready=False, state=ended)
            return
        uid = pod["metadata"]["uid"]
        self._restarts[uid] = self._restarts.get(uid, 0) + 1
        self.report(pod, phase="Running", ready=False, ip=pod["status"].get("podIP", ""), state=ended)
        self._soon(1.0, 3.0, self.run, uid)

    def unready(self, pod: Json, seconds: float, *, known: bool = True) -> None:
        self.report(pod, phase="Running", ready=False if known else None, ip=pod["status"].get("podIP", ""))
        self.process.call_later(seconds, self.run, pod["metadata"]["uid"])
