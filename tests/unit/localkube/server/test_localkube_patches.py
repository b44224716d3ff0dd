"""The three patch types."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybus_localkube.patches import PatchError, json_patch, merge_patch, strategic_patch

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.text(max_size=3), JSON, max_size=4)


def has_null(value: Any) -> bool:
    if isinstance(value, dict):
        return any(has_null(item) for item in value.values())
    return value is None


@given(OBJECTS, OBJECTS)
def test_a_merge_patch_applied_twice_is_applied_once(document: dict[str, Any], patch: dict[str, Any]) -> None:
    once = merge_patch.apply(document, patch)
    assert merge_patch.apply(once, patch) == once


@given(OBJECTS)
def test_a_merge_patch_on_nothing_is_itself_without_nulls(patch: dict[str, Any]) -> None:
    assert not has_null(merge_patch.apply({}, patch))


def test_a_merge_patch_leaves_its_target_alone() -> None:
    document = {"a": {"b": 1, "c": 2}, "d": [1]}
    assert merge_patch.apply(document, {"a": {"b": None}, "d": [2]}) == {"a": {"c": 2}, "d": [2]}
    assert document == {"a": {"b": 1, "c": 2}, "d": [1]}


@pytest.mark.parametrize(
    ("operations", "result"),
    [
        ([{"op": "add", "path": "/a", "value": 1}], {"x": [1, 2], "a": 1}),
        ([{"op": "replace", "path": "/missing", "value": 1}], {"x": [1, 2], "missing": 1}),
        ([{"op": "add", "path": "/x/-", "value": 3}], {"x": [1, 2, 3]}),
        ([{"op": "add", "path": "/x/0", "value": 0}], {"x": [0, 1, 2]}),
        ([{"op": "remove", "path": "/x/-1"}], {"x": [1]}),
        ([{"op": "test", "path": "/nothing", "value": None}], {"x": [1, 2]}),
        ([{"op": "test", "path": "/x/1", "value": 2}, {"op": "remove", "path": "/x"}], {}),
        (
            [{"op": "copy", "from": "/x", "path": "/y"}, {"op": "add", "path": "/y/-", "value": 9}],
            {"x": [1, 2], "y": [1, 2, 9]},
        ),
        ([{"op": "move", "from": "/x/0", "path": "/first"}], {"x": [2], "first": 1}),
        ([{"op": "add", "path": "/a~1b~0c", "value": 1}], {"x": [1, 2], "a/b~c": 1}),
    ],
)
def test_json_patches(operations: list[Any], result: Any) -> None:
    assert json_patch.apply({"x": [1, 2]}, operations) == result


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove", "path": "/missing"},
        {"op": "add", "path": "/missing/child", "value": 1},
        {"op": "add", "path": "/x/7", "value": 1},
        {"op": "replace", "path": "/x/2", "value": 1},
        {"op": "test", "path": "/x/0", "value": 5},
        {"op": "add", "path": "/a"},
        {"op": "dance", "path": "/a", "value": 1},
        {"op": "add", "path": "no-slash", "value": 1},
        "no object",
    ],
)
def test_json_patches_that_fail_are_422(operation: Any) -> None:
    with pytest.raises(PatchError) as caught:
        json_patch.apply({"x": [1, 2]}, [operation])
    assert caught.value.refusal().code == 422


POD = {
    "spec": {
        "containers": [{"name": "a", "image": "1", "args": ["x"]}, {"name": "b", "image": "2"}],
        "tolerations": [{"key": "k"}],
    }
}


def containers(patch: list[Any], **more: Any) -> list[Any]:
    patched = strategic_patch.apply(POD, {"spec": {"containers": patch, **more}}, "Pod")
    return list(patched["spec"]["containers"])


def test_strategic_patches_merge_lists_by_key() -> None:
    assert containers([{"name": "b", "image": "3"}]) == [
        {"name": "a", "image": "1", "args": ["x"]},
        {"name": "b", "image": "3"},
    ]
    assert containers([{"name": "a", "args": ["y"]}])[0]["args"] == ["y"]  # a list without a key is replaced
    assert [c["name"] for c in containers([{"name": "c", "image": "4"}])] == ["c", "a", "b"]


def test_strategic_patches_know_directives() -> None:
    assert [c["name"] for c in containers([{"name": "a", "$patch": "delete"}])] == ["b"]
    assert containers([{"$patch": "replace"}, {"name": "z", "image": "9"}]) == [{"name": "z", "image": "9"}]
    order = {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}
    assert [c["name"] for c in containers([{"name": "a", "image": "5"}], **order)] == ["b", "a"]


def test_strategic_patches_replace_lists_without_a_merge_strategy() -> None:
    patched = strategic_patch.apply(POD, {"spec": {"tolerations": [{"key": "new"}]}}, "Pod")
    assert patched["spec"]["tolerations"] == [{"key": "new"}]


def test_a_strategic_item_without_its_key_is_refused() -> None:
    with pytest.raises(PatchError, match="does not contain declared merge key: name"):
        containers([{"image": "noname"}])


def test_finalizers_merge_as_a_set() -> None:
    patched = strategic_patch.apply(
        {"metadata": {"finalizers": ["a"]}}, {"metadata": {"finalizers": ["b", "a"]}}, "ConfigMap"
    )
    assert patched["metadata"]["finalizers"] == ["a", "b"]
    patch = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}}
    assert strategic_patch.apply({"metadata": {"finalizers": ["a", "b"]}}, patch, "ConfigMap")["metadata"][
        "finalizers"
    ] == ["b"]
