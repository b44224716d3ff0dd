"""Strategic merge patch, with the merge keys of the built-in kinds' schemas. Pure."""

from __future__ import annotations

from typing import Any

from raybus_localkube.kinds.decode import schemas
from raybus_localkube.patches import PatchError

Json = dict[str, Any]
ORDER, PRIMITIVES, RETAIN, DIRECTIVE = "$setElementOrder/", "$deleteFromPrimitiveList/", "$retainKeys", "$patch"


def kind_of(schema: Json | None, key: str) -> Any:
    return schema["p"].get(key) if schema else None


def struct_of(kind: Any) -> Json | None:
    """The schema of a struct or of a list's or map's items."""
    if isinstance(kind, dict):
        inner = kind.get("r") or struct_name(kind.get("a")) or struct_name(kind.get("m"))
        return schemas().get(inner) if inner else None
    return None


def struct_name(kind: Any) -> str | None:
    return kind.get("r") if isinstance(kind, dict) else None


def apply(document: Json, patch: Json, schema: str) -> Json:
    """The patched document; `document` stays as it is."""
    result = merge_map(document, patch, schemas()[schema])
    if not isinstance(result, dict):
        raise PatchError(400, "the patch deletes the object")
    return result


def merge_map(target: Json, patch: Json, schema: Json | None) -> Any:
    directive = patch.get(DIRECTIVE)
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != DIRECTIVE}
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise PatchError(400, f"unknown patch type found: {directive}")
    result = dict(target)
    if RETAIN in patch:
        result = {key: value for key, value in result.items() if key in patch[RETAIN]}
    for key, value in patch.items():
        if key.startswith(PRIMITIVES):
            name = key.removeprefix(PRIMITIVES)
            result[name] = [item for item in result.get(name) or [] if item not in value]
        elif not key.startswith("$"):
            merge_field(result, key, value, patch, kind_of(schema, key))
    return result


def merge_field(result: Json, key: str, value: Any, patch: Json, kind: Any) -> None:
    current = result.get(key)
    if value is None:
        result.pop(key, None)
    elif isinstance(value, dict):
        inner = struct_of(kind)
        if isinstance(current, dict):
            result[key] = merge_map(current, value, inner)
        else:
            result[key] = merge_map({}, value, inner)
    elif isinstance(value, list) and isinstance(kind, dict) and "merge" in kind.get("ps", "").split(","):
        result[key] = merge_list(current if isinstance(current, list) else [], value, kind, patch.get(ORDER + key))
    elif isinstance(value, list):
        result[key] = [item for item in value if not (isinstance(item, dict) and DIRECTIVE in item)]
    else:
        result[key] = value


def merge_list(current: list[Any], patch: list[Any], kind: Json, order: list[Any] | None) -> list[Any]:
    key = kind.get("mk")
    if key is None:
        merged = current + [item for item in patch if item not in current]
        return ordered(merged, order, None)
    if any(isinstance(item, dict) and item.get(DIRECTIVE) == "replace" for item in patch):
        return [item for item in patch if not (isinstance(item, dict) and DIRECTIVE in item)]
    inner = struct_of(kind)
    result, fresh = list(current), []
    for item in patch:
        if not isinstance(item, dict) or key not in item:
            raise PatchError(500, f"map: {go_map(item)} does not contain declared merge key: {key}")
        position = next((i for i, other in enumerate(result) if other.get(key) == item[key]), None)
        if item.get(DIRECTIVE) == "delete":
            result = [other for other in result if other.get(key) != item[key]]
        elif position is not None:
            result[position] = merge_map(result[position], item, inner)
        else:
            fresh.append(merge_map({}, item, inner))
    # New items stand before the old ones, unless an order says otherwise.
    return ordered(fresh + result, order, key)


def go_map(value: Any) -> str:
    if isinstance(value, dict):
        return "map[" + " ".join(f"{key}:{go_map(value[key])}" for key in sorted(value)) + "]"
    return str(value)


def ordered(items: list[Any], order: list[Any] | None, key: str | None) -> list[Any]:
    """Items in the given order; those it does not name keep their place relative to what stood before them."""
    if not order:
        return items
    names = [entry.get(key) if isinstance(entry, dict) and key else entry for entry in order]
    named: list[Any] = []
    rest: list[Any] = []
    for item in items:
        name = item.get(key) if key else item
        (named if name in names else rest).append(item)
    named.sort(key=lambda item: names.index(item.get(key) if key else item))
    return rest + named
