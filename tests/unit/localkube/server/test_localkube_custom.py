"""Custom resources: pruning, defaults, validation, CEL, definitions."""

from __future__ import annotations

from typing import Any

import pytest

from raybus_localkube.kinds.custom import rules, shaping, validation
from raybus_localkube.kinds.custom.sharing import Sharing
from support.localcore import DEFINITIONS, Api, with_default_namespace

SPEC: dict[str, Any] = {
    "type": "object",
    "required": ["size"],
    "x-kubernetes-validations": [{"rule": "!has(self.low) || self.low <= self.replicas", "message": "low must not exceed replicas", "fieldPath": ".low"}],
    "properties": {
        "size": {"type": "string", "enum": ["small", "large"]},
        "replicas": {"type": "integer", "default": 1, "minimum": 0, "maximum": 10},
        "low": {"type": "integer"},
        "owner": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf", "messageExpression": "'was ' + oldSelf"}]},
        "port": {"x-kubernetes-int-or-string": True},
        "code": {"type": "string", "pattern": "^[A-Z]+$", "maxLength": 3},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "parts": {
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "properties": {"name": {"type": "string"}, "count": {"type": "integer", "default": 1}}},
        },
        "deep": {"type": "object", "default": {}, "properties": {"level": {"type": "integer", "default": 3}}},
        "note": {"type": "string", "nullable": True},
    },
}  # fmt: skip
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"spec": SPEC, "status": {"type": "object", "properties": {"phase": {"type": "string"}}}},
}


def test_unknown_fields_are_pruned_and_named() -> None:
    obj = {
        "spec": {
            "size": "small",
            "odd": 1,
            "free": {"any": {"thing": 1}},
            "parts": [{"name": "a", "odd": 1}],
            "labels": {"x": "y"},
        }
    }
    problems: list[str] = []
    shaping.prune(obj, SCHEMA, "", problems)
    assert sorted(problems) == ['unknown field "spec.odd"', 'unknown field "spec.parts[0].odd"']
    assert obj == {
        "spec": {"size": "small", "free": {"any": {"thing": 1}}, "parts": [{"name": "a"}], "labels": {"x": "y"}}
    }


def test_defaults_are_set_at_every_level_and_not_shared() -> None:
    first: dict[str, Any] = {
        "spec": {"size": "small", "parts": [{"name": "a"}], "replicas": None, "note": None, "code": None}
    }
    second: dict[str, Any] = {"spec": {"size": "small"}}
    shaping.default(first, SCHEMA)
    shaping.default(second, SCHEMA)
    assert first["spec"] == {
        "size": "small",
        "parts": [{"name": "a", "count": 1}],
        "replicas": 1,
        "note": None,
        "deep": {"level": 3},
    }
    second["spec"]["deep"]["level"] = 9
    assert first["spec"]["deep"]["level"] == 3
    assert SPEC["properties"]["deep"]["default"] == {}


@pytest.mark.parametrize(
    ("spec", "texts"),
    [
        ({}, ["spec.size: Required value"]),
        ({"size": "huge"}, ['spec.size: Unsupported value: "huge": supported values: "small", "large"']),
        ({"size": "small", "replicas": 11}, ["spec.replicas: Invalid value: 11: spec.replicas in body should be less than or equal to 10"]),
        ({"size": "small", "replicas": "x"}, ['spec.replicas: Invalid value: "string": spec.replicas in body must be of type integer: "string"']),
        ({"size": "small", "code": "ABCD"}, ["spec.code: Too long: may not be more than 3 bytes"]),
        ({"size": "small", "code": "a"}, ['spec.code: Invalid value: "a": spec.code in body should match \'^[A-Z]+$\'']),
        ({"size": "small", "port": 1.5}, ['spec.port: Invalid value: "number": spec.port in body must be of type integer,string: "number"']),
        ({"size": "small", "parts": [{"name": "a"}, {"name": "a"}]}, ['spec.parts[1]: Duplicate value: {"name":"a"}']),
        ({"size": "small", "port": "http", "note": None}, []),
    ],
)  # fmt: skip
def test_validation_speaks_as_the_server_does(spec: dict[str, Any], texts: list[str]) -> None:
    assert [cause.text() for cause in validation.validate({"spec": spec}, SCHEMA)] == texts


def test_what_did_not_change_is_not_held_against_a_tightened_schema() -> None:
    old = {"spec": {"size": "huge", "parts": [{"name": "a", "count": "x"}]}}
    assert validation.validate({"spec": {**old["spec"], "replicas": 2}}, SCHEMA, old) == []
    assert len(validation.validate({"spec": {"size": "vast"}}, SCHEMA, old)) == 1
    assert [c.field for c in validation.validate({"spec": {}}, SCHEMA, {"spec": {}})] == ["spec.size"]


def test_rules_name_field_and_message_and_look_at_what_changed() -> None:
    node = rules.build(SCHEMA)
    bad = {"spec": {"low": 3, "replicas": 1, "owner": "me"}}
    causes = rules.evaluate(node, bad, validation.MISSING)
    assert [cause.text() for cause in causes] == ["spec.low: Invalid value: low must not exceed replicas"]
    moved = rules.evaluate(node, {"spec": {"owner": "you"}}, {"spec": {"owner": "me"}})
    assert [cause.text() for cause in moved] == ["spec.owner: Invalid value: was me"]
    assert rules.evaluate(node, bad, bad) == []


def test_a_rule_that_is_no_cel_is_found_at_once() -> None:
    with pytest.raises(rules.RuleError, match="compilation failed"):
        rules.build({"type": "object", "x-kubernetes-validations": [{"rule": "self ==="}]})


