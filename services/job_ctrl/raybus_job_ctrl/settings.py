"""Settings of job_ctrl. Each is also read from the variable that KubeRay's operator has for it."""

from __future__ import annotations

from pydantic import AliasChoices, Field, field_validator

from raybus.domain import names
from raybus.runtime.settings import ServiceSettings
from raybus_job_ctrl.decide.policy import Policy


def _either(name: str, upstream: str) -> AliasChoices:
    return AliasChoices(f"RAYBUS_{name}".upper(), upstream)


class JobCtrlSettings(ServiceSettings):
    cluster_domain: str = Field(
        names.DEFAULT_CLUSTER_DOMAIN,
        validation_alias=_either("cluster_domain", "CLUSTER_DOMAIN"),
        description="DNS domain of the Kubernetes cluster",
    )
    cluster_ip_head_service: bool = Field(
        default=False,
        validation_alias=_either("cluster_ip_head_service", "ENABLE_RAY_HEAD_CLUSTER_IP_SERVICE"),
        description="whether head Services have an address of their own instead of being headless",
    )
    login_shell: bool = Field(
        default=False,
        validation_alias=_either("login_shell", "ENABLE_LOGIN_SHELL"),
        description="whether generated commands run in a login shell",
    )
    transition_grace_s: float = Field(
        300.0,
        validation_alias=_either("transition_grace_s", "RAYJOB_DEPLOYMENT_STATUS_TRANSITION_GRACE_PERIOD_SECONDS"),
        description="seconds that a submitter may go on after its job has ended",
    )
    status_check_timeout_s: float = Field(
        300.0,
        validation_alias=_either("status_check_timeout_s", "RAYJOB_STATUS_CHECK_TIMEOUT_SECONDS"),
        description="seconds that Ray may be unreachable before its job counts as failed",
    )
    delete_job_with_cluster: bool = Field(
        default=False,
        validation_alias=_either("delete_job_with_cluster", "DELETE_RAYJOB_CR_AFTER_JOB_FINISHES"),
        description="whether shutdownAfterJobFinishes deletes the RayJob itself",
    )
    use_kubernetes_proxy: bool = Field(
        default=False, description="whether Ray is asked through the API server, for clusters seen from outside"
    )

    @field_validator("transition_grace_s", "status_check_timeout_s", mode="before")
    @classmethod
    def _default_if_unusable(cls, value: object) -> object:
        """As the reference: what is no number means the default; so does a time limit of nothing."""
        try:
            return float(str(value))
        except ValueError:
            return 300.0

    @field_validator("status_check_timeout_s")
    @classmethod
    def _positive(cls, value: float) -> float:
        return value if value > 0 else 300.0

    def policy(self) -> Policy:
        return Policy(
            cluster_domain=self.cluster_domain,
            gates=frozenset(gate for gate, on in self.feature_gates.items() if on),
            login_shell=self.login_shell,
            head_cluster_ip=self.cluster_ip_head_service,
            transition_grace_s=self.transition_grace_s,
            status_check_timeout_s=self.status_check_timeout_s,
            delete_job_with_cluster=self.delete_job_with_cluster,
        )
