"""What an installation does with a definition of ray.io that is there already. Pure.

Definitions are shared: KubeRay may have brought them, or somebody by hand, or a newer Raybus. Only those that an installation of Raybus
made, and says so in an annotation, are brought up to date without being asked; nothing is ever made older.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from raybus.domain import versions

VERSION = "raybus.io/installed-by-version"
"""Annotation of a definition that an installation of Raybus made: the version of the one that wrote it last."""

SERVED = "v1"


class Mode(StrEnum):
    """What may be done: `install` makes missing ones and updates its own, `replace` also takes over those of others."""

    INSTALL = "install"
    REPLACE = "replace"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether to write the definition, and whether over other writers' fields; `why` in words. `unusable`: it cannot be worked with."""

    write: bool
    why: str
    force: bool = False
    unusable: bool = False


def verdict(found: Mapping[str, Any] | None, version: str, mode: Mode) -> Verdict:
    """`found` is the definition as the API server has it, `version` the one of this Raybus ("0.1.0")."""
    if mode is Mode.SKIP:
        return _left(found, "definitions are not to be installed")
    if found is None:
        return Verdict(write=True, why="it was missing")
    before = (found["metadata"].get("annotations") or {}).get(VERSION)
    if before is None:
        if mode is Mode.REPLACE:
            return Verdict(write=True, why="it was somebody else's and is to be replaced", force=True)
        return _left(found, "it is somebody else's, KubeRay's say, and works as it is")
    if mode is not Mode.REPLACE and before == version:  # to apply it again would cost the API server seconds
        return _left(found, "it is of this version already")
    if (versions.parse(before) or (0, 0, 0)) > (versions.parse(version) or (0, 0, 0)):
        return _left(found, f"it is of Raybus {before}, which is newer")
    return Verdict(write=True, why=f"it was of Raybus {before}", force=mode is Mode.REPLACE)


def _left(found: Mapping[str, Any] | None, why: str) -> Verdict:
    if found is None:
        return Verdict(write=False, why="it is missing", unusable=True)
    if not any(version["name"] == SERVED and version.get("served") for version in found["spec"]["versions"]):
        return Verdict(write=False, why=f"it does not serve {SERVED}", unusable=True)
    return Verdict(write=False, why=why)


def signed(definition: Mapping[str, Any], version: str) -> dict[str, Any]:
    """The definition with the annotation that says who installed it."""
    meta = definition["metadata"]
    annotations = {**(meta.get("annotations") or {}), VERSION: version}
    return {**definition, "metadata": {**meta, "annotations": annotations}}


def established(definition: Mapping[str, Any] | None) -> bool:
    """Whether the API server serves it."""
    conditions = ((definition or {}).get("status") or {}).get("conditions") or ()
    return any(item["type"] == "Established" and item["status"] == "True" for item in conditions)
