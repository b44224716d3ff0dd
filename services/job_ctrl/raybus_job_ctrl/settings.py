"""Settings of job_ctrl. Most are also read from the variable that KubeRay's operator has for it."""

from __future__ import annotations

from pydantic import Field, field_validator

from raybus.runtime.settings import ControllerSettings, also
from raybus_job_ctrl.decide.policy import Policy

SECONDS_MAX = 10 * 366 * 86_400.0  # beyond it times leave the calendar


class JobCtrlSettings(ControllerSettings):
    transition_grace_s: float = Field(
        300.0,
        validation_alias=also("RAYJOB_DEPLOYMENT_STATUS_TRANSITION_GRACE_PERIOD_SECONDS", "transition_grace_s"),
        description="seconds that a submitter may go on after its job has ended",
    )
    status_check_timeout_s: float = Field(
        300.0,
        validation_alias=also("RAYJOB_STATUS_CHECK_TIMEOUT_SECONDS", "status_check_timeout_s"),
        description="seconds that Ray may be unreachable before its job counts as failed",
    )
    delete_job_with_cluster: bool = Field(
        default=False,
        validation_alias=also("DELETE_RAYJOB_CR_AFTER_JOB_FINISHES", "delete_job_with_cluster"),
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
            seconds = float(str(value))
        except ValueError:
            return 300.0
        return seconds if abs(seconds) <= SECONDS_MAX else 300.0  # what is no number at all is not less either

    @field_validator("status_check_timeout_s")
    @classmethod
    def _positive(cls, value: float) -> float:
        return value if value > 0 else 300.0

    def policy(self) -> Policy:
        return Policy(
            cluster_domain=self.cluster_domain,
            gates=self.open_gates,
            login_shell=self.login_shell,
            head_cluster_ip=self.cluster_ip_head_service,
            transition_grace_s=self.transition_grace_s,
            status_check_timeout_s=self.status_check_timeout_s,
            delete_job_with_cluster=self.delete_job_with_cluster,
        )
