"""Specs that a laxer definition let pass: found before a decision stumbles over them, and nothing that upstream takes is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from raybus.api import shape
from raybus.api.shape import Shapes, spec_problem

# Inputs of golden cases; without the folder the test has no parameters and is skipped.
CASES = Path(__file__).resolve().parents[4] / "shared" / "golden" / "cases"
REFUSED_BY_SCHEMA = "126-job-refused-by-schema"
HEAD = {"template": {"spec": {"containers": [{"name": "ray-head", "image": "example/ray"}]}}}


def a_cluster(spec: Any, generation: int | None = 1, **meta: Any) -> dict[str, Any]:
    given = {"name": "c", "namespace": "n", "uid": "u", **meta}
    if generation is not None:
        given["generation"] = generation
    return {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": given, "spec": spec}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, "spec.headGroupSpec: is required"),
        ("text", "spec: should be an object, not text"),
        ({"headGroupSpec": HEAD, "workerGroupSpecs": {}}, "spec.workerGroupSpecs: should be a list, not an object"),
        ({"headGroupSpec": HEAD, "workerGroupSpecs": ["w"]}, "spec.workerGroupSpecs[0]: should be an object, not text"),
        ({"headGroupSpec": HEAD, "suspend": "yes"}, "spec.suspend: should be a valid boolean, not 'yes'"),
        (
            {"headGroupSpec": HEAD, "suspend": "yes", "rayVersion": 2.5},
            "spec.rayVersion: should be text, not a number, and 1 more like it",
        ),
    ],
)
def test_the_field_and_what_it_should_be(spec: Any, expected: str) -> None:
    assert spec_problem(a_cluster(spec)) == expected


@pytest.mark.parametrize(
    "spec",
    [
        {"gcsFaultToleranceOptions": {"redisPassword": "hunter2"}},
        {"gcsFaultToleranceOptions": {"redisPassword": {"value": 8472}}},
        {"headGroupSpec": {**HEAD, "rayStartParams": {"redis-password": 8472}}},
        {"headGroupSpec": {**HEAD, "rayStartParams": "--redis-password hunter2"}},
    ],
)
def test_what_may_be_a_password_is_not_repeated(spec: dict[str, Any]) -> None:
    problem = spec_problem(a_cluster({"headGroupSpec": HEAD, **spec}))
    assert problem
    assert "hunter2" not in problem
    assert "8472" not in problem


def test_only_the_spec_counts_and_of_it_what_is_known() -> None:
    spec = {"headGroupSpec": {**HEAD, "later": 1}, "idleSuspend": {"a": 1}}
    assert spec_problem({**a_cluster(spec, labels=["odd"]), "status": "odd"}) == ""
    assert spec_problem({"kind": "RayCluster", "metadata": {}}) == ""
    assert spec_problem({"kind": "RayService", "metadata": {}, "spec": []}) == ""


@pytest.mark.parametrize("path", sorted(CASES.glob("*/input.yaml")), ids=lambda path: path.parent.name)
def test_golden_inputs_can_be_read(path: Path) -> None:
    problems = [spec_problem(obj) for obj in yaml.safe_load_all(path.read_text()) if obj]
    assert any(problems) is (path.parent.name == REFUSED_BY_SCHEMA)


def test_of_a_spec_that_cannot_be_read_only_its_manager_is_left() -> None:
    root, trouble = Shapes().readable(a_cluster({"managedBy": "kueue.x-k8s.io/multikueue", "headGroupSpec": 1}))
    assert trouble
    assert root["spec"] == {"managedBy": "kueue.x-k8s.io/multikueue"}
    assert root["metadata"]["uid"] == "u"
    assert Shapes().readable(a_cluster([1])).root["spec"] == {}


def test_a_spec_that_can_be_read_is_the_same_object() -> None:
    given = a_cluster({"headGroupSpec": HEAD})
    assert Shapes().readable(given).root is given


def test_each_generation_is_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[Any] = []
    monkeypatch.setattr(shape, "spec_problem", lambda root: checked.append(root) or "")
    shapes = Shapes()
    for generation in (1, 1, 2, 1):
        shapes.readable(a_cluster({}, generation))
    assert len(checked) == 2
    shapes.readable(a_cluster({}, 1, uid="another"))
    for _ in range(2):
        shapes.readable(a_cluster({}, None))
    assert len(checked) == 5
