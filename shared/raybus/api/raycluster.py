"""Wire types of RayCluster, ray.io/v1. Pure; see meta.py for what a wire type is and is not."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from raybus.api.meta import (
    DEFAULTED,
    Conditions,
    CoreService,
    EnvFromSource,
    EnvVar,
    EnvVarSource,
    IngressTLS,
    Int32,
    Int64,
    ManagedBy,
    NetworkPolicyEgressRule,
    NetworkPolicyIngressRule,
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

MAX_INT32 = 2**31 - 1


class IngressOptions(Wire):
    host: str | None = None
    path: str | None = None
    path_type: Literal["Exact", "Prefix", "ImplementationSpecific"] | None = None
    tls: list[IngressTLS] | None = None


class HeadGroupSpec(Wire):
    template: PodTemplate
    ray_start_params: StringMap | None = None
    service_type: str | None = None
    head_service: CoreService | None = None
    enable_ingress: bool | None = None
    ingress_options: IngressOptions | None = None
    resources: StringMap | None = None
    labels: StringMap | None = None


class ScaleStrategy(Wire):
    workers_to_delete: list[str] | None = None


class WorkerGroupSpec(Wire):
    group_name: str
    replicas: Int32 = 0
    min_replicas: Annotated[Int32, Field(json_schema_extra={**DEFAULTED})] = 0
    max_replicas: Annotated[Int32, Field(json_schema_extra={**DEFAULTED})] = MAX_INT32
    num_of_hosts: Int32 = 1
    idle_timeout_seconds: Int32 | None = None
    priority: Int32 = 0
    suspend: bool | None = None
    resources: StringMap | None = None
    labels: StringMap | None = None
    ray_start_params: StringMap | None = None
    template: PodTemplate
    scale_strategy: ScaleStrategy | None = None


class AutoscalerOptions(Wire):
    version: Literal["v1", "v2"] | None = None
    image: str | None = None
    image_pull_policy: str | None = None
    resources: ResourceRequirements | None = None
    security_context: SecurityContext | None = None
    env: list[EnvVar] | None = None
    env_from: list[EnvFromSource] | None = None
    volume_mounts: list[VolumeMount] | None = None
    command: list[str] | None = None
    args: list[str] | None = None
    idle_timeout_seconds: Int32 | None = None
    upscaling_mode: Literal["Default", "Aggressive", "Conservative"] | None = None


class RedisCredential(Wire):
    value: str | None = None
    value_from: EnvVarSource | None = None


class GcsStorage(Wire):
    claim_name: str | None = None
    size: Quantity | None = None
    storage_class_name: str | None = None
    access_modes: list[str] | None = None
    sub_path: str | None = None
    deletion_policy: Literal["DeleteWithCluster", "Retain"] | None = None


_BACKEND_RULE = {
    "x-kubernetes-validations": [
        {"rule": "self == oldSelf", "message": "backend cannot be changed once it is set"},
    ],
}


class GcsFaultToleranceOptions(Wire):
    backend: Annotated[Literal["redis", "rocksdb"] | None, Field(json_schema_extra={**_BACKEND_RULE})] = None
    redis_address: str | None = None
    redis_username: RedisCredential | None = None
    redis_password: RedisCredential | None = None
    external_storage_namespace: str | None = None
    storage: GcsStorage | None = None


class AuthOptions(Wire):
    mode: Literal["disabled", "token"] | None = None
    secret_name: str | None = None
    enable_k8s_token_auth: Annotated[bool | None, Field(alias="enableK8sTokenAuth")] = None


class ClusterUpgradeStrategy(Wire):
    type: Literal["Recreate", "None"] | None = None


class NetworkRules(Wire):
    ingress_rules: list[NetworkPolicyIngressRule] | None = None
    egress_rules: list[NetworkPolicyEgressRule] | None = None


class GroupNetworkRules(NetworkRules):
    group_name: str


class NetworkPolicySpec(Wire):
    mode: Literal["DenyAll", "DenyAllIngress", "DenyAllEgress"] = "DenyAll"
    head: NetworkRules | None = None
    worker: NetworkRules | None = None
    worker_groups: Annotated[
        list[GroupNetworkRules] | None,
        Field(json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["groupName"]}),
    ] = None


class TlsOptions(Wire):
    enabled: bool | None = None


class CollectorOptions(Wire):
    image: str | None = None
    image_pull_policy: str | None = None
    resources: ResourceRequirements | None = None
    env: list[EnvVar] | None = None


class HistoryServerOptions(Wire):
    collector_options: CollectorOptions | None = None


class RayClusterSpec(Wire):
    head_group_spec: HeadGroupSpec
    worker_group_specs: list[WorkerGroupSpec] | None = None
    ray_version: str | None = None
    suspend: bool | None = None
    managed_by: ManagedBy | None = None
    enable_in_tree_autoscaling: bool | None = None
    autoscaler_options: AutoscalerOptions | None = None
    head_service_annotations: StringMap | None = None
    gcs_fault_tolerance_options: GcsFaultToleranceOptions | None = None
    auth_options: AuthOptions | None = None
    upgrade_strategy: ClusterUpgradeStrategy | None = None
    network_policy: NetworkPolicySpec | None = None
    tls_options: TlsOptions | None = None
    history_server_options: HistoryServerOptions | None = None


class HeadInfo(Wire):
    pod_ip: Annotated[str | None, Field(alias="podIP")] = None
    pod_name: str | None = None
    service_ip: Annotated[str | None, Field(alias="serviceIP")] = None
    service_name: str | None = None


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
    conditions: Conditions | None = None
    last_update_time: Annotated[Time | None, Field(json_schema_extra={"nullable": True})] = None
    state_transition_times: dict[str, Time] | None = None
    observed_generation: Int64 | None = None


class RayCluster(Root):
    spec: RayClusterSpec | None = None
    status: RayClusterStatus | None = None
