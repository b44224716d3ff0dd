"""JSON merge patch (RFC 7386). Pure."""

from __future__ import annotations

from typing import Any


def apply(target: Any, patch: Any) -> Any:
    """The patched document; `target` stays as it is, parts of it may be shared."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = apply(result.get(key), value)
    return result
