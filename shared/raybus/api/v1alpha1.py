"""Wire types of ray.io/v1alpha1, as they stood when v1 came. Pure; served for old clients, the controllers read v1 only."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from raybus.api.meta import (
    DEFAULTED,
    CoreService,
    EnvFromSource,
    EnvVar,
    Float,
    Int32,
    Int64,
    PodTemplate,
    Quantity,
    ResourceRequirements,
    Root,
    SecurityContext,
    StringMap,
    Time,
    VolumeMount,
    Wire,
)
from raybus.api.raycluster import MAX_INT32, ScaleStrategy


class HeadGroupSpec(Wire):
    template: PodTemplate
    ray_start_params: StringMap
    service_type: str | None = None
    head_service: CoreService | None = None
    enable_ingress: bool | None = None


class WorkerGroupSpec(Wire):
    group_name: str
    replicas: Int32 = 0
    min_replicas: Annotated[Int32, Field(json_schema_extra={**DEFAULTED})] = 0
    max_replicas: Annotated[Int32, Field(json_schema_extra={**DEFAULTED})] = MAX_INT32
    ray_start_params: StringMap
    template: PodTemplate
    scale_strategy: ScaleStrategy | None = None


class AutoscalerOptions(Wire):
    image: str | None = None
    image_pull_policy: str | None = None
    resources: ResourceRequirements | None = None
    security_context: SecurityContext | None = None
    env: list[EnvVar] | None = None
    env_from: list[EnvFromSource] | None = None
    volume_mounts: list[VolumeMount] | None = None
    idle_timeout_seconds: Int32 | None = None
    upscaling_mode: Literal["Default", "Aggressive", "Conservative"] | None = None


class RayClusterSpec(Wire):
    head_group_spec: HeadGroupSpec
    worker_group_specs: list[WorkerGroupSpec] | None = None
    ray_version: str | None = None
    suspend: bool | None = None
    enable_in_tree_autoscaling: bool | None = None
    autoscaler_options: AutoscalerOptions | None = None
    head_service_annotations: StringMap | None = None


class HeadInfo(Wire):
    pod_ip: Annotated[str | None, Field(alias="podIP")] = None
    service_ip: Annotated[str | None, Field(alias="serviceIP")] = None


class RayClusterStatus(Wire):
    state: str | None = None
    reason: str | None = None
    desired_cpu: Annotated[Quantity | None, Field(alias="desiredCPU")] = None
    desired_memory: Quantity | None = None
    desired_gpu: Annotated[Quantity | None, Field(alias="desiredGPU")] = None
    desired_tpu: Annotated[Quantity | None, Field(alias="desiredTPU")] = None
    desired_worker_replicas: Int32 | None = None
    min_worker_replicas: Int32 | None = None
    max_worker_replicas: Int32 | None = None
    available_worker_replicas: Int32 | None = None
    ready_worker_replicas: Int32 | None = None
    endpoints: StringMap | None = None
    head: HeadInfo | None = None
    last_update_time: Annotated[Time | None, Field(json_schema_extra={"nullable": True})] = None
    observed_generation: Int64 | None = None


class RayJobSpec(Wire):
    entrypoint: str
    runtime_env_yaml: Annotated[str | None, Field(alias="runtimeEnvYAML")] = None
    job_id: str | None = None
    metadata: StringMap | None = None
    entrypoint_num_cpus: Float | None = None
    entrypoint_num_gpus: Float | None = None
    entrypoint_resources: str | None = None
    ray_cluster_spec: RayClusterSpec | None = None
    cluster_selector: StringMap | None = None
    submitter_pod_template: PodTemplate | None = None
    shutdown_after_job_finishes: bool | None = None
    ttl_seconds_after_finished: Int32 = 0
    suspend: bool | None = None


class RayJobStatus(Wire):
    job_status: str | None = None
    job_deployment_status: str | None = None
    job_id: str | None = None
    ray_cluster_name: str | None = None
    dashboard_url: Annotated[str | None, Field(alias="dashboardURL")] = None
    message: str | None = None
    start_time: Time | None = None
    end_time: Time | None = None
    ray_cluster_status: RayClusterStatus | None = None
    observed_generation: Int64 | None = None


class RayServiceSpec(Wire):
    ray_cluster_config: RayClusterSpec | None = None
    serve_config_v2: Annotated[str | None, Field(alias="serveConfigV2")] = None
    serve_service: CoreService | None = None
    service_unhealthy_second_threshold: Int32 | None = None
    deployment_unhealthy_second_threshold: Int32 | None = None


class ServeDeploymentStatus(Wire):
    status: str | None = None
    message: str | None = None
    health_last_update_time: Time | None = None


class ApplicationStatus(Wire):
    status: str | None = None
    message: str | None = None
    health_last_update_time: Time | None = None
    serve_deployment_statuses: dict[str, ServeDeploymentStatus] | None = None


class ServingClusterStatus(Wire):
    ray_cluster_name: str | None = None
    ray_cluster_status: RayClusterStatus | None = None
    application_statuses: dict[str, ApplicationStatus] | None = None


class RayServiceStatus(Wire):
    service_status: str | None = None
    observed_generation: Int64 | None = None
    last_update_time: Time | None = None
    active_service_status: ServingClusterStatus | None = None
    pending_service_status: ServingClusterStatus | None = None


class RayCluster(Root):
    spec: RayClusterSpec | None = None
    status: RayClusterStatus | None = None


class RayJob(Root):
    spec: RayJobSpec | None = None
    status: RayJobStatus | None = None


class RayService(Root):
    spec: RayServiceSpec | None = None
    status: RayServiceStatus | None = None
