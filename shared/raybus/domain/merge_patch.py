"""JSON merge patches (RFC 7386): what has to be sent so that one object becomes another. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Json = Mapping[str, Any]


def difference(old: Json, new: Json) -> dict[str, Any]:
    """The patch that turns `old` into `new`; empty if they mean the same.

    A null means that the field is absent, as in the patch itself. Lists are replaced whole.
    """
    patch: dict[str, Any] = {}
    for field in {**old, **new}:  # in their own order, so that the same difference is always the same bytes
        before, after = old.get(field), new.get(field)
        if before == after:
            continue
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            if inner := difference(before, after):
                patch[field] = inner
        else:
            patch[field] = after
    return patch
