"""What a server makes of a merge patch, written once from RFC 7386 as the measure of what we send."""

from __future__ import annotations

from typing import Any


def applied(target: Any, patch: Any) -> Any:
    """`target` with `patch`; neither is changed."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = applied(merged.get(key), value)
    return merged
