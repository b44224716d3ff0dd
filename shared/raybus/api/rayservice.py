"""Wire types of RayService, ray.io/v1. Pure; see meta.py for what a wire type is and is not."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from raybus.api.meta import Conditions, CoreService, Int32, Int64, ManagedBy, Root, Time, Wire
from raybus.api.raycluster import RayClusterSpec, RayClusterStatus


class ClusterUpgradeOptions(Wire):
    max_surge_percent: Int32 = 100
    step_size_percent: Int32
    interval_seconds: Int32
    gateway_class_name: str


class ServiceUpgradeStrategy(Wire):
    type: str | None = None
    cluster_upgrade_options: ClusterUpgradeOptions | None = None


class RayServiceSpec(Wire):
    ray_cluster_config: RayClusterSpec
    serve_config_v2: Annotated[str | None, Field(alias="serveConfigV2")] = None
    serve_service: CoreService | None = None
    upgrade_strategy: ServiceUpgradeStrategy | None = None
    ray_cluster_deletion_delay_seconds: Annotated[Int32 | None, Field(json_schema_extra={"minimum": 0})] = None
    exclude_head_pod_from_serve_svc: bool | None = None
    suspend: bool | None = None
    managed_by: ManagedBy | None = None
    service_unhealthy_second_threshold: Int32 | None = None
    deployment_unhealthy_second_threshold: Int32 | None = None


class ServeDeploymentStatus(Wire):
    status: str | None = None
    message: str | None = None


class ApplicationStatus(Wire):
    status: str | None = None
    message: str | None = None
    serve_deployment_statuses: dict[str, ServeDeploymentStatus] | None = None


class ServingClusterStatus(Wire):
    ray_cluster_name: str | None = None
    ray_cluster_status: RayClusterStatus | None = None
    application_statuses: dict[str, ApplicationStatus] | None = None
    target_capacity: Int32 | None = None
    traffic_routed_percent: Int32 | None = None
    last_traffic_migrated_time: Time | None = None


class RayServiceStatus(Wire):
    conditions: Conditions | None = None
    service_status: str | None = None
    num_serve_endpoints: Int32 | None = None
    observed_generation: Int64 | None = None
    last_update_time: Time | None = None
    active_service_status: ServingClusterStatus | None = None
    pending_service_status: ServingClusterStatus | None = None


class RayService(Root):
    spec: RayServiceSpec | None = None
    status: RayServiceStatus | None = None
