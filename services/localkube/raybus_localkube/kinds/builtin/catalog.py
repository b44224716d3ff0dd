"""The list of built-in resources: discovery facts from the data file, strategies from here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from raybus_localkube.data import builtin
from raybus_localkube.kinds.builtin import simple
from raybus_localkube.kinds.builtin.events import EventStrategy
from raybus_localkube.kinds.builtin.jobs import JobStrategy
from raybus_localkube.kinds.builtin.pods import PodStrategy
from raybus_localkube.kinds.builtin.services import ServiceStrategy
from raybus_localkube.kinds.custom.definitions import DefinitionStrategy
from raybus_localkube.kinds.resource import Resource, Strategy

Json = dict[str, Any]
STRATEGIES: dict[tuple[str, str], Callable[[], Strategy]] = {
    ("", "configmaps"): lambda: simple.ConfigMapStrategy("ConfigMap"),
    ("", "endpoints"): lambda: simple.EndpointsStrategy("Endpoints"),
    ("", "events"): lambda: EventStrategy("Event", ""),
    ("events.k8s.io", "events"): lambda: EventStrategy("NewEvent", "events.k8s.io"),
    ("", "namespaces"): lambda: simple.NamespaceStrategy("Namespace"),
    ("", "nodes"): lambda: simple.NodeStrategy("Node"),
    ("", "persistentvolumeclaims"): simple.ClaimStrategy,
    ("", "pods"): lambda: PodStrategy("Pod"),
    ("", "secrets"): lambda: simple.SecretStrategy("Secret"),
    ("", "serviceaccounts"): lambda: simple.ServiceAccountStrategy("ServiceAccount"),
    ("", "services"): lambda: ServiceStrategy("Service"),
    ("batch", "jobs"): lambda: JobStrategy("Job"),
    ("coordination.k8s.io", "leases"): lambda: simple.LeaseStrategy("Lease"),
    ("discovery.k8s.io", "endpointslices"): simple.EndpointSliceStrategy,
    ("apiextensions.k8s.io", "customresourcedefinitions"): lambda: DefinitionStrategy("CustomResourceDefinition"),
    ("rbac.authorization.k8s.io", "roles"): lambda: simple.RoleStrategy("Role"),
    ("rbac.authorization.k8s.io", "rolebindings"): lambda: simple.RoleStrategy("RoleBinding"),
    ("rbac.authorization.k8s.io", "clusterroles"): lambda: simple.RoleStrategy("ClusterRole"),
    ("rbac.authorization.k8s.io", "clusterrolebindings"): lambda: simple.RoleStrategy("ClusterRoleBinding"),
    ("networking.k8s.io", "ingresses"): lambda: simple.PlainStrategy("Ingress", status=True, generation=True),
    ("networking.k8s.io", "networkpolicies"): lambda: simple.PlainStrategy("NetworkPolicy", generation=True),
}  # fmt: skip
ENDPOINTS_WARNING = "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"
RETURNED = frozenset(
    {"pods", "services", "serviceaccounts", "persistentvolumeclaims", "persistentvolumes", "resourcequotas"}
)
"""DELETE of these answers with the object."""


def resources() -> list[Resource]:
    """A fresh list of all built-in resources that are served."""
    found = []
    for entry in builtin()["groups"].values():
        group, version = entry["group"], entry["version"]
        for given in entry["resources"]:
            make = STRATEGIES.get((group, given["resource"]))
            if make is not None:
                found.append(resource(group, version, given, make()))
    return found


def resource(group: str, version: str, given: Json, strategy: Strategy) -> Resource:
    plural = given["resource"]
    return Resource(
        group=group, versions=(version,), kind=given["responseKind"]["kind"], plural=plural, strategy=strategy,
        singular=given["singularResource"], namespaced=given["scope"] == "Namespaced", verbs=tuple(given["verbs"]),
        short_names=tuple(given.get("shortNames", ())), categories=tuple(given.get("categories", ())),
        subresources={sub["subresource"]: tuple(sub["verbs"]) for sub in given.get("subresources", ())},
        deprecated={"v1": ENDPOINTS_WARNING} if plural == "endpoints" else {},
        returns_object=plural in RETURNED and group == "", key="events" if plural == "events" else "", discovery=given,
    )  # fmt: skip
