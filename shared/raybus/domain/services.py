"""The head Service of a RayCluster, and of a RayJob or RayService in front of one.

Pure. What may live here: how Services are built from a RayCluster's spec. Bodies share nothing mutable with the spec's
maps except values that nobody changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from raybus.domain import labels, names

Json = Mapping[str, Any]

DASHBOARD_PORT = 8265
GCS_PORT = 6379
METRICS_PORT = 8080
# What a head listens on when its container declares no port at all.
DEFAULT_PORTS: Mapping[str, int] = {
    "client": 10001,
    "gcs-server": GCS_PORT,
    "dashboard": DASHBOARD_PORT,
    "metrics": METRICS_PORT,
    "serve": 8000,
}


def head_ports(cluster_spec: Json) -> dict[str, int]:
    """Port name -> number, as the head container declares them; unnamed ones are called `<number>-port`."""
    template = (cluster_spec.get("headGroupSpec") or {}).get("template") or {}
    containers: Sequence[Json] = (template.get("spec") or {}).get("containers") or ({},)
    declared = containers[0].get("ports") or ()
    ports = {port.get("name") or f"{port['containerPort']}-port": int(port["containerPort"]) for port in declared}
    if not declared:
        ports = dict(DEFAULT_PORTS)
    ports.setdefault("metrics", METRICS_PORT)
    return ports


def head_selector(cluster_name: str, cluster_spec: Json) -> dict[str, str]:
    """The labels that select the head pod. Only the app name follows an override in the head's template."""
    template = (cluster_spec.get("headGroupSpec") or {}).get("template") or {}
    given = (template.get("metadata") or {}).get("labels") or {}
    return {
        labels.CLUSTER: cluster_name,
        labels.NODE_TYPE: labels.HEAD,
        labels.IDENTIFIER: names.identifier(cluster_name, "head"),
        labels.APP_NAME: str(given.get(labels.APP_NAME, labels.APP_NAME_VALUE)),
        labels.CREATED_BY: labels.CREATED_BY_VALUE,
    }


def head_service(
    cluster_name: str, namespace: str, cluster_spec: Json, owner_reference: Json, *, cluster_ip: bool = False
) -> dict[str, Any]:
    """The head Service. Headless unless `cluster_ip`, another type than ClusterIP, or a `headService` of the user's.

    A caller in front of the cluster (RayJob, RayService) replaces metadata.name, labels and the owner.
    """
    head = cluster_spec.get("headGroupSpec") or {}
    selector = head_selector(cluster_name, cluster_spec)
    ports = [
        {"name": name, "port": number, "appProtocol": "tcp"}
        for name, number in sorted(head_ports(cluster_spec).items())
    ]
    metadata: dict[str, Any] = {
        "name": names.head_service_name(cluster_name, cluster_spec),
        "namespace": namespace,
        "labels": dict(selector),
        "ownerReferences": [owner_reference],
    }
    annotations = dict(cluster_spec.get("headServiceAnnotations") or {})
    type_ = str(head.get("serviceType") or "")
    given = head.get("headService")
    if given is not None:
        return _from_given(given, metadata | {"annotations": annotations}, ports, type_)
    if annotations:
        metadata["annotations"] = annotations
    spec: dict[str, Any] = {"selector": selector, "ports": ports}
    if type_:
        spec["type"] = type_
    if not cluster_ip and type_ in ("", "ClusterIP"):
        spec |= {"clusterIP": "None", "publishNotReadyAddresses": True}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


def _from_given(given: Json, ours: Json, ports: list[dict[str, Any]], type_: str) -> dict[str, Any]:
    """The user's `headService` with what must be ours: selector, namespace, labels of the selector, default ports."""
    user = given.get("metadata") or {}
    metadata = {
        **ours,
        "labels": {**(user.get("labels") or {}), **ours["labels"]},
        "annotations": {**(user.get("annotations") or {}), **ours["annotations"]},
    }
    if user.get("finalizers"):
        metadata["finalizers"] = user["finalizers"]
    spec = {**(given.get("spec") or {}), "selector": ours["labels"]}
    spec["ports"] = [*(spec.get("ports") or ()), *ports]
    if not spec.get("type") and type_:
        spec["type"] = type_
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


def endpoints(service: Json) -> dict[str, str]:
    """Port name -> port, as the live Service has them: node port, else target port."""
    found = {}
    for port in (service.get("spec") or {}).get("ports") or ():
        value = port.get("nodePort") or port.get("targetPort") or port.get("port")
        if port.get("name") and value:
            found[str(port["name"])] = str(value)
    return found
