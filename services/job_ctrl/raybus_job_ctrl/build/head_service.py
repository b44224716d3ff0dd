"""The head Service of a RayJob: an address that stays while clusters come and go. And where a cluster's dashboard is. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from raybus.decide.actions import RayEndpoint
from raybus.domain import cluster_spec, labels, names, owners, services
from raybus_job_ctrl.build.labels import origin

Json = Mapping[str, Any]

DASHBOARD = "dashboard"


def name_of(job_name: str) -> str:
    return f"{job_name}-head-svc"


def job_head_service(job: Json, cluster: Json, *, cluster_ip: bool = False) -> dict[str, Any]:
    """As the cluster's own head Service, but with the RayJob's name, labels and ownership."""
    meta, target = job["metadata"], cluster["metadata"]
    reference = owners.controller_reference(job)
    service = services.head_service(
        target["name"], meta["namespace"], cluster["spec"], reference, cluster_ip=cluster_ip
    )
    service["metadata"] = service["metadata"] | {
        "name": name_of(meta["name"]),
        "labels": {
            **origin(meta["name"]),
            labels.NODE_TYPE: labels.HEAD,
            labels.IDENTIFIER: names.identifier(meta["name"], "head"),
        },
    }
    return service


def dashboard_port(cluster: Json) -> int | None:
    """The port named `dashboard` of the cluster's head Service; None if the head container declares others only."""
    head = cluster["spec"].get("headGroupSpec") or {}
    given = ((head.get("headService") or {}).get("spec") or {}).get("ports") or ()
    own = next((int(port["port"]) for port in given if port.get("name") == DASHBOARD), None)
    return own if own is not None else services.head_ports(cluster["spec"]).get(DASHBOARD)


def dashboard_address(cluster: Json, cluster_domain: str) -> str:
    """host:port without a scheme; empty if the head Service has no port named `dashboard`."""
    port = dashboard_port(cluster)
    if port is None:
        return ""
    meta = cluster["metadata"]
    service = names.head_service_name(meta["name"], cluster["spec"])
    return f"{names.service_fqdn(service, meta['namespace'], cluster_domain)}:{port}"


def endpoint(cluster: Json, address: str) -> RayEndpoint:
    meta, spec = cluster["metadata"], cluster["spec"]
    return RayEndpoint(
        address=address,
        namespace=meta["namespace"],
        service=names.head_service_name(meta["name"], spec),
        auth_secret=auth_secret(cluster) if cluster_spec.token_auth(spec) else "",
    )


def auth_secret(cluster: Json) -> str:
    """Name of the Secret that holds the cluster's token."""
    given = (cluster["spec"].get("authOptions") or {}).get("secretName")
    return str(given or names.auth_secret_name(cluster["metadata"]["name"]))
