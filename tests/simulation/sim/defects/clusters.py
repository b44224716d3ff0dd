"""Planted defects of what looks after RayClusters."""

from __future__ import annotations

import itertools
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


@defect("restless-decision", "X9")
def restless_decision() -> None:
    """How many workers are seen depends on how often was asked."""
    original, asked = workers.decide, itertools.count()

    def decide(world, group, policy):
        members = world.workers.get(group.name, ())
        seen = members[1:] if next(asked) % 2 else members
        return original(replace(world, workers={**world.workers, group.name: seen}), group, policy)

    workers.decide = decide


@defect("one-at-a-time", "X11", "neighbours")
def one_at_a_time() -> None:
    """A pass begins when the one before it has ended, whatever it waits for."""
    original = controller.Controller.start

    def start(self):
        self._worker_count = 1
        original(self)

    controller.Controller.start = start
