"""JSON patch (RFC 6902) with the habits of the Go library that API servers use. Pure.

`replace` of a member that is not there sets it (Ray's autoscaler relies on it); negative indexes count from the end; `test` for
null succeeds where nothing is.
"""

from __future__ import annotations

from typing import Any

from raybus_localkube.patches import PatchError

MISSING = object()


def refuse(message: str) -> PatchError:
    return PatchError(422, message)


def pointer(path: Any) -> list[str]:
    if not isinstance(path, str) or (path and not path.startswith("/")):
        raise refuse(f"bad path {path!r}")
    return [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]


def index_of(part: str, *, last: int) -> int:
    try:
        index = int(part)
    except ValueError:
        raise refuse(f"bad index {part!r}") from None
    if index < 0:
        index += last + 1
    if not 0 <= index <= last:
        raise refuse(f"index {part} out of bounds")
    return index


def child(parent: Any, part: str) -> Any:
    if isinstance(parent, dict):
        return parent.get(part, MISSING)
    if isinstance(parent, list):
        return parent[index_of(part, last=len(parent) - 1)] if parent else MISSING
    return MISSING


def locate(document: Any, path: Any) -> tuple[Any, str]:
    """The parent of a path, and its last part."""
    parts = pointer(path)
    if not parts:
        raise refuse("the whole document cannot be patched")
    for part in parts[:-1]:
        document = child(document, part)
        if not isinstance(document, (dict, list)):
            raise refuse(f"missing parent of {path}")
    return document, parts[-1]


def add(document: Any, path: Any, value: Any) -> None:
    parent, part = locate(document, path)
    if isinstance(parent, dict):
        parent[part] = value
    elif part == "-":
        parent.append(value)
    else:
        parent.insert(index_of(part, last=len(parent)), value)


def remove(document: Any, path: Any) -> Any:
    parent, part = locate(document, path)
    if isinstance(parent, dict):
        if part not in parent:
            raise refuse(f"nothing at {path}")
        return parent.pop(part)
    return parent.pop(index_of(part, last=len(parent) - 1))


def replace(document: Any, path: Any, value: Any) -> None:
    parent, part = locate(document, path)
    if isinstance(parent, dict):
        parent[part] = value
    else:
        parent[index_of(part, last=len(parent) - 1)] = value


def find(document: Any, path: Any) -> Any:
    for part in pointer(path):
        document = child(document, part)
        if document is MISSING:
            return MISSING
    return document


def step(document: Any, operation: Any) -> None:
    if not isinstance(operation, dict):
        raise refuse("an operation must be an object")
    verb, path = operation.get("op"), operation.get("path")
    if verb in ("add", "replace") and "value" not in operation:
        raise refuse("value is missing")
    match verb:
        case "add":
            add(document, path, operation["value"])
        case "remove":
            remove(document, path)
        case "replace":
            replace(document, path, operation["value"])
        case "test":
            found = find(document, path)
            if (None if found is MISSING else found) != operation.get("value"):
                raise refuse(f"testing value {path} failed")
        case "move":
            add(document, path, remove(document, operation.get("from")))
        case "copy":
            found = find(document, operation.get("from"))
            if found is MISSING:
                raise refuse(f"nothing at {operation.get('from')}")
            add(document, path, duplicate(found))
        case _:
            raise refuse(f"unexpected kind {verb}")


def duplicate(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: duplicate(item) for key, item in value.items()}
    return [duplicate(item) for item in value] if isinstance(value, list) else value


def apply(document: Any, operations: list[Any]) -> Any:
    """The patched document. `document` is changed in place; the caller hands over a fresh one."""
    for operation in operations:
        step(document, operation)
    return document
