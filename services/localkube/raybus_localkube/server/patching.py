"""PATCH: the patch types, applied to the object as the request's version shows it."""

from __future__ import annotations

from typing import Any

import orjson

from raybus_localkube.kinds.decode import DecodeError, with_duplicates
from raybus_localkube.kinds.resource import Call, Resource
from raybus_localkube.kinds.typed import TypedStrategy
from raybus_localkube.patches import PatchError, json_patch, merge_patch, strategic_patch
from raybus_localkube.server import bodies, errors
from raybus_localkube.server.messages import Request
from raybus_localkube.server.routing import Target
from raybus_localkube.server.writing import (
    Written,
    check_name,
    check_namespace,
    check_version,
    handled_as,
    parse_version,
    update,
)  # fmt: skip

Json = dict[str, Any]
JSON_PATCH, MERGE_PATCH = "application/json-patch+json", "application/merge-patch+json"
STRATEGIC_PATCH, APPLY_PATCH = "application/strategic-merge-patch+json", "application/apply-patch+yaml"


def accepted(resource: Resource) -> tuple[str, ...]:
    """The patch types of a resource. Server-side apply is not served: kubectl's own apply does not need it."""
    return (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH) if resource.builtin else (JSON_PATCH, MERGE_PATCH)


def parse_patch(request: Request, media: str) -> Any:
    try:
        parsed = orjson.loads(request.body)
    except orjson.JSONDecodeError:
        raise errors.bad_request(f"error decoding patch: {bodies.go_json_error(request.body)}") from None
    if media == JSON_PATCH:
        if not isinstance(parsed, list):
            shape = "object" if isinstance(parsed, dict) else "string"
            text = f"json: cannot unmarshal {shape} into Go value of type jsonpatch.Patch"
            raise errors.bad_request(f"error decoding patch: {text}")
        return parsed
    if parsed is None:
        raise errors.bad_request("Invalid JSON Patch")
    if not isinstance(parsed, dict):
        shape = {list: "array", str: "string", bool: "bool"}.get(type(parsed), "number")
        raise errors.bad_request(
            f"error decoding patch: json: cannot unmarshal {shape} into Go value of type map[string]interface {{}}"
        )
    return with_duplicates(request.body, parsed)


def patch(call: Call, request: Request, resource: Resource, target: Target) -> Written:
    namespace, name, version = target.namespace or "", target.name, target.version
    media = bodies.media_type(request.content_type)
    if media not in accepted(resource):
        hint = "; server-side apply is not served by localkube" if media == APPLY_PATCH else ""
        raise errors.unsupported_media_type(accepted(resource), hint)
    record = call.store.get(resource.key, namespace, name)
    if record is None:
        raise resource.not_found(name)
    parsed = parse_patch(request, media)
    current: Json = orjson.loads(resource.render(record, version))
    try:
        patched = apply(media, parsed, current, resource)
    except PatchError as error:
        raise error.refusal() from None
    obj = read_patched(call, resource, target.version, patched, shown_patch(media, parsed, patched))
    meta = obj["metadata"]
    check_name(meta.get("name", ""), name)
    check_namespace(resource, namespace, obj)
    check_version(resource, record, parse_version(meta.get("resourceVersion", "")))
    return Written(update(call, resource, record, obj, target.subresource))


def apply(media: str, parsed: Any, current: Json, resource: Resource) -> Any:
    if media == JSON_PATCH:
        return json_patch.apply(current, parsed)
    if media == MERGE_PATCH:
        return merge_patch.apply(current, parsed)
    assert isinstance(resource.strategy, TypedStrategy)
    return strategic_patch.apply(current, parsed, resource.strategy.schema)


def shown_patch(media: str, parsed: Any, patched: Any) -> str:
    """What the refusal of a patch quotes: of a strategic one the patch, else the result."""
    return go_map(parsed) if media == STRATEGIC_PATCH else orjson.dumps(patched).decode()


def read_patched(call: Call, resource: Resource, version: str, patched: Any, shown: str) -> Json:
    """The result of a patch as an object; what cannot be read is the patch's fault (422)."""

    def refuse(message: str) -> errors.ApiError:
        return errors.invalid_object("", "", "", [errors.invalid("patch", shown, message)])

    if resource.builtin:
        problem = bodies.type_problem(patched.get("kind"), patched.get("apiVersion"), resource, version)
        if problem:
            raise refuse(problem)
    else:
        check_custom_type(resource, version, patched)
    try:
        obj, problems = resource.strategy.decode(patched, resource, version, call)
    except DecodeError as error:
        raise (refuse if resource.builtin else handled_as(resource, version))(str(error)) from None
    call.strict(problems, refuse)
    return obj


def check_custom_type(resource: Resource, version: str, patched: Json) -> None:
    name = (patched.get("metadata") or {}).get("name", "")
    if patched.get("kind") != resource.kind:
        cause = errors.invalid("kind", patched.get("kind"), f"must be {resource.kind}")
        raise errors.invalid_object(resource.group, str(patched.get("kind")), name, [cause])
    expected = resource.api_version(version)
    if patched.get("apiVersion") != expected:
        cause = errors.invalid("apiVersion", patched.get("apiVersion"), f"must be {expected}")
        raise errors.invalid_object(resource.group, resource.kind, name, [cause])


def go_map(value: Any) -> str:
    """A value as Go prints a map: `map[a:1 b:[x]]`."""
    if isinstance(value, dict):
        return "map[" + " ".join(f"{key}:{go_map(value[key])}" for key in sorted(value)) + "]"
    if isinstance(value, list):
        return "[" + " ".join(go_map(item) for item in value) + "]"
    if value is None or isinstance(value, bool):
        return "<nil>" if value is None else str(value).lower()
    return str(value)
