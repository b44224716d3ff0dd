"""The product's client of dashboards, over a network that the seed rules.

What may live here: what can happen to a request on its way to a dashboard.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from raybus.ray.errors import NoAnswer
from raybus.ray.http import ANSWER_MAX, Answer, Dashboard, Dashboards
from simulation.sim.loop import Process

if TYPE_CHECKING:
    from simulation.sim.actors.dashboard import Head
    from simulation.sim.world import World

HTML = Answer(200, b"<html><body>Bad gateway</body></html>")


class SimDashboards(Dashboards):
    def __init__(self, world: World, process: Process) -> None:
        super().__init__()
        self._world, self._process = world, process
        self._before: dict[str, Answer] = {}  # the last answers, for a dashboard that lies

    async def request(
        self,
        dashboard: Dashboard,
        method: str,
        path: str,
        *,
        body: Any = None,
        timeout_s: float | None = None,
        answer_max: int = ANSWER_MAX,
    ) -> Answer:
        limit_s = timeout_s or dashboard.timeout_s
        asked = f"{method} {dashboard.url}{path}"
        try:
            async with asyncio.timeout(limit_s):
                return await self._answered(dashboard, method, path, body)
        except TimeoutError as error:
            raise NoAnswer(f"{asked}: no answer in {limit_s:g} s") from error
        except OSError as error:
            raise NoAnswer(f"{asked}: {error}") from error

    async def _answered(self, dashboard: Dashboard, method: str, path: str, body: Any) -> Answer:
        world = self._world
        sort = (
            "ray.submit"
            if method == "POST" and path == "/api/jobs/"
            else "ray.stop"
            if method == "POST"
            else "ray.read"
        )
        what = "version" if path == "/api/version" else "job"
        fault = world.faults.at(sort, f"{what} @{self._process.name}")
        if fault:
            world.story.tell("fault", f"{fault}: {method} {path} of {self._process.name}")
            if (made_up := await self._on_the_way(fault, path)) is not None:
                return made_up
        await world.travel()
        head = self._head(dashboard)
        answer = world.dashboards.answer(head, method, path, body, self._process.name)
        if method == "GET" and answer.status == 200:
            self._before[path] = answer
        if fault == "lost-answer":
            await world.never_answered(self._process)
        if fault == "crash-after":
            await world.dies(self._process)
        await world.travel()
        return answer

    def _head(self, dashboard: Dashboard) -> Head:
        head = self._world.dashboards.head_at(dashboard.url.removeprefix("http://"))
        if head is None:
            raise ConnectionRefusedError("connection refused")
        return head

    async def _on_the_way(self, fault: str, path: str) -> Answer | None:
        """What keeps the request from arriving, or is answered in its stead."""
        await self._world.travel()
        match fault:
            case "refused":
                raise ConnectionRefusedError("connection refused")
            case "lost-request":
                await self._world.never_answered(self._process)
            case "error-500":
                return Answer(500, b"Internal Server Error")
            case "html":
                return HTML
            case "not-found":
                return Answer(404, b"Job does not exist")
            case "slow":
                await asyncio.sleep(2.0)
            case "ignored":
                return Answer(200, b'{"stopped": true}')
            case "old-answer":
                return self._before.get(path)
            case "crash-before":
                await self._world.dies(self._process)
            case "freeze":
                await self._world.stands_still(self._process, 20.0)
        return None
