"""What the autoscaler may do (service account, role, binding), the token's Secret, and the way in from outside.

Pure. Bodies of objects that stand beside the pods and are made once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from raybus.domain import labels, names, services
from raybus_cluster_ctrl.build.target import Cluster

Json = Mapping[str, Any]

_RBAC = "rbac.authorization.k8s.io"
_INGRESS_CLASS = "kubernetes.io/ingress.class"
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
AUTOSCALER_RULES: tuple[Mapping[str, Sequence[str]], ...] = (
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "patch"]},
    {"apiGroups": [""], "resources": ["pods/resize"], "verbs": ["patch"]},
    {"apiGroups": ["ray.io"], "resources": ["rayclusters"], "verbs": ["get", "patch"]},
)


def _metadata(cluster: Cluster, name: str, more: Mapping[str, str]) -> dict[str, Any]:
    return {
        "name": name,
        "namespace": cluster.namespace,
        "labels": {labels.CLUSTER: cluster.name, **more},
        "ownerReferences": [cluster.owner],
    }


def _marked(cluster: Cluster, name: str) -> dict[str, Any]:
    return _metadata(
        cluster, name, {labels.APP_NAME: labels.APP_NAME_VALUE, labels.CREATED_BY: labels.CREATED_BY_VALUE}
    )


def service_account(cluster: Cluster) -> Json:
    name = names.autoscaler_account_name(cluster.name, cluster.spec)
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _marked(cluster, name)}


def role(cluster: Cluster) -> Json:
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "Role",
        "metadata": _marked(cluster, names.check_name(cluster.name)),
        "rules": list(AUTOSCALER_RULES),
    }


def role_binding(cluster: Cluster) -> Json:
    account = names.autoscaler_account_name(cluster.name, cluster.spec)
    name = names.check_name(cluster.name)
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": _marked(cluster, name),
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": cluster.namespace}],
        "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": name},
    }


def auth_secret(cluster: Cluster) -> Json:
    """The Secret without its token, which is drawn where it is written: here nothing is random."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": _metadata(cluster, names.auth_secret_name(cluster.name), {}),
    }


def ingress(cluster: Cluster) -> Json:
    """The dashboard, reachable from outside: to the port called `dashboard` of the head Service."""
    options = cluster.head.get("ingressOptions") or {}
    metadata = _marked(cluster, names.head_ingress_name(cluster.name))
    metadata["labels"][labels.IDENTIFIER] = names.identifier(cluster.name, "head")
    annotations = {k: v for k, v in cluster.annotations.items() if k not in (_INGRESS_CLASS, _LAST_APPLIED)}
    if annotations:
        metadata["annotations"] = annotations
    port = services.head_ports(cluster.spec).get("dashboard", services.DASHBOARD_PORT)
    path = {
        "path": options.get("path") or "/",
        "pathType": options.get("pathType") or "Prefix",
        "backend": {"service": {"name": cluster.head_service, "port": {"number": port}}},
    }
    rule = {"http": {"paths": [path]}} | ({"host": options["host"]} if options.get("host") else {})
    spec: dict[str, Any] = {"rules": [rule]}
    if cluster.annotations.get(_INGRESS_CLASS):
        spec["ingressClassName"] = cluster.annotations[_INGRESS_CLASS]
    if options.get("tls"):
        spec["tls"] = options["tls"]
    return {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": metadata, "spec": spec}
