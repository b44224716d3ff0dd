"""What the operator's settings mean for decisions about RayClusters. Pure: made once from the settings, in __main__."""

from __future__ import annotations

from dataclasses import dataclass, field

from raybus.domain import names
from raybus_cluster_ctrl.build.templates import Templates

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
    templates: Templates = field(default_factory=Templates, compare=False)

    @property
    def conditions(self) -> bool:
        return "RayClusterStatusConditions" in self.gates

    @property
    def replica_index(self) -> bool:
        return "RayMultiHostIndexing" in self.gates
