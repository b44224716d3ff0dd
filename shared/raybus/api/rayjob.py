"""Wire types of RayJob, ray.io/v1. Pure; see meta.py for what a wire type is and is not."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from raybus.api.meta import Float, Int32, Int64, ManagedBy, PodTemplate, Root, StringMap, Time, Wire
from raybus.api.raycluster import RayClusterSpec, RayClusterStatus

DeletionPolicyType = Literal["DeleteCluster", "DeleteWorkers", "DeleteSelf", "DeleteNone"]


class SubmitterConfig(Wire):
    backoff_limit: Int32 | None = None


class DeletionPolicy(Wire):
    policy: DeletionPolicyType | None = None


class DeletionCondition(Wire):
    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-validations": [
                {
                    "rule": "!(has(self.jobStatus) && has(self.jobDeploymentStatus))",
                    "message": "jobStatus and jobDeploymentStatus cannot both be set",
                },
                {
                    "rule": "has(self.jobStatus) || has(self.jobDeploymentStatus)",
                    "message": "one of jobStatus and jobDeploymentStatus must be set",
                },
            ],
        }
    )
    job_status: Literal["SUCCEEDED", "FAILED"] | None = None
    job_deployment_status: Literal["Failed"] | None = None
    ttl_seconds: Annotated[Int32, Field(json_schema_extra={"minimum": 0})] = 0


class DeletionRule(Wire):
    policy: DeletionPolicyType
    condition: DeletionCondition


class DeletionStrategy(Wire):
    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-validations": [
                {
                    "rule": "!((has(self.onSuccess) || has(self.onFailure)) && has(self.deletionRules))",
                    "message": "onSuccess and onFailure cannot be combined with deletionRules",
                },
                {
                    "rule": "(has(self.onSuccess) && has(self.onFailure)) || has(self.deletionRules)",
                    "message": "either both onSuccess and onFailure, or deletionRules must be set",
                },
            ],
        }
    )
    on_success: DeletionPolicy | None = None
    on_failure: DeletionPolicy | None = None
    deletion_rules: Annotated[
        list[DeletionRule] | None, Field(json_schema_extra={"minItems": 1, "x-kubernetes-list-type": "atomic"})
    ] = None


class RayJobSpec(Wire):
    entrypoint: str | None = None
    runtime_env_yaml: Annotated[str | None, Field(alias="runtimeEnvYAML")] = None
    job_id: str | None = None
    submission_mode: str = "K8sJobMode"
    metadata: StringMap | None = None
    entrypoint_num_cpus: Float | None = None
    entrypoint_num_gpus: Float | None = None
    entrypoint_resources: str | None = None
    ray_cluster_spec: RayClusterSpec | None = None
    cluster_selector: StringMap | None = None
    submitter_pod_template: PodTemplate | None = None
    submitter_config: SubmitterConfig | None = None
    backoff_limit: Int32 = 0
    active_deadline_seconds: Int32 | None = None
    pre_running_deadline_seconds: Annotated[Int32 | None, Field(json_schema_extra={"minimum": 1})] = None
    shutdown_after_job_finishes: bool | None = None
    ttl_seconds_after_finished: Int32 = 0
    deletion_strategy: DeletionStrategy | None = None
    suspend: bool | None = None
    managed_by: ManagedBy | None = None


class RayJobInfo(Wire):
    start_time: Time | None = None
    end_time: Time | None = None


class RayJobStatus(Wire):
    job_status: str | None = None
    job_deployment_status: str | None = None
    job_id: str | None = None
    ray_cluster_name: str | None = None
    dashboard_url: Annotated[str | None, Field(alias="dashboardURL")] = None
    reason: str | None = None
    message: str | None = None
    start_time: Time | None = None
    end_time: Time | None = None
    succeeded: Int32 = 0
    failed: Int32 = 0
    ray_cluster_status: RayClusterStatus | None = None
    ray_job_info: RayJobInfo | None = None
    job_status_check_failure_start_time: Time | None = None
    observed_generation: Int64 | None = None


class RayJob(Root):
    spec: RayJobSpec | None = None
    status: RayJobStatus | None = None
