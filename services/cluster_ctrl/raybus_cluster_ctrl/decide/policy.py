"""What the operator's settings mean for decisions about RayClusters. Pure: made once from the settings, in __main__."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from raybus.domain import names
from raybus.domain.memory import Memory

_GATES = frozenset({"RayClusterStatusConditions", "RayJobDeletionPolicy", "RayMultiHostIndexing"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """`version` goes into annotations and usage tags; it must differ from every KubeRay release's."""

    version: str = "raybus"
    cluster_domain: str = names.DEFAULT_CLUSTER_DOMAIN
    gates: frozenset[str] = _GATES
    inject_init_container: bool = True
    inject_probes: bool = True
    cluster_ip_head_service: bool = False
    fixed_head_name: bool = False
    login_shell: bool = False
    random_pod_delete: bool = False
    status_interval_s: float = 1.0  # between two status writes that change only counters
    built: Memory[Mapping[str, Any]] = field(default_factory=Memory, compare=False)
    totals: Memory[Mapping[str, str]] = field(default_factory=Memory, compare=False)
    checked: Memory[str] = field(default_factory=Memory, compare=False)

    @property
    def conditions(self) -> bool:
        return "RayClusterStatusConditions" in self.gates

    @property
    def replica_index(self) -> bool:
        return "RayMultiHostIndexing" in self.gates
