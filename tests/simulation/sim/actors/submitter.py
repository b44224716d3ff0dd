"""The pods of submitter Jobs: they do what their script says, with Ray's command line.

Wait for the dashboard; submit, unless Ray knows the job already; follow the log to the end.

What may live here: that script, as a coroutine.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

from raybus.ray.errors import NotFound, RayError, Refused
from raybus.ray.http import Dashboard
from raybus.ray.jobs import JobsClient
from simulation.sim.actors.apiserver import Change, Json
from simulation.sim.loop import Process
from simulation.sim.ports.ray import SimDashboards

if TYPE_CHECKING:
    from simulation.sim.world import World

ADDRESS = re.compile(r"--address http://(\S+)")
NAME = re.compile(r"--submission-id (\S+)")
LOST_S = 60.0  # Ray's client gives up on a head that does not answer


class Submitters:
    """Each pod is a process of its own."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._running: dict[str, Process] = {}

    def on_change(self, change: Change) -> None:
        labels = change.obj["metadata"].get("labels") or {}
        if change.resource != "pods" or "batch.kubernetes.io/job-name" not in labels:
            return
        uid = change.obj["metadata"]["uid"]
        if change.type == "DELETED" or "deletionTimestamp" in change.obj["metadata"]:
            if (process := self._running.pop(uid, None)) is not None:
                process.kill()
        elif (change.obj.get("status") or {}).get("phase") == "Running" and uid not in self._running:
            process = self._running[uid] = Process(self._world.loop, "submitter")
            process.spawn(self._run(process, change.obj))

    async def _run(self, process: Process, pod: Json) -> None:
        code = await self._script(process, pod)
        self._world.story.tell("submitter", f"{pod['metadata']['name']} ends with {code}")
        if (present := self._world.kubelet.pod(pod["metadata"]["uid"])) is not None:
            self._world.kubelet.complete(present, code)

    async def _script(self, process: Process, pod: Json) -> int:
        container = pod["spec"]["containers"][0]
        text = " ".join([*(container.get("command") or ()), *(container.get("args") or ())])
        address, name = ADDRESS.findall(text)[0], NAME.findall(text)[0]
        jobs = JobsClient(SimDashboards(self._world, process), Dashboard(url=f"http://{address}", timeout_s=10.0))
        while True:
            try:
                await jobs.version()
                break
            except RayError:
                await asyncio.sleep(2.0)
        try:
            if not await self._known(jobs, name):
                await jobs.submit({"submission_id": name, "entrypoint": "from the submitter"})
        except Refused as refused:
            if not refused.id_in_use:
                return 1
        except RayError:
            return 1
        return await self._follow(jobs, name)

    async def _known(self, jobs: JobsClient, name: str) -> bool:
        try:
            await jobs.get(name)
        except RayError:
            return False
        return True

    async def _follow(self, jobs: JobsClient, name: str) -> int:
        silent_since = None
        while True:
            try:
                record = await jobs.get(name)
                silent_since = None
                if record.terminal:
                    return 0 if record.status == "SUCCEEDED" else 1
            except NotFound:
                return 1
            except RayError:
                silent_since = silent_since or self._world.loop.now
                if self._world.loop.now - silent_since > LOST_S:
                    return 1
            await asyncio.sleep(1.0)
