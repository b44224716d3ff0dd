"""Ray versions as users write them: read leniently, compared by their first three numbers. Pure."""

from __future__ import annotations

import re

_VERSION = re.compile(r"\s*v?(0|[1-9]\d*)\.(\d+)(?:\.(\d+))?")


def parse(text: str | None) -> tuple[int, int, int] | None:
    """(major, minor, patch) of `2.53`, `v2.53.0`, `2.53.0rc1`, `2.53.0.dev0`; None for `nightly`, `2` and nothing."""
    match = _VERSION.match(text or "")
    return (int(match[1]), int(match[2]), int(match[3] or 0)) if match else None


def at_least(text: str | None, *wanted: int) -> bool:
    """Whether the version is known and not older than `wanted` (numbers, the most significant first)."""
    version = parse(text)
    return version is not None and version >= (*wanted, 0, 0)[:3]
