"""The head Service: made when there is none, and never changed afterwards. Pure."""

from __future__ import annotations

from raybus.decide.actions import CreateService
from raybus.domain import services
from raybus_cluster_ctrl.decide import reasons
from raybus_cluster_ctrl.decide.part import Part
from raybus_cluster_ctrl.decide.policy import Policy
from raybus_cluster_ctrl.decide.world import ClusterWorld


def decide(world: ClusterWorld, policy: Policy) -> Part:
    if world.head_services:
        return Part()
    cluster = world.present
    body = services.head_service(
        cluster.name, cluster.namespace, cluster.spec, cluster.owner, cluster_ip=policy.cluster_ip_head_service
    )
    announce = reasons.CREATE_SERVICE.announced(f"head Service {cluster.namespace}/{body['metadata']['name']}")
    return Part(actions=(CreateService(body=body, reason="there is no head Service", announce=announce),))
