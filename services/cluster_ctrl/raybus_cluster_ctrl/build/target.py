"""What a pod, a Service or a role is built for: the cluster, the group, and what follows from the two.

Pure. What may live here: values that several builders need, read once from the RayCluster.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from raybus.domain import cluster_spec, labels, names, owners, services, start_params
from raybus.domain.names import NodeType

if TYPE_CHECKING:  # the policy holds the memory of what was built, so it is the one that imports this package
    from raybus_cluster_ctrl.decide.policy import Policy

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Cluster:
    """A RayCluster as builders see it: `root` is the object as read."""

    root: Json

    @property
    def name(self) -> str:
        return str(self.root["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self.root["metadata"]["namespace"])

    @property
    def uid(self) -> str:
        return str(self.root["metadata"]["uid"])

    @property
    def spec(self) -> Json:
        spec: Json = self.root["spec"]
        return spec

    @property
    def head(self) -> Json:
        head: Json = self.spec["headGroupSpec"]
        return head

    @property
    def annotations(self) -> Mapping[str, str]:
        annotations: Mapping[str, str] = self.root["metadata"].get("annotations") or {}
        return annotations

    @property
    def labels(self) -> Mapping[str, str]:
        given: Mapping[str, str] = self.root["metadata"].get("labels") or {}
        return given

    @property
    def version(self) -> tuple[Hashable, ...]:
        """Changes with everything that pods are made from: labels and annotations do not move the generation."""
        marks = (frozenset(self.labels.items()), frozenset(self.annotations.items()))
        return (self.uid, self.root["metadata"].get("generation"), *marks)

    @property
    def owner(self) -> dict[str, Any]:
        return owners.controller_reference(self.root)

    @property
    def origin(self) -> str:
        return cluster_spec.origin(self.labels)

    @property
    def head_service(self) -> str:
        return names.head_service_name(self.name, self.spec)

    @property
    def gcs_port(self) -> str:
        return str((self.head.get("rayStartParams") or {}).get("port") or services.GCS_PORT)

    @property
    def autoscaling(self) -> bool:
        return cluster_spec.autoscaling(self.spec)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A group of pods to be built. `raw` is the head's or the worker group's part of the spec."""

    cluster: Cluster
    node_type: NodeType
    name: str  # value of the label ray.io/group
    raw: Json
    policy: Policy

    @property
    def is_head(self) -> bool:
        return self.node_type == "head"

    @property
    def template(self) -> Json:
        template: Json = self.raw["template"]
        return template

    @property
    def fqdn(self) -> str:
        """The head's name in DNS, as workers reach it."""
        return names.service_fqdn(self.cluster.head_service, self.cluster.namespace, self.policy.cluster_domain)

    @property
    def gcs_address(self) -> str:
        return f"{self.fqdn}:{self.cluster.gcs_port}"

    @property
    def shell(self) -> list[str]:
        return ["/bin/bash", "-cl" if self.policy.login_shell else "-c", "--"]

    def start_params(self) -> start_params.Params:
        """All parameters of `ray start` but those that come from the container's resources."""
        params = start_params.from_group(
            self.raw.get("rayStartParams") or {}, self.raw.get("resources") or {}, self.raw.get("labels") or {}
        )
        params = start_params.with_defaults(params, self.node_type, self.gcs_address)
        if self.is_head and self.cluster.autoscaling:
            params["no-monitor"] = "true"
        return params


def head_group(cluster: Cluster, policy: Policy) -> Group:
    return Group(cluster=cluster, node_type="head", name=labels.HEAD_GROUP, raw=cluster.head, policy=policy)


def worker_group(cluster: Cluster, raw: Json, policy: Policy) -> Group:
    return Group(cluster=cluster, node_type="worker", name=str(raw["groupName"]), raw=raw, policy=policy)
