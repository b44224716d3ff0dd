from __future__ import annotations

from copy import deepcopy

import pytest

from raybus.bus.projection import LAST_APPLIED, covers, metadata_only, project, strip, union
from raybus.decide.routes import FULL, POD_STATUS, Projection
from support.objects import pod

NAMES = Projection("pod.names", ("spec.containers[].name",))


def test_pod_status_lets_no_env_value_out() -> None:
    given = pod("p")
    given["spec"]["containers"][0]["command"] = ["secret"]
    given["spec"]["volumes"] = [{"name": "v"}]
    given["spec"]["initContainers"] = [{"name": "wait", "args": ["x"]}]
    before = deepcopy(given)
    out = project(given, POD_STATUS)
    assert out == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": given["metadata"],
        "spec": {
            "nodeName": "n1",
            "restartPolicy": "Never",
            "containers": [{"name": "ray"}],
            "initContainers": [{"name": "wait"}],
        },
        "status": {"phase": "Pending"},
    }
    assert given == before
    assert out["status"] is given["status"]


def test_full_drops_managed_fields_and_last_applied_alone() -> None:
    given = pod("p")
    given["metadata"]["managedFields"] = [{}]
    given["metadata"]["annotations"] = {LAST_APPLIED: "{}", "mine": "1"}
    out = project(given, FULL)
    assert out["metadata"]["annotations"] == {"mine": "1"}
    assert "managedFields" not in out["metadata"]
    assert out["spec"] is given["spec"]
    assert "managedFields" in given["metadata"]


def test_annotations_that_held_last_applied_alone_are_gone() -> None:
    assert strip({"name": "x", "annotations": {LAST_APPLIED: "{}"}}) == {"name": "x"}
    metadata = {"name": "x", "annotations": {}}
    assert strip(metadata) is metadata


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (("a.b",), {"a": {"b": {"c": 1, "d": 2}}}),
        (("a.b.c",), {"a": {"b": {"c": 1}}}),
        (("a.b.c", "a.b"), {"a": {"b": {"c": 1, "d": 2}}}),
        (("a.b", "a.b.c"), {"a": {"b": {"c": 1, "d": 2}}}),
        (("l[].x",), {"l": [{"x": 1}, {}]}),
        (("l[].x", "l[].y"), {"l": [{"x": 1, "y": 2}, {"y": 3}]}),
        (("l[]",), {"l": [{"x": 1, "y": 2}, {"y": 3}]}),
        (("l",), {"l": [{"x": 1, "y": 2}, {"y": 3}]}),
        (("n[]",), {"n": [1, 2]}),
        (("missing.x", "s.x"), {}),
    ],
)
def test_paths(paths: tuple[str, ...], expected: dict[str, object]) -> None:
    given = {"a": {"b": {"c": 1, "d": 2}, "e": 3}, "l": [{"x": 1, "y": 2}, {"y": 3}], "n": [1, 2], "s": "text"}
    out = project(given, Projection("p", paths))
    assert out == {"metadata": {}, **expected}


def test_metadata_alone() -> None:
    assert set(metadata_only(pod("p"))) == {"apiVersion", "kind", "metadata"}


def test_a_union_keeps_what_any_of_them_keeps() -> None:
    both = union([POD_STATUS, NAMES, POD_STATUS])
    assert both.name == "pod.names+pod.status"
    assert set(both.paths) == {*POD_STATUS.paths, *NAMES.paths}
    assert union([POD_STATUS]) == POD_STATUS
    assert union([POD_STATUS, FULL]) == FULL


def test_what_a_body_covers() -> None:
    assert covers("full", ["pod.status", "anything"])
    assert covers("a+pod.status", ["pod.status"])
    assert not covers("pod.status", ["pod.status", "a"])
    assert not covers("", ["a"])
    assert not covers("pod.status", ["full"])
    assert covers("", [])
