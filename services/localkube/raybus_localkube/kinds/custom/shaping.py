"""Pruning and defaulting by a structural schema. Values are changed in place. Pure."""

from __future__ import annotations

from typing import Any

from raybus_localkube.kinds.decode import Decoder, Pairs

Json = dict[str, Any]
PRESERVE = "x-kubernetes-preserve-unknown-fields"
EMBEDDED = "x-kubernetes-embedded-resource"
INT64 = 1 << 63


def prune(value: Any, schema: Json, path: str, problems: list[str], *, preserve: bool = False) -> None:
    """Drop what the schema does not know; paths of what was dropped, and of keys given twice, go to `problems`."""
    if isinstance(value, dict):
        prune_object(value, schema, path, problems, preserve=preserve)
    elif isinstance(value, list):
        items = schema.get("items") or {}
        keep = preserve if not items else False
        for index, item in enumerate(value):
            prune(item, items, f"{path}[{index}]", problems, preserve=keep or bool(items.get(PRESERVE)))


def prune_object(value: Json, schema: Json, path: str, problems: list[str], *, preserve: bool) -> None:
    prefix = f"{path}." if path else ""
    if type(value) is Pairs:
        problems += [f'duplicate field "{prefix}{key}"' for key in value.twice]
    properties, additional = schema.get("properties") or {}, schema.get("additionalProperties")
    keep = preserve or bool(schema.get(PRESERVE))
    embedded = bool(schema.get(EMBEDDED))
    for key in list(value):
        inner = properties.get(key)
        if inner is not None:
            prune(value[key], inner, prefix + key, problems, preserve=bool(inner.get(PRESERVE)) or (keep and not inner))
        elif isinstance(additional, dict):
            prune(value[key], additional, prefix + key, problems, preserve=bool(additional.get(PRESERVE)))
        elif additional or keep or (embedded and key in ("apiVersion", "kind", "metadata")):
            if keep:
                prune(value[key], {}, prefix + key, problems, preserve=True)
        else:
            problems.append(f'unknown field "{prefix}{key}"')
            del value[key]


def read_embedded(value: Any, schema: Json, path: str, problems: list[str]) -> None:
    """Metadata of embedded objects is read as metadata: unknown fields of it are dropped."""
    if isinstance(value, dict):
        if schema.get(EMBEDDED) and path and isinstance(value.get("metadata"), dict):
            decoder = Decoder()
            value["metadata"] = decoder.struct(value["metadata"], "ObjectMeta", "ObjectMeta", f"{path}.metadata.", "")
            problems += decoder.strict
        properties, additional = schema.get("properties") or {}, schema.get("additionalProperties")
        for key, item in value.items():
            inner = properties.get(key) or (additional if isinstance(additional, dict) else None)
            if inner:
                read_embedded(item, inner, f"{path}.{key}" if path else key, problems)
    elif isinstance(value, list) and schema.get("items"):
        for index, item in enumerate(value):
            read_embedded(item, schema["items"], f"{path}[{index}]", problems)


def has_embedded(schema: Any, known: dict[int, bool]) -> bool:
    """Whether `read_embedded` has anything to do for this schema; `known` says it of parts that stand more than once."""
    if not isinstance(schema, dict):
        return False
    if id(schema) not in known:
        inner = [*(schema.get("properties") or {}).values(), schema.get("items"), schema.get("additionalProperties")]
        known[id(schema)] = bool(schema.get(EMBEDDED)) or any(has_embedded(item, known) for item in inner)
    return known[id(schema)]


def default(value: Any, schema: Json) -> None:
    """Fill in defaults at every level; nulls that may not be become the default, or go."""
    if isinstance(value, dict):
        properties = schema.get("properties")
        if properties:
            for key, inner in properties.items():
                if "default" in inner and (key not in value or (value[key] is None and not inner.get("nullable"))):
                    value[key] = fresh(inner["default"])
                elif key in value and value[key] is None and not inner.get("nullable") and not may_be_null(inner):
                    del value[key]
        additional = schema.get("additionalProperties")
        for key, item in value.items():
            if isinstance(item, (dict, list)):
                inner = (properties or {}).get(key)
                if inner is None and isinstance(additional, dict):
                    inner = additional
                if inner:
                    default(item, inner)
    elif isinstance(value, list):
        items = schema.get("items")
        if items:
            for item in value:
                if isinstance(item, (dict, list)):
                    default(item, items)


def may_be_null(schema: Json) -> bool:
    """A schema without a type takes null as it is."""
    return not schema.get("type") and not schema.get("x-kubernetes-int-or-string")


def fresh(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: fresh(item) for key, item in value.items()}
    return [fresh(item) for item in value] if isinstance(value, list) else value


def plain_numbers(value: Any) -> Any:
    """1.0 is 1, and integers that do not fit 64 bits are floats: how the server's decoder reads numbers."""
    if isinstance(value, dict):
        for key, item in value.items():
            if isinstance(item, (dict, list, float, int)) and not isinstance(item, bool):
                value[key] = plain_numbers(item)
        return value
    if isinstance(value, list):
        return [plain_numbers(item) for item in value]
    if isinstance(value, float) and value.is_integer() and abs(value) < INT64:
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool) and not -INT64 <= value < INT64:
        return float(value)
    return value
