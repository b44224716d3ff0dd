"""What of an object's body leaves Kubernetes (docs/contracts.md, "Projection"). Pure.

A projection is compiled once into a trie of its paths; objects are never changed, what is kept is shared with the original.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from raybus.decide.actions import Json
from raybus.decide.routes import FULL, Projection

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_LIST = "[]"
_ALWAYS = ("apiVersion", "kind")
_IDENTITY = ("name", "namespace", "uid", "resourceVersion", "generation")

# A node of the trie: {} keeps everything below, otherwise only the named keys; a lone "[]" steps into a list's items.
Trie = dict[str, Any]


def union(projections: Iterable[Projection]) -> Projection:
    """One projection that keeps what any of them keeps. Its name joins theirs by `+`; with `full` among them it is full."""
    by_name = {projection.name: projection for projection in projections}
    if not by_name or any(not projection.paths for projection in by_name.values()):
        return FULL
    if len(by_name) == 1:
        return next(iter(by_name.values()))
    names = sorted(by_name)
    return Projection("+".join(names), tuple(dict.fromkeys(path for name in names for path in by_name[name].paths)))


def covers(header: str, declared: Iterable[str]) -> bool:
    """Whether a body whose `ray-projection` is `header` holds all projections named in `declared`."""
    if header == FULL.name:
        return True
    held = header.split("+")
    return all(name in held for name in declared)


def project(obj: Json, projection: Projection) -> dict[str, Any]:
    """`obj` without what the projection does not keep. Parts that are kept whole are shared with `obj`."""
    metadata = strip(obj.get("metadata", {}))
    if not projection.paths:
        return {**obj, "metadata": metadata}
    out = {key: obj[key] for key in _ALWAYS if key in obj}
    out["metadata"] = metadata
    out.update(_pick(obj, _compiled(projection.paths)))
    return out


def metadata_only(obj: Json) -> dict[str, Any]:
    """The body of a message whose object does not fit: apiVersion, kind and metadata."""
    out = {key: obj[key] for key in _ALWAYS if key in obj}
    out["metadata"] = strip(obj.get("metadata", {}))
    return out


def identity_only(obj: Json) -> dict[str, Any]:
    """The body where not even the metadata fit: which object it is, in which version."""
    metadata = obj.get("metadata", {})
    out = {key: obj[key] for key in _ALWAYS if key in obj}
    out["metadata"] = {key: metadata[key] for key in _IDENTITY if key in metadata}
    return out


def strip(metadata: Json) -> Json:
    """Metadata without managedFields and kubectl's copy of the object; the same mapping if it has neither."""
    annotations = metadata.get("annotations") or {}
    applied = LAST_APPLIED in annotations
    if not applied and "managedFields" not in metadata:
        return metadata
    out = {key: value for key, value in metadata.items() if key != "managedFields"}
    if applied:
        kept = {key: value for key, value in annotations.items() if key != LAST_APPLIED}
        if kept:
            out["annotations"] = kept
        else:
            del out["annotations"]
    return out


@lru_cache(maxsize=256)
def _compiled(paths: tuple[str, ...]) -> Trie:
    root: Trie = {}
    kept_whole: set[int] = set()
    for path in paths:
        node = root
        for token in path.replace(_LIST, f".{_LIST}").split("."):
            if id(node) in kept_whole:  # a shorter path keeps this part whole already
                break
            node = node.setdefault(token, {})
        else:
            node.clear()
            kept_whole.add(id(node))
    return root


def _pick(value: Mapping[str, Any], trie: Trie) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, below in trie.items():
        if key not in value:
            continue
        child = value[key]
        if not below:
            out[key] = child
        elif isinstance(child, Mapping):
            out[key] = _pick(child, below)
        elif isinstance(child, list) and _LIST in below:
            items = below[_LIST]
            out[key] = [_pick(item, items) if items and isinstance(item, Mapping) else item for item in child]
    return out
