"""Request bodies: JSON, YAML or protobuf to an object, and the server's words where that fails."""

from __future__ import annotations

import json
import re
from typing import Any

import orjson
import yaml

from raybus_localkube.kinds.decode import with_duplicates
from raybus_localkube.kinds.resource import Resource
from raybus_localkube.server import errors, protobuf
from raybus_localkube.server.messages import Request

Json = dict[str, Any]
JSON, YAML, PROTOBUF = "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"
GO_TYPE = r'struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }'
BODY_LIMIT = 3 << 20


def media_type(content_type: str | None) -> str:
    return (content_type or JSON).partition(";")[0].strip().lower() or JSON


def excerpt(raw: bytes) -> str:
    """The body as it is quoted: as text if it may be an object, else in hex, shortened."""
    if not raw:
        return "<empty>"
    text = raw[:30].decode(errors="replace") if raw.lstrip()[:1] == b"{" else raw[:30].hex()
    return text + (" ..." if len(raw) > 30 else "")


def go_json_error(raw: bytes) -> str:
    """What Go's parser says about malformed JSON."""
    text = raw.decode(errors="replace")
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        rest = text[error.pos :].lstrip() if error.pos < len(text) else ""
        if not rest or error.pos >= len(text):
            return "unexpected end of JSON input"
        if error.msg.startswith("Extra data"):
            return f"invalid character '{rest[0]}' after top-level value"
        if error.msg.startswith("Expecting value"):
            return f"invalid character '{rest[0]}' looking for beginning of value"
        if error.msg.startswith("Expecting property name"):
            if rest[0] == '"' or not re.match(r".*", rest):
                return "unexpected end of JSON input"
            return f"invalid character '{rest[0]}' looking for beginning of object key string"
        if error.msg.startswith("Unterminated string"):
            return "unexpected end of JSON input"
        return f"invalid character '{rest[0]}'"
    return "invalid JSON"


def parse(request: Request, kind: str) -> tuple[Any, list[str]]:
    """The decoded body, and what strict YAML found. ApiError 400 or 415."""
    media = media_type(request.content_type)
    if len(request.body) > BODY_LIMIT:
        raise errors.ApiError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {BODY_LIMIT}")
    if media == YAML:
        return parse_yaml(request.body, kind)
    if media == PROTOBUF:
        return protobuf.decode(request.body, kind), []
    if media != JSON:
        raise errors.unsupported_media_type((JSON, YAML, PROTOBUF))
    try:
        parsed = orjson.loads(request.body)
    except orjson.JSONDecodeError:
        problem = f"couldn't get version/kind; json parse error: {go_json_error(request.body)}"
        raise unrecognized(kind, problem, request.body) from None
    if isinstance(parsed, dict):
        return with_duplicates(request.body, parsed), []
    return parsed, []


def unrecognized(kind: str, problem: str, raw: bytes) -> errors.ApiError:
    return errors.bad_request(
        f"the object provided is unrecognized (must be of type {kind}): {problem} ({excerpt(raw)})"
    )


def parse_yaml(raw: bytes, kind: str) -> tuple[Any, list[str]]:
    """The first document of a YAML stream."""
    try:
        nodes = yaml.compose_all(raw, Loader=yaml.CSafeLoader)
        node = next((node for node in nodes if node is not None), None)
        if node is None:
            return None, []
        twice = duplicate_keys(node)
        loader = yaml.CSafeLoader(b"")
        return times_to_text(loader.construct_document(node)), twice
    except yaml.YAMLError as error:
        problem = getattr(error, "problem", None) or str(error)
        raise unrecognized(kind, f"yaml: {problem}", raw) from None


def duplicate_keys(node: yaml.Node) -> list[str]:
    found: list[str] = []
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if key.value in seen:
                found.append(f'line {key.start_mark.line + 1}: key "{key.value}" already set in map')
            seen.add(key.value)
            found += duplicate_keys(value)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            found += duplicate_keys(item)
    return found


def times_to_text(value: Any) -> Any:
    """YAML 1.1 reads dates; JSON has none."""
    if isinstance(value, dict):
        return {str(key): times_to_text(item) for key, item in value.items()}
    if isinstance(value, list):
        return [times_to_text(item) for item in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else value.isoformat()


def check_type(parsed: Any, resource: Resource, version: str, raw: bytes) -> Json:
    """The body as an object of this resource's kind; a built-in one may leave kind and apiVersion out."""
    kind = resource.kind
    if parsed is None and resource.builtin:
        return {}
    if not isinstance(parsed, dict):
        shape = {list: "array", str: "string", bool: "bool", int: "number", float: "number"}.get(type(parsed), "null")
        problem = f"couldn't get version/kind; json parse error: json: cannot unmarshal {shape} into Go value of type {GO_TYPE}"
        raise unrecognized(kind, problem, raw)
    given_kind, given_version = parsed.get("kind"), parsed.get("apiVersion")
    if resource.builtin:
        check_builtin_type(given_kind, given_version, resource, version)
        return parsed
    if not given_kind:
        problem = f"Object 'Kind' is missing in '{raw.decode(errors='replace')}'"
        raise unrecognized(kind, problem, raw)
    expected = resource.api_version(version)
    if given_version != expected:
        raise errors.bad_request(
            f"the API version in the data ({given_version or ''}) does not match the expected API version ({expected})"
        )
    if given_kind != kind:
        name = parsed.get("metadata", {}).get("name", "") if isinstance(parsed.get("metadata"), dict) else ""
        raise errors.invalid_object(
            resource.group, given_kind, name, [errors.invalid("kind", given_kind, f"must be {kind}")]
        )
    return parsed


def type_problem(given_kind: Any, given_version: Any, resource: Resource, version: str) -> str:
    """Why a built-in kind cannot be read from what the body says it is; empty if it can."""
    expected = resource.api_version(version)
    kind, api_version = given_kind or resource.kind, given_version or expected
    if kind == resource.kind and api_version != expected:
        return f'no kind "{kind}" is registered for version "{api_version}" in scheme "pkg/runtime/scheme.go:111"'
    if kind != resource.kind:
        short = str(api_version).rpartition("/")[2]
        package = resource.group.partition(".")[0] or "core"
        return f"converting ({short}.{kind}) to ({package}.{resource.kind}): unknown conversion"
    return ""


def check_builtin_type(given_kind: Any, given_version: Any, resource: Resource, version: str) -> None:
    problem = type_problem(given_kind, given_version, resource, version)
    if problem:
        kind = given_kind or resource.kind
        short = str(given_version or resource.api_version(version)).rpartition("/")[2]
        raise errors.bad_request(f'{kind} in version "{short}" cannot be handled as a {resource.kind}: {problem}')
