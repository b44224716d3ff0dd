"""job_ctrl: looks after RayJobs. Wiring only."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from raybus.api.shape import Shapes
from raybus.domain import kinds
from raybus.kube.client import KubeClient
from raybus.observe.requests import RayRequests
from raybus.ray.http import Access, Dashboards
from raybus.runtime.flags import load
from raybus.runtime.service import Parts, Services, run
from raybus.runtime.spec import ControllerSpec
from raybus_job_ctrl import metrics
from raybus_job_ctrl.act import ACTIONS, RayActions
from raybus_job_ctrl.decide.pipeline import conclude, decide
from raybus_job_ctrl.decide.policy import Policy
from raybus_job_ctrl.decide.world import JobWorld
from raybus_job_ctrl.observe import observe
from raybus_job_ctrl.probe import JobProber, RayAccess
from raybus_job_ctrl.settings import JobCtrlSettings
from raybus_job_ctrl.triggers import ROUTES

PROG = "raybus-job-ctrl"


def controller_spec(policy: Policy) -> ControllerSpec[JobWorld]:
    return ControllerSpec(
        name="rayjob",
        root_kind=kinds.RAYJOB,
        routes=ROUTES,
        observe=partial(observe, shapes=Shapes()),
        decide=partial(decide, policy=policy),
        conclude=partial(conclude, policy=policy),
        actions=ACTIONS,
    )


def access_of(kube: KubeClient) -> Access:
    """The API server as the Kubernetes client reaches it now."""
    config = kube.config
    return Access(
        server=config.server,
        tls=config.tls,
        server_hostname=config.server_hostname,
        authorization=config.authorization or "",
        proxy=config.proxy,
    )


@asynccontextmanager
async def parts(services: Services, *, through_api_server: bool) -> AsyncIterator[Parts]:
    access = partial(access_of, services.kube) if through_api_server else None
    requests = RayRequests(services.metrics)
    async with Dashboards(access=access, on_answer=requests.answered) as ray:
        ray_access = RayAccess(ray, services.kube)
        yield Parts(
            handlers=RayActions(ray_access).handlers(),
            prober=JobProber(ray_access),
            watch=partial(metrics.watch, now=services.clock.now),
            on_outcome=metrics.count(services.metrics),
        )


def main() -> None:
    settings = load(JobCtrlSettings, PROG, description="Looks after RayJobs.")
    make_parts = partial(parts, through_api_server=settings.use_kubernetes_proxy)
    sys.exit(run(controller_spec(settings.policy()), settings, PROG, make_parts))


if __name__ == "__main__":
    main()
