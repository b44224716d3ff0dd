"""Planted defects of what looks after RayClusters."""

from __future__ import annotations

from dataclasses import replace

from raybus.runtime import controller, kube_verbs, outcomes
from raybus_cluster_ctrl.decide import head, workers
from simulation.sim.defects.registry import defect


@defect("delete-without-uid", "X6")
def delete_without_uid() -> None:
    """A pod is deleted by its name, whoever has that name by now."""
    original = kube_verbs.KubeVerbs._delete

    async def delete(self, action):
        return await original(self, replace(action, uid=None))

    kube_verbs.KubeVerbs._delete = delete


@defect("no-fresh-read", "C1 C3 C4 X8")
def no_fresh_read() -> None:
    """Destructive plans are not confirmed by a fresh read."""
    outcomes.needs_fresh_read = lambda _plan, *, takeover: ""


@defect("head-while-terminating", "C2")
def head_while_terminating() -> None:
    """A new head is made as soon as the old one is told to go."""
    original = head.decide

    def decide(world, policy):
        going = all(pod.terminating for pod in world.heads)
        return original(replace(world, heads=()) if going else world, policy)

    head.decide = decide


@defect("terminating-are-live", "C4 X8 X1 X2")
def terminating_are_live() -> None:
    """A worker that is terminating is taken for one that stays."""
    original = workers.decide

    def decide(world, group, policy):
        members = tuple(replace(pod, terminating=False) for pod in world.workers.get(group.name, ()))
        return original(replace(world, workers={**world.workers, group.name: members}), group, policy)

    workers.decide = decide


@defect("trust-after-a-gap", "C1 C3 X8")
def trust_after_a_gap() -> None:
    """What the mirror shows after NATS came back is taken for all there is."""
    controller.Controller.doubt = lambda _self: None
