"""A job's output through Ray's own API: for jobs that have no submitter (HTTPMode)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from raybus.cli.job_log import RETRY_S, JobLog, Print
from raybus.cli.story import View
from raybus.kube.client import KubeClient
from raybus.ray.errors import RayError
from raybus.ray.http import Access, Dashboards
from raybus.ray.jobs import TERMINAL, JobsClient


class RayLog(JobLog):
    """Follows the log of the submission that the view names, each line once.

    `access` leads through the API server's Service proxy; without it HTTP_PROXY must lead to Ray's Services.
    """

    def __init__(self, write: Print, access: Callable[[], Access] | None) -> None:
        super().__init__(write)
        self._access = access
        self._ended = asyncio.Event()

    def see(self, view: View) -> None:
        """Begin once Ray knows the job; when it has ended, what is left is read once more."""
        if view.job and view.dashboard and self._task is None:
            self._task = asyncio.create_task(self._follow(view.dashboard, view.job_id), name=f"log of {view.job_id}")
        if view.job in TERMINAL:
            self._ended.set()

    async def drain(self, limit_s: float) -> None:
        self._ended.set()
        await super().drain(limit_s)

    async def _follow(self, dashboard: str, job_id: str) -> None:
        service, namespace, *_ = dashboard.split(".")
        async with Dashboards(access=self._access) as ray:
            jobs = JobsClient(ray, ray.at(dashboard, namespace=namespace, service=service))
            last = False
            while not last:
                last = self._ended.is_set()
                with contextlib.suppress(RayError):  # a head that restarts, or is gone: what was printed stands
                    self._print(await jobs.logs(job_id), last=last)
                if not last:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._ended.wait(), RETRY_S)

    def _print(self, text: str, *, last: bool) -> None:
        lines = text.splitlines()
        complete = len(lines) if last or text.endswith("\n") else len(lines) - 1
        for line in lines[self._printed : complete]:
            self._write(line)
        self._printed = max(self._printed, complete)


def access_of(client: KubeClient) -> Access:
    """The way to dashboards through the API server, with the client's own credentials."""
    config = client.config
    return Access(
        server=config.server,
        tls=config.tls,
        server_hostname=config.server_hostname,
        authorization=config.authorization,
        proxy=config.proxy,
    )
