"""The built-in controllers inside the server process: which ones, and their life."""

from __future__ import annotations

import asyncio
import contextlib
import logging

from raybus.kube.client import KubeClient
from raybus_localkube.controllers.manager import Manager
from raybus_localkube.controllers.run import ALL, running

log = logging.getLogger(__name__)
START_S = 30.0


class UnknownController(ValueError):
    """--controllers names one that does not exist."""


class Controllers:
    """`names` None runs all. `running` says whether readiness may be told: all have seen what there is."""

    def __init__(self, client: KubeClient, names: tuple[str, ...] | None, *, ca: str) -> None:
        self._client, self._names, self._ca = client, ALL if names is None else names, ca
        self._life = contextlib.AsyncExitStack()
        self._manager: Manager | None = None
        self._started = False
        if unknown := [name for name in self._names if name not in ALL]:
            raise UnknownController(f"no such controller: {', '.join(unknown)}; there are {', '.join(ALL)}")

    @property
    def running(self) -> bool:
        return self._started and (self._manager is None or self._manager.alive)

    async def start(self) -> None:
        if self._names:
            work = running(self._client, self._names, root_ca=self._ca)
            self._manager = await self._life.enter_async_context(work)
            try:
                async with asyncio.timeout(START_S):
                    await self._manager.started.wait()
            except TimeoutError:
                log.warning("the built-in controllers have not seen everything in %s s; serving all the same", START_S)
        self._started = True

    async def stop(self) -> None:
        self._started = False
        await self._life.aclose()
