"""Owner references. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def controller_reference(owner: Mapping[str, Any]) -> dict[str, Any]:
    """The reference that makes `owner` the controller of a child. `owner` needs apiVersion, kind, name and uid."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def controller_uid(obj: Mapping[str, Any]) -> str:
    """Uid of the object's controller; empty without one."""
    references = obj["metadata"].get("ownerReferences") or ()
    return next((str(ref.get("uid", "")) for ref in references if ref.get("controller")), "")
