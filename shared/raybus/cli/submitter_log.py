"""A job's output as its submitter's pod shows it (K8sJobMode)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from raybus.cli.job_log import RETRY_S, JobLog, Print
from raybus.cli.story import View
from raybus.domain.kinds import POD
from raybus.kube.client import KubeClient
from raybus.kube.errors import KubeError

RETRIES = 30


class SubmitterLog(JobLog):
    """Follows the logs of the submitter's pods, one after the other; a lost connection repeats no line.

    A pod that takes over from a dead one shows the job's log from its beginning again, and this says so.
    """

    def __init__(self, client: KubeClient, namespace: str, write: Print) -> None:
        super().__init__(write)
        self._client, self._namespace = client, namespace
        self._pod = ""

    def see(self, view: View) -> None:
        """Start following when a submitter appears, or another takes over."""
        if view.submitter and view.submitter != self._pod:
            if self._task is not None:
                self._task.cancel()
                self._write(f"--- {self._pod} is over; the log again from its beginning, by {view.submitter} ---")
            self._pod, self._printed = view.submitter, 0
            self._task = asyncio.create_task(self._follow(view.submitter), name=f"log of {view.submitter}")

    async def _follow(self, pod: str) -> None:
        for _ in range(RETRIES):
            seen = 0
            try:
                async for line in self._lines(pod):
                    seen += 1
                    if seen > self._printed:
                        self._printed = seen
                        self._write(line.decode(errors="replace"))
                return
            except KubeError:
                # The container is being started, or the API server restarted: the log is read again from its beginning.
                await asyncio.sleep(RETRY_S)

    def _lines(self, pod: str) -> AsyncIterator[bytes]:
        return self._client.stream_lines(POD.path(self._namespace, pod, "log"), {"follow": "true"})
