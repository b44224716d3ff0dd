"""Settings of cluster_ctrl. Each is also read from the variable that KubeRay's operator has for it."""

from __future__ import annotations

from importlib import metadata

from pydantic import Field

from raybus.runtime.settings import ControllerSettings, also
from raybus_cluster_ctrl.decide.policy import Policy


class ClusterCtrlSettings(ControllerSettings):
    inject_init_container: bool = Field(
        default=True,
        validation_alias=also("ENABLE_INIT_CONTAINER_INJECTION", "inject_init_container"),
        description="whether workers wait for the head in an init container",
    )
    inject_probes: bool = Field(
        default=True,
        validation_alias=also("ENABLE_PROBES_INJECTION", "inject_probes"),
        description="whether Ray containers get probes where they have none",
    )
    random_pod_delete: bool = Field(
        default=False,
        validation_alias=also("ENABLE_RANDOM_POD_DELETE", "random_pod_delete"),
        description="with autoscaling, whether surplus workers are deleted that the autoscaler did not name",
    )
    fixed_head_name: bool = Field(
        default=False,
        validation_alias=also("ENABLE_DETERMINISTIC_HEAD_POD_NAME", "fixed_head_name"),
        description="whether head pods are called <cluster>-head, without a suffix",
    )

    def policy(self) -> Policy:
        return Policy(
            version=f"raybus-{metadata.version('raybus')}",
            cluster_domain=self.cluster_domain,
            gates=self.open_gates,
            inject_init_container=self.inject_init_container,
            inject_probes=self.inject_probes,
            cluster_ip_head_service=self.cluster_ip_head_service,
            fixed_head_name=self.fixed_head_name,
            login_shell=self.login_shell,
            random_pod_delete=self.random_pod_delete,
        )
