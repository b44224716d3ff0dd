"""What a head needs beside itself: the autoscaler's rights, the token's Secret, the Ingress. Pure.

They are made before each head pod; what exists already is kept. So a lost one comes back with the next head at the latest.
"""

from __future__ import annotations

from raybus.decide.actions import (
    Action,
    CreateAuthSecret,
    CreateIngress,
    CreateObject,
    CreateRole,
    CreateRoleBinding,
    CreateServiceAccount,
)
from raybus.domain import cluster_spec
from raybus_cluster_ctrl.build import access
from raybus_cluster_ctrl.build.target import Cluster
from raybus_cluster_ctrl.decide import reasons
from raybus_cluster_ctrl.decide.part import Part
from raybus_cluster_ctrl.decide.world import ClusterWorld, Json


def decide(world: ClusterWorld) -> Part:
    if world.heads:
        return Part()
    cluster = world.present
    first: list[Action] = []
    if cluster.autoscaling:
        first += _autoscaler(cluster)
    if cluster_spec.makes_auth_secret(cluster.spec):
        first.append(CreateAuthSecret(body=access.auth_secret(cluster), reason="pods show a token to each other"))
    if not cluster.head.get("enableIngress"):
        return Part(first=tuple(first))
    ingress = _told(CreateIngress, access.ingress(cluster), "the dashboard is to be reached from outside")
    return Part(first=tuple(first), actions=(ingress,))


def _autoscaler(cluster: Cluster) -> list[Action]:
    reason = "the autoscaler needs to read pods and to change the cluster's size"
    made = [
        _told(CreateRole, access.role(cluster), reason),
        _told(CreateRoleBinding, access.role_binding(cluster), reason),
    ]
    pod = cluster.head["template"].get("spec") or {}
    if not pod.get("serviceAccountName"):
        made.insert(0, _told(CreateServiceAccount, access.service_account(cluster), reason))
    return made


def _told(kind: type[CreateObject], body: Json, reason: str) -> Action:
    name = kind.kind.kind
    note = f"{name} {body['metadata']['namespace']}/{body['metadata']['name']}"
    return kind(body=body, reason=reason, announce=reasons.CREATE_BESIDE_HEAD[kind].announced(note))
