"""Requests, merge patches and discovery documents."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from raybus.domain.kinds import POD
from raybus_localkube.controllers import work
from raybus_localkube.controllers.manager import is_gone
from raybus_localkube.controllers.run import ALL, build
from raybus_localkube.controllers.served import preferred, understood

LEAVES = st.integers() | st.text(max_size=3) | st.booleans() | st.lists(st.integers(), max_size=2)
OBJECTS = st.recursive(
    st.dictionaries(st.sampled_from("abcd"), LEAVES, max_size=4),
    lambda inner: st.dictionaries(st.sampled_from("abcd"), LEAVES | inner, max_size=4),
    max_leaves=10,
)


def applied(target: Any, patch: Any) -> Any:
    """RFC 7386, as the standard has it."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = applied(merged.get(key), value)
    return merged


@given(OBJECTS, OBJECTS)
def test_difference_leads_from_one_to_the_other(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert applied(old, work.difference(old, new)) == new


@given(OBJECTS)
def test_no_difference_is_an_empty_patch(same: dict[str, Any]) -> None:
    assert work.difference(same, dict(same)) == {}


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
