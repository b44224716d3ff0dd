"""What holds of every controller (X4 to X12). X1 and X2 are checked by the course of a run itself.

What may live here: one class for each invariant that is not about one kind of object.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import orjson

from simulation.sim.invariants.violation import SECRET, Violation
from simulation.sim.world import Asked, Watcher

if TYPE_CHECKING:
    from simulation.sim.actors.apiserver import Change, Json
    from simulation.sim.world import World

PRODUCT = ("cluster-ctrl", "job-ctrl")
PER_MINUTE = 90  # equal requests of one process that are still no hot loop


def is_product(who: str) -> bool:
    return who.startswith(PRODUCT)


def controller_of(obj: Json) -> tuple[str, str]:
    """Kind and uid of the controller's ownerReference; empty if there is none."""
    for owner in obj["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            return owner["kind"], owner["uid"]
    return "", ""


class OnlyOurs(Watcher):
    """X4: nothing is deleted or changed that another one owns."""

    def __init__(self) -> None:
        self._roots: set[str] = set()

    def on_change(self, world: World, change: Change) -> None:
        if change.resource in ("rayclusters.ray.io", "rayjobs.ray.io") and change.type == "ADDED":
            self._roots.add(change.obj["metadata"]["uid"])
        who = change.writer.who
        if not is_product(who) or change.old is None or change.resource == "events":
            return
        kind, uid = controller_of(change.old)
        if change.resource == "rayclusters.ray.io" and who.startswith("cluster-ctrl"):
            return
        if change.resource == "rayjobs.ray.io":
            return
        if uid not in self._roots or kind not in ("RayCluster", "RayJob"):
            raise Violation("X4", f"{who} wrote {change.target}, whose controller is {kind or 'nobody'} {uid}")


class OneWriter(Watcher):
    """X5: nobody but users and the autoscaler writes the spec of a RayCluster that exists."""

    def on_change(self, world: World, change: Change) -> None:
        if change.resource != "rayclusters.ray.io" or change.type != "MODIFIED" or not is_product(change.writer.who):
            return
        assert change.old is not None
        if change.old["spec"] != change.obj["spec"]:
            raise Violation("X5", f"{change.writer.who} changed the spec of {change.target}")


class Preconditions(Watcher):
    """X6: every delete carries a uid, every patch of what others write as well a uid and a resourceVersion."""

    def on_request(self, world: World, asked: Asked) -> None:
        if not is_product(asked.who) or asked.method in ("GET", "POST") or "/events/" in asked.path:
            return
        body = orjson.loads(asked.body)
        if asked.method == "DELETE":
            given = body.get("preconditions") or {}
            if not given.get("uid"):
                raise Violation("X6", f"{asked.who}: DELETE {asked.path} without a uid")
        else:
            meta = body.get("metadata") or {}
            if not (meta.get("uid") and meta.get("resourceVersion")):
                raise Violation("X6", f"{asked.who}: {asked.method} {asked.path} without uid and resourceVersion")


class BoundedWork(Watcher):
    """X7: no equal request over and over."""

    def __init__(self) -> None:
        self._times: dict[tuple[str, str, str], deque[float]] = {}

    def on_request(self, world: World, asked: Asked) -> None:
        if not is_product(asked.who):
            return
        times = self._times.setdefault((asked.who, asked.method, asked.path), deque())
        times.append(world.loop.now)
        while times[0] < world.loop.now - 60.0:
            times.popleft()
        if len(times) > PER_MINUTE:
            raise Violation("X7", f"{asked.who}: {asked.method} {asked.path} {len(times)} times within a minute")


class HonestConditions(Watcher):
    """X10: observedGeneration is not from the future; lastTransitionTime moves exactly when the status does."""

    KINDS = ("rayclusters.ray.io", "rayjobs.ray.io")

    def on_change(self, world: World, change: Change) -> None:
        if change.resource not in self.KINDS or change.type != "MODIFIED":
            return
        assert change.old is not None
        status = change.obj.get("status") or {}
        if int(status.get("observedGeneration") or 0) > int(change.obj["metadata"].get("generation") or 0):
            raise Violation("X10", f"{change.target}: observedGeneration is ahead of generation")
        before = {each["type"]: each for each in (change.old.get("status") or {}).get("conditions") or ()}
        for each in status.get("conditions") or ():
            was = before.get(each["type"])
            moved = was is None or was["status"] != each["status"]
            if not moved and was is not None and was["lastTransitionTime"] != each["lastTransitionTime"]:
                raise Violation("X10", f"{change.target}: {each['type']} moved its time without moving")


class NothingSecret(Watcher):
    """X12: no env value in an event, a status or what is told about; names and labels are always acceptable."""

    def on_request(self, world: World, asked: Asked) -> None:
        if is_product(asked.who) and asked.status in (400, 422):
            words = orjson.loads(asked.answer).get("message", "")
            if "metadata.uid" not in words:  # how the server says that it is another object now
                raise Violation("X12", f"{asked.who}: {asked.method} {asked.path} is not acceptable: {words}")

    def on_change(self, world: World, change: Change) -> None:
        if not is_product(change.writer.who):
            return
        shown: Any = change.obj if change.resource.startswith("events") else change.obj.get("status")
        if shown and SECRET.encode() in orjson.dumps(shown):
            raise Violation("X12", f"{change.target} tells a secret")

    def at_end(self, world: World) -> None:
        for stream in world.nats.server._streams.values():
            for subject, held in stream.subjects.items():
                parts = subject.split(".")
                told = subject.startswith("ray.hist.") or (len(parts) > 8 and parts[8] == "Pod")
                if told and any(SECRET.encode() in message.body for message in held):
                    raise Violation("X12", f"{subject} tells a secret")


class Finalizers(Watcher):
    """X3: what is being deleted is gone within its time, once nothing goes wrong any more."""

    LIMITS: tuple[tuple[str, float], ...] = (("rayclusters.ray.io", 60.0), ("rayjobs.ray.io", 75.0))

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def on_second(self, world: World) -> None:
        going = set()
        for resource, limit in self.LIMITS:
            for obj in world.api.all(resource):
                meta = obj["metadata"]
                if "deletionTimestamp" not in meta:
                    continue
                going.add(meta["uid"])
                since = self._since.setdefault(meta["uid"], world.loop.now)
                if world.loop.now - max(since, world.healed_at) > limit:
                    raise Violation("X3", f"{resource} {meta['name']} is still there {limit:g} s after its deletion")
        self._since = {uid: at for uid, at in self._since.items() if uid in going}


ALL: tuple[type[Watcher], ...] = (
    OnlyOurs,
    OneWriter,
    Preconditions,
    BoundedWork,
    HonestConditions,
    NothingSecret,
    Finalizers,
)
