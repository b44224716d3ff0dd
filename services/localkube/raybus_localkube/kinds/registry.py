"""Which resources are served, under which group, version and plural."""

from __future__ import annotations

import re
from collections.abc import Iterable

from raybus_localkube.kinds.resource import Resource


class Registry:
    """`generation` rises with every change, so that discovery documents can be kept until then."""

    def __init__(self, resources: Iterable[Resource]) -> None:
        self.generation = 0
        self._by_path: dict[tuple[str, str, str], Resource] = {}
        self._order: list[Resource] = []
        for resource in resources:
            self.add(resource)

    def add(self, resource: Resource) -> None:
        self.remove(resource.group, resource.plural)
        for version in resource.versions:
            self._by_path[resource.group, version, resource.plural] = resource
        self._order.append(resource)
        self.generation += 1

    def remove(self, group: str, plural: str) -> None:
        kept = [r for r in self._order if (r.group, r.plural) != (group, plural)]
        if len(kept) != len(self._order):
            self._order = kept
            self._by_path = {path: r for path, r in self._by_path.items() if (path[0], path[2]) != (group, plural)}
            self.generation += 1

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        return self._by_path.get((group, version, plural))

    def of_kind(self, api_version: str, kind: str) -> Resource | None:
        group, _, version = api_version.rpartition("/")
        return next((r for r in self._order if r.group == group and r.kind == kind and version in r.versions), None)

    def named(self, group: str, plural: str) -> Resource | None:
        return next((r for r in self._order if (r.group, r.plural) == (group, plural)), None)

    def all(self) -> tuple[Resource, ...]:
        return tuple(self._order)

    def groups(self) -> dict[str, list[str]]:
        """Group to its versions, in order of preference; groups in the order in which they came."""
        found: dict[str, list[str]] = {}
        for resource in self._order:
            versions = found.setdefault(resource.group, [])
            versions += [version for version in resource.versions if version not in versions]
        return {group: sorted(versions, key=preference) for group, versions in found.items()}

    def is_builtin_group(self, group: str) -> bool:
        return any(r.group == group and r.builtin for r in self._order)


def preference(version: str) -> tuple[int, int, int, str]:
    """Kubernetes' order of versions: v2, v1, v1beta2, v1beta1, v1alpha1, then the rest by name."""
    found = re.fullmatch(r"v(\d+)(?:(alpha|beta)(\d+))?", version)
    if found is None:
        return (9, 0, 0, version)
    rank = {None: 0, "beta": 1, "alpha": 2}[found[2]]
    return (rank, -int(found[1]), -int(found[3] or 0), version)
