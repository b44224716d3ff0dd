"""Reasons of the events that cluster_ctrl emits, all of them. Pure data; docs/reference/events.md is made from `DEEDS` and `COMPLAINTS`."""

from __future__ import annotations

from collections.abc import Mapping

from raybus.decide.actions import (
    Action,
    CreateIngress,
    CreateObject,
    CreatePod,
    CreateRole,
    CreateRoleBinding,
    CreateServiceAccount,
    DeletePod,
)
from raybus.decide.reasons import NOT_SUPPORTED, Complaint, Deed, creation, deletion

# By action and role of the pod.
PODS: Mapping[tuple[type[Action], str], Deed] = {
    (CreatePod, "Head"): creation("HeadPod", "the head pod"),
    (DeletePod, "Head"): deletion("HeadPod", "a head pod; the note says why"),
    (CreatePod, "Worker"): creation("WorkerPod", "worker pods, of one group in one pass"),
    (DeletePod, "Worker"): deletion("WorkerPod", "worker pods, of one group in one pass; the note says why"),
}
CREATE_SERVICE = creation("Service", "the head Service")
CREATE_BESIDE_HEAD: Mapping[type[CreateObject], Deed] = {
    CreateServiceAccount: creation("ServiceAccount", "the autoscaler's service account"),
    CreateRole: creation("Role", "the autoscaler's role"),
    CreateRoleBinding: creation("RoleBinding", "that role, given to that service account"),
    CreateIngress: creation("Ingress", "the way to the dashboard from outside"),
}

METADATA = Complaint(reason="InvalidRayClusterMetadata", meaning="the name cannot be used")
SPEC = Complaint(
    reason="InvalidRayClusterSpec", meaning="the spec cannot work; the note names the field and the remedy"
)
STATUS = Complaint(
    reason="InvalidRayClusterStatus", meaning="the status contradicts itself; the note says what to change"
)

DEEDS = (*PODS.values(), CREATE_SERVICE, *CREATE_BESIDE_HEAD.values())
COMPLAINTS = (METADATA, SPEC, STATUS, NOT_SUPPORTED)
