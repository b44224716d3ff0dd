"""The services of Raybus as processes, against any API server: what integration tests and benchmarks start."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import aiohttp

from raybus.bus.leases import free_partitions
from raybus.bus.nats import NatsBus
from raybus.bus.streams import DEFAULT_PARTITIONS, lease_bucket, provision_leases
from support.nats import NatsServer, free_port

READY_S = 30.0
MODULES = {"gateway": "raybus_gateway", "cluster_ctrl": "raybus_cluster_ctrl", "job_ctrl": "raybus_job_ctrl"}
CONTROLLERS = {"cluster_ctrl": "raycluster", "job_ctrl": "rayjob"}


class Operator:
    """nats-server, gateway and the named controllers. `async with` starts them and ends all of them.

    A further replica of a service is one more name, with a number: `gateway-2`.
    """

    def __init__(
        self, folder: Path, kubeconfig: str, *services: str, lease_ttl_s: int = 3, max_payload: int = 8 << 20
    ) -> None:
        self.nats = NatsServer(folder / "nats", max_payload=max_payload)
        self._folder = folder
        self._kubeconfig = kubeconfig
        self._services = ("gateway", *services)
        self._lease_ttl_s = lease_ttl_s
        self._ports = {name: free_port() for name in self._services}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    async def __aenter__(self) -> Self:
        self.nats.start()
        try:
            await self._nobody_to_wait_for()
            for name in self._services:
                self.start(name)
            for name in self._services:
                await self.ready(name)
        except BaseException:
            self._end()
            raise
        return self

    async def __aexit__(self, *_error: object) -> None:
        self._end()

    def start(self, name: str, env: Mapping[str, str] | None = None) -> None:
        """Start a service, again if it was killed. `env` is added, a fault point for example."""
        if name == "nats":
            self.nats.start()
            return
        arguments = ["--nats-url", self.nats.url, "--kubeconfig", self._kubeconfig]
        arguments += ["--health-port", str(self._ports[name]), "--lease-ttl-s", str(self._lease_ttl_s)]
        own = {key: value for key, value in os.environ.items() if not key.startswith("RAYBUS_")}
        with self.log_file(name).open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [sys.executable, "-m", MODULES[service_of(name)], *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=own | dict(env or {}),
            )

    async def ready(self, name: str) -> None:
        """Wait until the service says that it is ready."""
        if name == "nats":
            return  # it takes connections once it is started
        url = f"http://127.0.0.1:{self._ports[name]}/readyz"
        said = "no answer"
        try:
            async with asyncio.timeout(READY_S), aiohttp.ClientSession() as session:
                while True:
                    try:
                        async with session.get(url) as response:
                            said = await response.text()
                            if response.status == 200:
                                return
                    except aiohttp.ClientError:
                        pass
                    assert self._processes[name].poll() is None, f"{name} ended:\n{self.log(name)}"
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"{name} is not ready: {said}\n{self.log(name)}") from None

    async def checks(self, name: str) -> tuple[int, dict[str, str]]:
        """What /readyz says: the status, and of each check that does not hold its detail."""
        url = f"http://127.0.0.1:{self._ports[name]}/readyz"
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            found = (await response.json())["checks"]
            return response.status, {check: said["detail"] for check, said in found.items() if not said["ok"]}

    async def metrics(self, name: str) -> str:
        url = f"http://127.0.0.1:{self._ports[name]}/metrics"
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            return await response.text()

    def kill(self, name: str) -> None:
        """kill -9."""
        if name == "nats":
            self.nats.kill()
            return
        self._processes[name].send_signal(signal.SIGKILL)
        self._processes[name].wait(10)

    def signal(self, name: str, number: signal.Signals) -> None:
        os.kill(self.pid(name), number)

    async def died(self, name: str, within_s: float = 20.0) -> None:
        """Wait until the service has ended by itself."""
        if name == "nats":
            await asyncio.to_thread(self.nats.stop)
            return
        await asyncio.wait_for(asyncio.to_thread(self._processes[name].wait), within_s)

    def pid(self, name: str) -> int:
        return self.nats.pid if name == "nats" else self._processes[name].pid

    def log_file(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def log(self, name: str) -> str:
        return self.log_file(name).read_text()[-4000:]

    def _end(self) -> None:
        for process in self._processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                process.send_signal(signal.SIGCONT)  # a test may have frozen it
        for process in self._processes.values():
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)
        self.nats.stop()

    async def _nobody_to_wait_for(self) -> None:
        """The store is new: no replica can hold a partition, so none need be waited for."""
        bus = NatsBus(self.nats.url)
        await bus.connect()
        try:
            for owner, partitions in (
                ("gateway", 1),
                *((CONTROLLERS[s], DEFAULT_PARTITIONS) for s in self._services if s in CONTROLLERS),
            ):
                await provision_leases(bus, owner)
                await free_partitions(bus, lease_bucket(owner), partitions)
        finally:
            await bus.close()


def service_of(name: str) -> str:
    return name.partition("-")[0]
