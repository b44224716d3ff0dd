"""The built-in controllers inside the server process: which ones, and their life."""

from __future__ import annotations

from raybus.kube.client import KubeClient


class UnknownController(ValueError):
    """--controllers names one that does not exist."""


class Controllers:
    """`names` None runs all. `running` says whether readiness may be told."""

    def __init__(self, client: KubeClient, names: tuple[str, ...] | None, *, ca: str) -> None:
        self._client, self._names, self._ca = client, names, ca
        self.running = False

    async def start(self) -> None:
        self.running = True

    async def stop(self) -> None:
        self.running = False