def test_equal_parts_of_schemas_become_one_object() -> None:
    part = {"type": "object", "properties": {"a": {"type": "string", "description": "words"}}}
    sharing = Sharing()
    shared = sharing.share(
        {"one": part, "two": {"type": "object", "properties": {"a": {"type": "string"}}}, "n": 1, "b": True}
    )
    assert shared["one"] is shared["two"]
    assert shared == {
        "one": {"type": "object", "properties": {"a": {"type": "string"}}},
        "two": shared["one"],
        "n": 1,
        "b": True,
    }


def definition(**version: Any) -> dict[str, Any]:
    v1 = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": SCHEMA},
        "subresources": {"status": {}},
        **version,
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "things.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"}, "versions": [v1]},
    }  # fmt: skip


THINGS = "/apis/example.com/v1/namespaces/default/things"


def thing(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "example.com/v1",
        "kind": "Thing",
        "metadata": {"name": name},
        "spec": {"size": "small", **spec},
    }


async def test_a_definition_is_served_at_once_and_its_objects_are_shaped() -> None:
    api = await with_default_namespace(Api())
    await api.create(DEFINITIONS, definition())
    answer = await api.send("POST", THINGS, thing("a", odd=1))
    made = await api.ask("GET", f"{THINGS}/a")
    assert made[1]["spec"] == {"size": "small", "replicas": 1, "deep": {"level": 3}}
    assert answer.headers == [("Warning", '299 - "unknown field \\"spec.odd\\""')]
    status, refused = await api.ask("POST", THINGS, thing("b", odd=1), query={"fieldValidation": "Strict"})
    assert (status, refused["message"]) == (
        400, 'Thing in version "v1" cannot be handled as a Thing: strict decoding error: unknown field "spec.odd"',
    )  # fmt: skip


async def test_status_and_spec_are_written_apart_and_generation_counts_spec() -> None:
    api = await with_default_namespace(Api())
    await api.create(DEFINITIONS, definition())
    await api.create(THINGS, {**thing("a"), "status": {"phase": "Lies"}})
    merge = "application/merge-patch+json"
    _, one = await api.ask(
        "PATCH", f"{THINGS}/a", {"spec": {"replicas": 2}, "status": {"phase": "No"}}, content_type=merge
    )
    assert (one["metadata"]["generation"], "status" in one) == (2, False)
    _, two = await api.ask(
        "PATCH", f"{THINGS}/a/status", {"spec": {"replicas": 9}, "status": {"phase": "Yes"}}, content_type=merge
    )
    assert (two["metadata"]["generation"], two["status"], two["spec"]["replicas"]) == (2, {"phase": "Yes"}, 2)


async def test_a_changed_definition_gives_stored_objects_its_defaults() -> None:
    api = await with_default_namespace(Api())
    await api.create(DEFINITIONS, definition())
    made = await api.create(THINGS, thing("a"))
    add = [
        {
            "op": "add",
            "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/extra",
            "value": {"type": "integer", "default": 7},
        }
    ]
    status, _ = await api.ask(
        "PATCH", f"{DEFINITIONS}/things.example.com", add, content_type="application/json-patch+json"
    )
    _, found = await api.ask("GET", f"{THINGS}/a")
    assert (status, found["spec"]["extra"]) == (200, 7)
    assert found["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


async def test_a_deleted_definition_takes_its_objects_along_once_finalizers_let_go() -> None:
    api = await with_default_namespace(Api())
    await api.create(DEFINITIONS, definition())
    held = thing("held")
    held["metadata"]["finalizers"] = ["example.com/hold"]
    await api.create(THINGS, held)
    await api.create(THINGS, thing("free"))
    await api.ask("DELETE", f"{DEFINITIONS}/things.example.com")
    assert [i["metadata"]["name"] for i in (await api.ask("GET", THINGS))[1]["items"]] == ["held"]
    assert (await api.ask("POST", THINGS, thing("late")))[0] == 403
    patch = {"metadata": {"finalizers": None}}
    await api.ask("PATCH", f"{THINGS}/held", patch, content_type="application/merge-patch+json")
    assert (await api.ask("GET", f"{DEFINITIONS}/things.example.com"))[0] == 404
    assert (await api.send("GET", THINGS)).status == 404


async def test_a_definition_with_a_broken_rule_is_refused() -> None:
    api = Api()
    broken = definition()
    schema = {"type": "object", "x-kubernetes-validations": [{"rule": "self ==="}]}
    broken["spec"]["versions"][0]["schema"] = {"openAPIV3Schema": schema}
    status, answer = await api.ask("POST", DEFINITIONS, broken)
    assert status == 422
    assert "compilation failed" in answer["message"]


async def test_two_versions_are_two_views_of_one_object() -> None:
    api = await with_default_namespace(Api())
    two = definition()
    two["spec"]["versions"].append(
        {
            "name": "v1alpha1",
            "served": True,
            "storage": False,
            "deprecated": True,
            "schema": {"openAPIV3Schema": SCHEMA},
        }
    )
    await api.create(DEFINITIONS, two)
    await api.create(THINGS, thing("a"))
    answer = await api.send("GET", "/apis/example.com/v1alpha1/namespaces/default/things/a")
    assert answer.headers == [("Warning", '299 - "example.com/v1alpha1 Thing is deprecated"')]
    watch = await api.watch("/apis/example.com/v1alpha1/things")
    kind, obj = await watch.next()
    assert (kind, obj["apiVersion"], obj["metadata"]["name"]) == ("ADDED", "example.com/v1alpha1", "a")
    await watch.close()
