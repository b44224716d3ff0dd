"""Settings of cluster_ctrl. Each is also read from the variable that KubeRay's operator has for it."""

from __future__ import annotations

from importlib import metadata

from pydantic import AliasChoices, Field

from raybus.domain import names
from raybus.runtime.settings import ServiceSettings
from raybus_cluster_ctrl.decide.policy import Policy


def _either(name: str, upstream: str) -> AliasChoices:
    return AliasChoices(f"RAYBUS_{name}".upper(), upstream)


class ClusterCtrlSettings(ServiceSettings):
    cluster_domain: str = Field(
        names.DEFAULT_CLUSTER_DOMAIN,
        validation_alias=_either("cluster_domain", "CLUSTER_DOMAIN"),
        description="DNS domain of the Kubernetes cluster",
    )
    inject_init_container: bool = Field(
        default=True,
        validation_alias=_either("inject_init_container", "ENABLE_INIT_CONTAINER_INJECTION"),
        description="whether workers wait for the head in an init container",
    )
    inject_probes: bool = Field(
        default=True,
        validation_alias=_either("inject_probes", "ENABLE_PROBES_INJECTION"),
        description="whether Ray containers get probes where they have none",
    )
    random_pod_delete: bool = Field(
        default=False,
        validation_alias=_either("random_pod_delete", "ENABLE_RANDOM_POD_DELETE"),
        description="with autoscaling, whether surplus workers are deleted that the autoscaler did not name",
    )
    cluster_ip_head_service: bool = Field(
        default=False,
        validation_alias=_either("cluster_ip_head_service", "ENABLE_RAY_HEAD_CLUSTER_IP_SERVICE"),
        description="whether head Services have an address of their own instead of being headless",
    )
    fixed_head_name: bool = Field(
        default=False,
        validation_alias=_either("fixed_head_name", "ENABLE_DETERMINISTIC_HEAD_POD_NAME"),
        description="whether head pods are called <cluster>-head, without a suffix",
    )
    login_shell: bool = Field(
        default=False,
        validation_alias=_either("login_shell", "ENABLE_LOGIN_SHELL"),
        description="whether generated commands run in a login shell",
    )

    def policy(self) -> Policy:
        return Policy(
            version=f"raybus-{metadata.version('raybus')}",
            cluster_domain=self.cluster_domain,
            gates=frozenset(gate for gate, on in self.feature_gates.items() if on),
            inject_init_container=self.inject_init_container,
            inject_probes=self.inject_probes,
            cluster_ip_head_service=self.cluster_ip_head_service,
            fixed_head_name=self.fixed_head_name,
            login_shell=self.login_shell,
            random_pod_delete=self.random_pod_delete,
        )
