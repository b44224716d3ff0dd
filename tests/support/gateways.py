"""Gateway processes, and a controller's session with a view of its streams, for integration tests."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import aiohttp

from raybus.bus import envelope
from raybus.bus.envelope import MarkerMessage, ObjectMessage, Op
from raybus.bus.leases import Leases, free_partitions
from raybus.bus.session import Session, encode_session
from raybus.bus.streams import GATEWAY, lease_bucket, object_stream, provision_leases
from raybus.bus.subjects import is_marker
from raybus.bus.transport import Bus, Follower, Message
from raybus.decide.routes import Route
from support.nats import free_port
from support.routes import CLUSTERS_OF_JOB, JOB, PODS_BY_CLUSTER, PODS_OF_JOB

LEASE_TTL_S = 2

JOB_ROUTES = (JOB, CLUSTERS_OF_JOB, PODS_BY_CLUSTER, PODS_OF_JOB)


class GatewayProcess:
    """One gateway process. `ready()` asks its own /readyz."""

    def __init__(self, folder: Path, nats_url: str, kubeconfig: str, replica: str, *flags: str) -> None:
        self.replica = replica
        self.health = f"http://127.0.0.1:{(port := free_port())}"
        self._log = folder / f"{replica}.log"
        folder.mkdir(parents=True, exist_ok=True)
        arguments = ["--nats-url", nats_url, "--kubeconfig", kubeconfig, "--replica-id", replica]
        arguments += ["--health-port", str(port), "--lease-ttl-s", str(LEASE_TTL_S), *flags]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "raybus_gateway", *arguments],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env={key: value for key, value in os.environ.items() if not key.startswith("RAYBUS_")},
            )

    def log(self) -> str:
        return self._log.read_text()

    async def checks(self) -> dict[str, Any]:
        """What /readyz says; {} while nobody answers."""
        try:
            async with aiohttp.ClientSession() as session, session.get(f"{self.health}/readyz") as response:
                body: dict[str, Any] = await response.json()
                return body
        except aiohttp.ClientError:
            return {}

    async def role(self) -> str:
        """Either "active" or "standby" if it is ready, else empty."""
        checks = await self.checks()
        return str(checks["checks"]["lease"]["detail"]) if checks.get("ready") else ""

    async def ready(self, within_s: float = 60.0, detail: str = "") -> None:
        """Wait until it is ready; with `detail` also for this word about the lease, "active" or "standby"."""
        try:
            async with asyncio.timeout(within_s):
                while True:
                    role = await self.role()
                    if role and detail in role:
                        return
                    assert self.process.poll() is None, f"the gateway ended:\n{self.log()}"
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"not ready: {await self.checks()}\n{self.log()}") from None

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self, number: signal.Signals = signal.SIGKILL) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.send_signal(number)
        self.process.wait(20)


class Reader:
    """Lives as one replica of a controller and sees what its stream brings."""

    def __init__(self, bus: Bus, controller: str, routes: Iterable[Route]) -> None:
        self._bus = bus
        self._controller = controller
        session = Session(replica=f"{controller}-1", version="0", started="", routes=tuple(routes))
        self._leases = Leases(
            bus,
            lease_bucket(controller),
            session.replica,
            1,
            session=encode_session(session),
            on_gain=_nothing,
            on_lose=_nothing,
        )
        self._follower: Follower | None = None
        self.by_subject: dict[str, ObjectMessage] = {}
        self.markers: list[MarkerMessage] = []
        self.log: list[ObjectMessage] = []

    async def start(self) -> None:
        await provision_leases(self._bus, self._controller)
        await self._leases.start()
        self._follower = await self._bus.follow(
            object_stream(self._controller), (f"ray.{self._controller}.>",), on_message=self._take
        )

    async def close(self) -> None:
        await self._leases.stop()
        if self._follower:
            await self._follower.close()

    def _take(self, message: Message) -> None:
        if is_marker(message.subject):
            if marker := envelope.decode_marker(message):
                self.markers.append(marker)
        elif decoded := envelope.decode_object(message):
            self.by_subject[message.subject] = decoded
            self.log.append(decoded)

    def tree(self, root: str, namespace: str) -> dict[tuple[str, str], ObjectMessage]:
        """What is alive in a tree, by kind and name."""
        return {
            (message.address.kind, message.address.name): message
            for message in self.by_subject.values()
            if message.op is Op.PUT and message.address.key.name == root and message.address.key.namespace == namespace
        }

    def tombstone(self, kind: str, name: str, namespace: str) -> ObjectMessage | None:
        for message in self.by_subject.values():
            address = message.address
            if (message.op, address.kind, address.name, address.key.namespace) == (Op.DELETED, kind, name, namespace):
                return message
        return None

    def marked(self, kind: str, term: str = "") -> bool:
        return any(marker.kind == kind and (not term or marker.term == term) for marker in self.markers)


async def _nothing(*_arguments: object) -> None:
    pass


async def no_owner_yet(bus: Bus) -> None:
    """Nobody need be waited for: the store is new."""
    await provision_leases(bus, GATEWAY)
    await free_partitions(bus, lease_bucket(GATEWAY), 1)
