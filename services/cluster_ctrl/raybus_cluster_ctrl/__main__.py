"""cluster_ctrl: looks after RayClusters. Wiring only."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from raybus.domain import kinds
from raybus.runtime.flags import load
from raybus.runtime.service import Parts, Services, run
from raybus.runtime.spec import ControllerSpec
from raybus_cluster_ctrl import metrics
from raybus_cluster_ctrl.act import ACTIONS, handlers
from raybus_cluster_ctrl.decide.pipeline import conclude, decide
from raybus_cluster_ctrl.decide.policy import Policy
from raybus_cluster_ctrl.decide.world import ClusterWorld
from raybus_cluster_ctrl.observe import Observer
from raybus_cluster_ctrl.settings import ClusterCtrlSettings
from raybus_cluster_ctrl.triggers import ROUTES

PROG = "raybus-cluster-ctrl"


def controller_spec(policy: Policy) -> ControllerSpec[ClusterWorld]:
    return ControllerSpec(
        name="raycluster",
        root_kind=kinds.RAYCLUSTER,
        routes=ROUTES,
        observe=Observer(),
        decide=partial(decide, policy=policy),
        conclude=partial(conclude, policy=policy),
        actions=ACTIONS,
    )


@asynccontextmanager
async def parts(services: Services) -> AsyncIterator[Parts]:
    yield Parts(handlers=handlers(services.kube), watch=metrics.watch, on_outcome=metrics.count(services.metrics))


def main() -> None:
    settings = load(ClusterCtrlSettings, PROG, description="Looks after RayClusters.")
    sys.exit(run(controller_spec(settings.policy()), settings, PROG, parts))


if __name__ == "__main__":
    main()
