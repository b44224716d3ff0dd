"""Requests and discovery documents."""

from __future__ import annotations

from raybus.domain.kinds import POD
from raybus_localkube.controllers import work
from raybus_localkube.controllers.manager import is_gone
from raybus_localkube.controllers.run import ALL, build
from raybus_localkube.controllers.served import preferred, understood


def test_patch_carries_its_preconditions() -> None:
    call = work.patch(POD, "ns", "a", {"metadata": {"finalizers": None}}, uid="u", version="7")
    assert call.body == {"metadata": {"finalizers": None, "uid": "u", "resourceVersion": "7"}}
    assert call.content_type == "application/merge-patch+json"


def test_object_is_gone_when_nothing_held_it() -> None:
    ending = {"deletionTimestamp": "t"}
    assert is_gone("DELETE", {"metadata": {"name": "a"}})
    assert not is_gone("PATCH", {"metadata": {"name": "a"}})
    assert is_gone("PATCH", {"metadata": ending})
    assert not is_gone("PATCH", {"metadata": {**ending, "finalizers": ["x"]}})
    assert not is_gone("DELETE", {"metadata": {**ending, "deletionGracePeriodSeconds": 30}})
    assert is_gone("DELETE", {"metadata": {**ending, "deletionGracePeriodSeconds": 0}})
    assert not is_gone("PATCH", {"metadata": ending, "spec": {"finalizers": ["kubernetes"]}})


def test_discovery_documents_become_kinds() -> None:
    resources = [
        {"name": "pods", "kind": "Pod", "namespaced": True, "verbs": ["list", "watch"]},
        {"name": "pods/log", "kind": "Pod", "namespaced": True, "verbs": ["get"]},
        {"name": "events", "kind": "Event", "namespaced": True, "verbs": ["list", "watch"]},
    ]
    pods, events = understood({"groupVersion": "v1", "resources": resources})
    assert pods.kind == POD
    assert (pods.watchable, events.watchable) == (True, False)
    groups = {"groups": [{"name": "batch", "preferredVersion": {"groupVersion": "batch/v1"}}]}
    assert preferred(groups) == ["batch/v1"]


def test_every_controller_can_be_built_under_its_own_name() -> None:
    assert tuple(controller.name for controller in build()) == ALL
