"""From a wire type to the structural schema that a CustomResourceDefinition wants. Pure.

pydantic writes JSON Schema with references, titles and unions with null; the API server wants everything in place, without
titles, and null only where a field says `nullable`. `x-core` stands for a core type out of data/core.json.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

from raybus.api.meta import Wire

Schema = dict[str, Any]
_DROPPED = ("title", "description", "$defs", "x-required")


def structural(model: type[Wire]) -> Schema:
    """The schema of `model`, self-contained: type object with properties, required, defaults and extensions."""
    document = model.model_json_schema(by_alias=True, mode="validation")
    return _convert(document, document.get("$defs", {}))


@cache
def core_definitions() -> dict[str, Schema]:
    """Core types by short name, as generate_podschema.py left them; references are {"$ref": short name}. Do not change."""
    definitions: dict[str, Schema] = json.loads(files("raybus.api").joinpath("data/core.json").read_text())[
        "definitions"
    ]
    return definitions


def core(name: str) -> Schema:
    """The schema of a core type such as "PodTemplateSpec", references resolved."""
    resolved: Schema = _resolve(core_definitions()[name])
    return resolved


def _resolve(node: Any) -> Any:
    if isinstance(node, list):
        return [_resolve(each) for each in node]
    if not isinstance(node, dict):
        return node
    resolved = core(node["$ref"]) if "$ref" in node and isinstance(node["$ref"], str) else {}
    return resolved | {key: _resolve(value) for key, value in node.items() if key != "$ref" or isinstance(value, dict)}


def _convert(node: Schema, defs: dict[str, Schema]) -> Schema:
    extras = {
        key: value for key, value in node.items() if key.startswith("x-kubernetes-") or key in ("nullable", "minimum")
    }
    default = {"default": node["default"]} if node.get("default") is not None else {}
    own = {"minItems": node["minItems"]} if "minItems" in node else {}
    own |= {"minLength": node["minLength"]} if "minLength" in node else {}
    if "x-core" in node:
        return core(node["x-core"]) | extras | default
    if "$ref" in node:
        return _convert(defs[node["$ref"].removeprefix("#/$defs/")], defs) | extras | default
    if "anyOf" in node:
        (choice,) = [each for each in node["anyOf"] if each.get("type") != "null"]
        return _convert(choice, defs) | extras | own | default
    return _plain(node, defs) | default


def _plain(node: Schema, defs: dict[str, Schema]) -> Schema:
    out = {key: value for key, value in node.items() if key not in (*_DROPPED, "default", "const")}
    if "const" in node:  # a Literal of one value; structural schemas know only enum
        out["enum"] = [node["const"]]
    if isinstance(out.get("additionalProperties"), dict):
        out["additionalProperties"] = _convert(out["additionalProperties"], defs)
    else:
        out.pop("additionalProperties", None)
    if "items" in out:
        out["items"] = _convert(out["items"], defs)
    if "properties" in out:
        out["required"] = sorted(
            {*out.get("required", ())} | {name for name, child in out["properties"].items() if child.get("x-required")}
        )
        if not out["required"]:
            del out["required"]
        out["properties"] = {name: _convert(child, defs) for name, child in out["properties"].items()}
    return out
