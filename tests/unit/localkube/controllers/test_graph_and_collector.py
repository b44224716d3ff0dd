"""Garbage collection as a pure machine: what is asked for, given who owns whom."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import count
from typing import Any

import pytest

from raybus.domain.kinds import CONFIG_MAP, NODE, POD, RAYCLUSTER, SERVICE, Kind
from raybus.kube.errors import KubeError, NotFound
from raybus_localkube.controllers.collector import Collector
from raybus_localkube.controllers.controller import Ref, Served
from raybus_localkube.controllers.work import Call

NOW = datetime(2026, 1, 1, tzinfo=UTC)
VERBS = frozenset({"get", "list", "watch", "delete", "patch"})
KINDS = (POD, SERVICE, CONFIG_MAP, RAYCLUSTER, NODE)


class World:
    """A collector and the objects it was told of."""

    def __init__(self, *kinds: Kind) -> None:
        self.collector = Collector()
        self.collector.serve(tuple(Served(kind, VERBS) for kind in kinds or KINDS))
        self._versions = count(1)

    def put(self, kind: Kind, name: str, *owners: dict[str, Any], namespace: str = "ns", **metadata: Any) -> set[str]:
        """Tell of an object whose uid is `u-<name>`; the answer is the uids to look at."""
        meta = {"name": name, "uid": f"u-{name}", "resourceVersion": str(next(self._versions)), **metadata}
        if kind.namespaced:
            meta["namespace"] = namespace
        if owners:
            meta["ownerReferences"] = list(owners)
        return {key.name for key in self.collector.changed(kind, {"metadata": meta})}

    def gone(self, kind: Kind, name: str) -> set[str]:
        return {key.name for key in self.collector.gone(kind, Ref(f"u-{name}", "ns", name))}

    def calls(self, name: str) -> list[Call]:
        work = self.collector.decide(self.collector.key("ns", f"u-{name}"), NOW)
        return [call for step in work.steps for call in step]

    def answer(self, name: str, call: Call, answer: dict[str, Any] | KubeError) -> None:
        self.collector.answered(self.collector.key("ns", f"u-{name}"), call, answer)


def owner(kind: Kind, name: str, *, block: bool = False) -> dict[str, Any]:
    reference = {"apiVersion": kind.api_version, "kind": kind.kind, "name": name, "uid": f"u-{name}"}
    return reference | ({"blockOwnerDeletion": True} if block else {})


def deleting(finalizer: str) -> dict[str, Any]:
    return {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [finalizer]}


NOT_FOUND = NotFound(404, "NotFound", "not found")


@pytest.fixture
def world() -> World:
    return World()


def test_owned_object_stays(world: World) -> None:
    world.put(RAYCLUSTER, "owner")
    assert world.put(POD, "pod", owner(RAYCLUSTER, "owner")) == {"u-pod"}
    assert world.calls("pod") == []


def test_object_goes_when_its_owner_is_gone(world: World) -> None:
    world.put(RAYCLUSTER, "owner")
    world.put(POD, "pod", owner(RAYCLUSTER, "owner"))
    assert world.gone(RAYCLUSTER, "owner") == {"u-pod"}
    (call,) = world.calls("pod")
    assert (call.method, call.path) == ("DELETE", "/api/v1/namespaces/ns/pods/pod")
    assert call.body is not None
    assert call.body["preconditions"] == {"uid": "u-pod", "resourceVersion": "2"}
    assert call.body["propagationPolicy"] == "Background"


def test_owner_that_nobody_saw_is_read_before_it_counts_as_absent(world: World) -> None:
    world.put(POD, "pod", owner(RAYCLUSTER, "owner"))
    (read,) = world.calls("pod")
    assert (read.method, read.path) == ("GET", "/apis/ray.io/v1/namespaces/ns/rayclusters/owner")
    world.answer("pod", read, NOT_FOUND)
    assert [call.method for call in world.calls("pod")] == ["DELETE"]


def test_owner_of_the_same_name_with_another_uid_is_another_object(world: World) -> None:
    world.put(POD, "pod", owner(RAYCLUSTER, "owner"))
    (read,) = world.calls("pod")
    world.answer("pod", read, {"metadata": {"uid": "u-newer"}})
    assert [call.method for call in world.calls("pod")] == ["DELETE"]


def test_unanswered_read_decides_nothing(world: World) -> None:
    world.put(POD, "pod", owner(RAYCLUSTER, "owner"))
    (read,) = world.calls("pod")
    world.answer("pod", read, KubeError(503, "ServiceUnavailable", "later"))
    assert [call.method for call in world.calls("pod")] == ["GET"]


def test_owner_that_appears_late_keeps_its_dependents(world: World) -> None:
    world.put(POD, "pod", owner(RAYCLUSTER, "owner"))
    assert world.put(RAYCLUSTER, "owner") == {"u-pod"}
    assert world.calls("pod") == []


def test_owner_in_another_namespace_is_absent_but_only_for_that_object(world: World) -> None:
    world.put(RAYCLUSTER, "owner", namespace="other")
    world.put(POD, "pod", owner(RAYCLUSTER, "owner"))
    world.put(POD, "good", owner(RAYCLUSTER, "owner"), namespace="other")
    (read,) = world.calls("pod")
    assert read.path == "/apis/ray.io/v1/namespaces/ns/rayclusters/owner"
    world.answer("pod", read, NOT_FOUND)
    assert [call.method for call in world.calls("pod")] == ["DELETE"]
    assert world.calls("good") == []


def test_cluster_scoped_owner_of_a_namespaced_object(world: World) -> None:
    world.put(NODE, "node")
    world.put(POD, "pod", owner(NODE, "node"))
    assert world.calls("pod") == []


def test_namespaced_owner_of_a_cluster_scoped_object_cannot_be_looked_up(world: World) -> None:
    world.put(NODE, "node", owner(RAYCLUSTER, "owner"))
    assert world.calls("node") == []


def test_owner_of_an_unknown_kind_keeps_the_object_until_the_kind_is_served() -> None:
    world = World(POD)
    world.put(POD, "pod", owner(RAYCLUSTER, "owner"))
    assert world.calls("pod") == []
    keys = world.collector.serve(tuple(Served(kind, VERBS) for kind in (POD, RAYCLUSTER)))
    assert [key.name for key in keys] == ["u-pod"]
    assert [call.method for call in world.calls("pod")] == ["GET"]


def test_one_living_owner_keeps_an_object_and_the_dead_reference_goes(world: World) -> None:
    world.put(RAYCLUSTER, "dead")
    world.put(CONFIG_MAP, "alive")
    world.put(POD, "pod", owner(RAYCLUSTER, "dead"), owner(CONFIG_MAP, "alive"))
    world.gone(RAYCLUSTER, "dead")
    (call,) = world.calls("pod")
    assert call.method == "PATCH"
    assert call.body == {
        "metadata": {"ownerReferences": [owner(CONFIG_MAP, "alive")], "uid": "u-pod", "resourceVersion": "3"}
    }


def test_status_updates_wake_nobody(world: World) -> None:
    world.put(RAYCLUSTER, "owner")
    world.put(POD, "pod", owner(RAYCLUSTER, "owner"))
    assert world.put(POD, "pod", owner(RAYCLUSTER, "owner")) == set()
    assert world.put(RAYCLUSTER, "owner") == set()


# --- foreground


def test_foreground_deletion_goes_on_to_dependents(world: World) -> None:
    world.put(RAYCLUSTER, "owner")
    world.put(POD, "pod", owner(RAYCLUSTER, "owner", block=True))
    assert world.put(RAYCLUSTER, "owner", **deleting("foregroundDeletion")) == {"u-owner", "u-pod"}
    assert world.calls("owner") == []
    (call,) = world.calls("pod")
    assert call.method == "DELETE"
    assert call.body is not None
    assert call.body["propagationPolicy"] == "Background"


def test_dependent_with_dependents_is_deleted_in_the_foreground(world: World) -> None:
    world.put(RAYCLUSTER, "owner", **deleting("foregroundDeletion"))
    world.put(SERVICE, "middle", owner(RAYCLUSTER, "owner", block=True))
    world.put(POD, "leaf", owner(SERVICE, "middle", block=True))
    (call,) = world.calls("middle")
    assert call.body is not None
    assert call.body["propagationPolicy"] == "Foreground"


def test_owner_goes_when_the_last_blocking_dependent_is_gone(world: World) -> None:
    world.put(RAYCLUSTER, "owner", **deleting("foregroundDeletion"))
    world.put(POD, "pod", owner(RAYCLUSTER, "owner", block=True))
    world.put(POD, "free", owner(RAYCLUSTER, "owner"))
    assert "u-owner" in world.gone(POD, "pod")
    (call,) = world.calls("owner")
    assert call.method == "PATCH"
    assert call.body == {"metadata": {"finalizers": None, "uid": "u-owner", "resourceVersion": "1"}}


def test_other_finalizers_stay(world: World) -> None:
    meta = deleting("foregroundDeletion")
    meta["finalizers"] = ["a.example.com/x", "foregroundDeletion"]
    world.put(RAYCLUSTER, "owner", **meta)
    (call,) = world.calls("owner")
    assert call.body is not None
    assert call.body["metadata"]["finalizers"] == ["a.example.com/x"]


def test_dependent_that_also_has_a_living_owner_only_loses_the_reference(world: World) -> None:
    world.put(RAYCLUSTER, "owner", **deleting("foregroundDeletion"))
    world.put(CONFIG_MAP, "alive")
    world.put(POD, "pod", owner(RAYCLUSTER, "owner", block=True), owner(CONFIG_MAP, "alive"))
    (call,) = world.calls("pod")
    assert call.method == "PATCH"
    assert call.body is not None
    assert call.body["metadata"]["ownerReferences"] == [owner(CONFIG_MAP, "alive")]


def test_circle_of_blocking_owners_is_cut(world: World) -> None:
    world.put(CONFIG_MAP, "one", owner(CONFIG_MAP, "two", block=True), **deleting("foregroundDeletion"))
    world.put(CONFIG_MAP, "two", owner(CONFIG_MAP, "one", block=True))
    (cut,) = world.calls("two")
    assert cut.body is not None
    assert cut.body["metadata"]["ownerReferences"][0]["blockOwnerDeletion"] is False
    world.put(CONFIG_MAP, "two", owner(CONFIG_MAP, "one"))
    assert [call.method for call in world.calls("two")] == ["DELETE"]


# --- orphans


def test_orphaning_takes_the_reference_off_and_then_lets_the_owner_go(world: World) -> None:
    world.put(RAYCLUSTER, "owner")
    world.put(POD, "pod", owner(RAYCLUSTER, "owner", block=True))
    assert "u-owner" in world.put(RAYCLUSTER, "owner", **deleting("orphan"))
    assert world.calls("pod") == []
    (call,) = world.calls("owner")
    assert call.path.endswith("/pods/pod")
    assert call.body == {"metadata": {"ownerReferences": None, "uid": "u-pod", "resourceVersion": "2"}}
    assert "u-owner" in world.put(POD, "pod")
    (call,) = world.calls("owner")
    assert call.path.endswith("/rayclusters/owner")
    assert call.body is not None
    assert call.body["metadata"]["finalizers"] is None


def test_object_that_asked_to_orphan_is_collected_as_it_asked(world: World) -> None:
    world.put(RAYCLUSTER, "owner")
    world.put(POD, "pod", owner(RAYCLUSTER, "owner"), finalizers=["orphan"])
    world.gone(RAYCLUSTER, "owner")
    (call,) = world.calls("pod")
    assert call.body is not None
    assert call.body["propagationPolicy"] == "Orphan"


def test_object_under_deletion_is_left_alone(world: World) -> None:
    world.put(RAYCLUSTER, "owner")
    world.put(POD, "pod", owner(RAYCLUSTER, "owner"), **deleting("a.example.com/x"))
    world.gone(RAYCLUSTER, "owner")
    assert world.calls("pod") == []
