"""Reading a user's YAML file: which objects it holds and which of them is the Ray object to follow.

Reading the file is the only input here; everything else is a pure function of its text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from raybus.cli.errors import UserError
from raybus.domain.kinds import ALL_KINDS, Kind

RAY_GROUP = "ray.io"
VERSIONS = ("v1", "v1alpha1")
# The last of these in a file is followed: a RayJob beside its own RayCluster is what the user wants to see through.
FOLLOWED = ("RayJob", "RayService", "RayCluster", "RayCronJob")
DEFAULT_NAMESPACE = "default"
MAX_FILE_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Manifest:
    """`objects` in the file's order, namespaces filled in; `subject` is one of them: the Ray object to follow."""

    objects: tuple[dict[str, Any], ...]
    subject: dict[str, Any]


def load(path: Path, namespace: str | None = None) -> Manifest:
    """Read and check the file. UserError names the file, the document and the field."""
    return parse(read_text(path), str(path), namespace)


def read_text(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise UserError(f"{path} is larger than 8 MiB", "this does not look like a manifest: check the path")
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(
            f"no such file: {path}", "check the path; `raybus run` takes a YAML file with a Ray object"
        ) from None
    except IsADirectoryError:
        raise UserError(f"{path} is a folder", "name one YAML file in it") from None
    except PermissionError:
        raise UserError(f"cannot read {path}: permission denied", f"make it readable: chmod u+r {path}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text (byte {error.start})", "save it as UTF-8") from None
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}", "check the path and the disk") from None


def parse(text: str, source: str, namespace: str | None = None) -> Manifest:
    """All objects of a YAML text; `source` names it in errors. `namespace` fills in where an object names none."""
    objects = tuple(_with_namespace(obj, namespace) for obj in _documents(text, source))
    ray = [obj for obj in objects if _group(obj) == RAY_GROUP]
    if not ray:
        found = ", ".join(sorted({str(obj["kind"]) for obj in objects})) or "nothing"
        raise UserError(
            f"{source} holds no Ray object (found: {found})",
            "it needs a document with apiVersion: ray.io/v1 and kind: RayJob, RayCluster, RayService or RayCronJob",
        )
    for obj in ray:
        if obj["kind"] not in FOLLOWED:
            raise UserError(f"{source}: kind {obj['kind']} is not part of ray.io", f"use one of {', '.join(FOLLOWED)}")
        if obj["apiVersion"].partition("/")[2] not in VERSIONS:
            raise UserError(f"{source}: apiVersion {obj['apiVersion']} is unknown", f"use {RAY_GROUP}/{VERSIONS[0]}")
    subject = min(reversed(ray), key=lambda obj: FOLLOWED.index(obj["kind"]))
    return Manifest(objects, subject)


def kind_of(obj: dict[str, Any]) -> Kind:
    """The Kind of an object. UserError if Raybus does not know it."""
    for kind in ALL_KINDS:
        if kind.kind == obj["kind"] and kind.group == _group(obj):
            version = str(obj["apiVersion"]).rpartition("/")[2]
            return Kind(kind.group, version, kind.kind, kind.plural, kind.namespaced)
    raise UserError(
        f"`raybus run` cannot apply {obj['apiVersion']} {obj['kind']} {obj['metadata'].get('name', '')}",
        "apply it with kubectl first (`raybus status` names the kubeconfig), then run the rest",
    )


class _Loader(yaml.SafeLoader):
    """SafeLoader that does not let the last of two equal keys win in silence."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise yaml.MarkedYAMLError(problem=f"key {key.value!r} stands there twice", problem_mark=key.start_mark)
            if isinstance(key, yaml.ScalarNode):
                seen.add(key.value)
        return node


def _documents(text: str, source: str) -> list[dict[str, Any]]:
    try:
        documents: Sequence[Any] = list(yaml.load_all(text, _Loader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f" line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise UserError(f"{source}:{where} is not valid YAML: {error.problem}", "mend the line and run again") from None
    except yaml.YAMLError as error:
        raise UserError(f"{source} is not valid YAML: {error}", "mend it and run again") from None
    objects: list[dict[str, Any]] = []
    for number, document in enumerate(documents, 1):
        if document is None:
            continue
        if isinstance(document, dict) and document.get("kind") == "List":
            items = document.get("items") or []
            objects.extend(_checked(item, f"{source}, document {number}, item {i}") for i, item in enumerate(items, 1))
        else:
            objects.append(_checked(document, f"{source}, document {number}"))
    return objects


def _checked(document: Any, where: str) -> dict[str, Any]:
    if not isinstance(document, dict):
        raise UserError(
            f"{where} is not an object but {type(document).__name__}",
            "a document must be a mapping with apiVersion and kind",
        )
    for field in ("apiVersion", "kind"):
        if not isinstance(document.get(field), str):
            raise UserError(f"{where} has no {field}", "add it, for example apiVersion: ray.io/v1, kind: RayJob")
    metadata = document.get("metadata")
    if not isinstance(metadata, dict) or not (metadata.get("name") or metadata.get("generateName")):
        raise UserError(f"{where} ({document['kind']}) has no metadata.name", "give it a name")
    for field in ("name", "generateName", "namespace"):
        if not isinstance(metadata.get(field, ""), str):
            raise UserError(
                f"{where} ({document['kind']}): metadata.{field} is {metadata[field]!r}, not text",
                "put it in quotes" if isinstance(metadata[field], int | float) else "give a name",
            )
    return document


def _with_namespace(obj: dict[str, Any], namespace: str | None) -> dict[str, Any]:
    known = next((kind for kind in ALL_KINDS if kind.kind == obj["kind"] and kind.group == _group(obj)), None)
    if known is not None and not known.namespaced:
        return obj
    metadata = {"namespace": namespace or DEFAULT_NAMESPACE, **obj["metadata"]}
    return {**obj, "metadata": metadata}


def _group(obj: dict[str, Any]) -> str:
    group, slash, _ = str(obj["apiVersion"]).partition("/")
    return group if slash else ""
