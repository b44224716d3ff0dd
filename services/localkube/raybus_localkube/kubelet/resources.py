"""Kinds that only the kubelet touches, and sizes of the machine. Pure data."""

from __future__ import annotations

from dataclasses import dataclass

from raybus.domain.kinds import Kind

LEASE = Kind("coordination.k8s.io", "v1", "Lease", "leases")
ENDPOINT_SLICE = Kind("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices")
SERVICE_ACCOUNT = Kind("", "v1", "ServiceAccount", "serviceaccounts")
LEASE_NAMESPACE = "kube-node-lease"


@dataclass(frozen=True, slots=True)
class Machine:
    """What the machine has: cores, and memory in bytes."""

    cpus: int
    memory: int
