"""The kinds of objects Raybus reads and writes, as data.

Pure. What may live here: names of API groups, versions, kinds and paths. Nothing that talks to a server.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kind:
    """One resource of the Kubernetes API: its group ("" for core), version, kind and plural."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """The REST path of the collection, of one object, or of a subresource of it."""
        base = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        if self.namespaced and namespace:
            base += f"/namespaces/{namespace}"
        base += f"/{self.plural}"
        if name:
            base += f"/{name}"
        if subresource:
            base += f"/{subresource}"
        return base


POD = Kind("", "v1", "Pod", "pods")
SERVICE = Kind("", "v1", "Service", "services")
SECRET = Kind("", "v1", "Secret", "secrets")
CONFIG_MAP = Kind("", "v1", "ConfigMap", "configmaps")
NAMESPACE = Kind("", "v1", "Namespace", "namespaces", namespaced=False)
NODE = Kind("", "v1", "Node", "nodes", namespaced=False)
SERVICE_ACCOUNT = Kind("", "v1", "ServiceAccount", "serviceaccounts")
ROLE = Kind("rbac.authorization.k8s.io", "v1", "Role", "roles")
ROLE_BINDING = Kind("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings")
ENDPOINTS = Kind("", "v1", "Endpoints", "endpoints")
ENDPOINT_SLICE = Kind("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices")
INGRESS = Kind("networking.k8s.io", "v1", "Ingress", "ingresses")
JOB = Kind("batch", "v1", "Job", "jobs")
LEASE = Kind("coordination.k8s.io", "v1", "Lease", "leases")
EVENT = Kind("events.k8s.io", "v1", "Event", "events")
CRD = Kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False)
RAYCLUSTER = Kind("ray.io", "v1", "RayCluster", "rayclusters")
RAYJOB = Kind("ray.io", "v1", "RayJob", "rayjobs")
RAYSERVICE = Kind("ray.io", "v1", "RayService", "rayservices")
RAYCRONJOB = Kind("ray.io", "v1", "RayCronJob", "raycronjobs")

ALL_KINDS: tuple[Kind, ...] = (
    POD, SERVICE, SECRET, CONFIG_MAP, NAMESPACE, NODE, SERVICE_ACCOUNT, ROLE, ROLE_BINDING, INGRESS, JOB, EVENT, CRD, RAYCLUSTER, RAYJOB, RAYSERVICE, RAYCRONJOB,
)  # fmt: skip
_BY_KIND = {kind.kind: kind for kind in ALL_KINDS}


def kind_named(name: str) -> Kind:
    """The Kind whose `kind` is this name, such as "Pod". KeyError if Raybus does not know it."""
    return _BY_KIND[name]
