"""What a path means: a resource and its scope, or one of the few paths that are none. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """A request's address within a group version. `namespace` is None where the path names none."""

    group: str
    version: str
    plural: str = ""
    namespace: str | None = None
    name: str = ""
    subresource: str = ""
    rest: str = ""
    """What follows the subresource (proxy paths)."""
    watch: bool = False

    @property
    def is_version(self) -> bool:
        """The path is that of the group version itself."""
        return not self.plural


def parse(path: str) -> Target | None:
    """The target of /api/... and /apis/...; None for every other path."""
    parts = [part for part in path.split("/") if part]
    if len(parts) >= 2 and parts[0] == "api":
        group, version, rest = "", parts[1], parts[2:]
    elif len(parts) >= 3 and parts[0] == "apis":
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    watch = bool(rest) and rest[0] == "watch"
    return inside(group, version, rest[1:] if watch else rest, watch=watch)


def inside(group: str, version: str, rest: list[str], *, watch: bool) -> Target:
    if not rest:
        return Target(group, version)
    namespace = None
    # /namespaces/<name>/<plural> is the plural's scope; /namespaces/<name> and its subresources are the namespace's own.
    if rest[0] == "namespaces" and len(rest) >= 3 and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 else ""
    return Target(group, version, rest[0], namespace, name, subresource, "/".join(rest[3:]), watch)
