"""What decisions about a RayCluster are made on: the cluster and its pods and Services, read once into plain values.

Pure. What may live here: the frozen snapshot and questions to it. How it is read from a tree stands in observe.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from raybus.domain import cluster_spec, conditions
from raybus.domain.cluster_spec import WorkerGroup
from raybus_cluster_ctrl.build.target import Cluster

Json = Mapping[str, Any]

Place = tuple[str, int]  # a pod's group and slot

PROVISIONED = "RayClusterProvisioned"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod of this cluster. `ready` is its Ready condition; `ray_ended` says that its Ray container has terminated."""

    name: str
    uid: str
    node_type: str
    group: str
    slot: int | None
    phase: str
    ip: str
    created: str
    restart_policy: str
    terminating: bool
    ours: bool  # controlled by this RayCluster, not by another one of the same name
    ray_ended: bool
    ready: Json | None
    status: Json

    @property
    def is_ready(self) -> bool:
        return self.ready is not None and self.ready.get("status") == "True"

    @property
    def is_running(self) -> bool:
        """Running and not said to be unready: a pod without a Ready condition passes."""
        return self.phase == "Running" and (self.ready is None or self.is_ready)

    @property
    def is_lost(self) -> bool:
        """Whether the pod will never run Ray again: ended, or its Ray container ended and is not started again."""
        if self.phase in ("Failed", "Succeeded"):
            return True
        return self.phase == "Running" and self.restart_policy == "Never" and self.ray_ended


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterWorld:
    """`cluster` None: there is no such RayCluster. `pods` are its own; `heads` are all head pods under its label, terminating
    and foreign ones included; `workers` are its own ones by group. `head_services` carry the head's labels. `last_seen`: uid of
    the newest pod that was ever seen in a place. `unreadable` says what is wrong with the shape of the spec; nothing else was
    read then.
    """

    cluster: Cluster | None
    pods: tuple[Pod, ...] = ()
    heads: tuple[Pod, ...] = ()
    workers: Mapping[str, tuple[Pod, ...]] = field(default_factory=dict)
    names: frozenset[str] = frozenset()  # of all pods under the cluster's label
    head_services: tuple[Json, ...] = ()
    groups: tuple[WorkerGroup, ...] = ()
    complete: bool = False  # whether absence of pods and Services can be trusted
    last_seen: Mapping[Place, str] = field(default_factory=dict)
    unreadable: str = ""

    @property
    def present(self) -> Cluster:
        """The cluster, where it was asked for before whether there is one."""
        assert self.cluster is not None
        return self.cluster

    @property
    def status(self) -> Json:
        status: Json = self.present.root.get("status") or {}
        return status

    @property
    def wanted_workers(self) -> int:
        return cluster_spec.counts(self.groups).desired

    @property
    def was_provisioned(self) -> bool:
        return conditions.is_true(self.status.get("conditions"), PROVISIONED)

    @property
    def head_service(self) -> Json | None:
        """The head Service; should there be several, the one of the expected name, else the first."""
        expected = self.present.head_service
        named = (service for service in self.head_services if service["metadata"]["name"] == expected)
        return next(named, next(iter(self.head_services), None))
