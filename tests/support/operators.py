"""The services of Raybus as processes, against any API server: what integration tests and benchmarks start.

`Operator` starts them for one test. `standing` keeps one for the tests of a module, each of which has a namespace of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Self

import aiohttp
import pytest

from raybus.bus.leases import free_partitions
from raybus.bus.nats import NatsBus
from raybus.bus.streams import DEFAULT_PARTITIONS, lease_bucket, provision_leases
from raybus.domain import kinds
from raybus.kube import errors
from raybus.kube.client import KubeClient
from support.fake_ray import FakeRay
from support.kube import fresh_namespace
from support.nats import NatsServer, free_port

READY_S = 90.0
CLEARED_S = 10.0
MODULES = {"gateway": "raybus_gateway", "cluster_ctrl": "raybus_cluster_ctrl", "job_ctrl": "raybus_job_ctrl"}
CONTROLLERS = {"cluster_ctrl": "raycluster", "job_ctrl": "rayjob"}


class Operator:
    """nats-server, gateway and the named controllers. `async with` starts them and ends all of them.

    A further replica of a service is one more name, with a number: `gateway-2`.
    """

    def __init__(
        self,
        folder: Path,
        kubeconfig: str,
        *services: str,
        lease_ttl_s: int = 3,
        max_payload: int = 8 << 20,
        proxy: str = "",
    ) -> None:
        self.nats = NatsServer(folder / "nats", max_payload=max_payload)
        self._folder = folder
        self._kubeconfig = kubeconfig
        self._services = ("gateway", *services)
        self._lease_ttl_s = lease_ttl_s
        self._env = plain_environment() | ({"HTTP_PROXY": proxy, "http_proxy": proxy} if proxy else {})
        self._changed: set[str] = set()
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
            self.end()
            raise
        return self

    async def __aexit__(self, *_error: object) -> None:
        self.end()

    def start(self, name: str, env: Mapping[str, str] | None = None) -> None:
        """Start a service, again if it was killed. `env` is added, a fault point for example."""
        if name == "nats":
            self.nats.start()
            return
        arguments = ["--nats-url", self.nats.url, "--kubeconfig", self._kubeconfig]
        arguments += ["--health-port", str(self._ports[name]), "--lease-ttl-s", str(self._lease_ttl_s)]
        self._changed -= {name}
        self._changed |= {name} if env else set()
        with self.log_file(name).open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [sys.executable, "-m", MODULES[service_of(name)], *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._env | dict(env or {}),
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
            # What a controller waits for is often the gateway, and its log tells why.
            logs = "\n".join(self.log(each) for each in dict.fromkeys(("gateway", name)) if each in self._processes)
            raise AssertionError(f"{name} is not ready: {said}\n{logs}") from None

    async def checks(self, name: str) -> tuple[int, dict[str, str]]:
        """What /readyz says: the status, and of each check that does not hold its detail."""
        url = f"http://127.0.0.1:{self._ports[name]}/readyz"
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            found = (await response.json())["checks"]
            return response.status, {check: said["detail"] for check, said in found.items() if not said["ok"]}

    def address(self, name: str) -> str:
        """Where a service has /healthz, /readyz and /metrics."""
        return f"127.0.0.1:{self._ports[name]}"

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

    async def restart(self, name: str, env: Mapping[str, str] | None = None) -> None:
        """End it as an administrator would, so that nobody need wait for its leases, and start it with `env`."""
        self.signal(name, signal.SIGTERM)
        await self.died(name)
        self.start(name, env)
        await self.ready(name)

    async def mend(self) -> None:
        """All services run as they were started first, whatever became of them since."""
        if not self.nats.running:
            self.nats.start()
        for name in self._services:
            if self._processes[name].poll() is not None:
                self.start(name)
            elif name in self._changed:
                await self.restart(name)
        for name in self._services:
            await self.ready(name)

    def end(self) -> None:
        """All of them."""
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


def plain_environment() -> dict[str, str]:
    """Ours without settings of Raybus and without proxies."""
    proxies = ("http_proxy", "https_proxy", "no_proxy", "all_proxy")
    return {
        key: value for key, value in os.environ.items() if not key.startswith("RAYBUS_") and key.lower() not in proxies
    }


class Standing:
    """One operator for test after test. A test may kill and change its services: the next one finds them mended.

    After a failed test, or one whose objects did not go, a new one is started: no test suffers from another.
    """

    def __init__(self, tests: pytest.Session, folders: pytest.TempPathFactory, kubeconfig: str) -> None:
        self._tests, self._folders, self._kubeconfig = tests, folders, kubeconfig
        self._ray = socket.create_server(
            ("127.0.0.1", 0)
        )  # of one address for all, though each test has a Ray of its own
        self._operator: Operator | None = None
        self._services: tuple[str, ...] = ()
        self._failed = 0
        self._littered = False

    @contextlib.asynccontextmanager
    async def serving(self, kube: KubeClient, *services: str) -> AsyncIterator[tuple[Operator, FakeRay, str]]:
        """The operator with these controllers, the Ray that they see, and a namespace, all for one test."""
        async with FakeRay().serving(on=self._ray.dup()) as ray:
            operator = await self._ready(services)
            async with fresh_namespace(kube) as namespace:
                yield operator, ray, namespace
                self._littered = not await cleared(kube, namespace)

    def end(self) -> None:
        self.stop()
        self._ray.close()

    def stop(self) -> None:
        """Until it is asked for again: two operators on one API server would do each other's work."""
        if self._operator is not None:
            self._operator.end()
            self._operator = None

    async def _ready(self, services: tuple[str, ...]) -> Operator:
        failed = self._tests.testsfailed
        if services != self._services or failed != self._failed or self._littered:
            self.stop()
        self._services, self._failed, self._littered = services, failed, True  # until this test has cleared its own
        if self._operator is not None:
            await self._operator.mend()
            return self._operator
        proxy = f"http://127.0.0.1:{self._ray.getsockname()[1]}"
        operator = Operator(self._folders.mktemp("operator"), self._kubeconfig, *services, proxy=proxy)
        self._operator = await operator.__aenter__()
        return operator


@pytest.fixture(scope="module")
def standing(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, kubeconfig: str
) -> Iterator[Standing]:
    """For tests that need nothing of an operator but that it works."""
    found = Standing(request.session, tmp_path_factory, kubeconfig)
    yield found
    found.end()


async def cleared(kube: KubeClient, namespace: str) -> bool:
    """Whether the operator let go of all that was made there, so that it has no work when the next test begins."""
    for kind in (kinds.RAYJOB, kinds.RAYCLUSTER):
        with contextlib.suppress(errors.NotFound):
            await kube.request("DELETE", kind.path(namespace))
    with contextlib.suppress(TimeoutError, errors.NotFound):
        async with asyncio.timeout(CLEARED_S):
            for kind in (kinds.RAYJOB, kinds.RAYCLUSTER):
                while await kube.list_all(kind, namespace):  # noqa: ASYNC110 - another process does it
                    await asyncio.sleep(0.05)
            return True
    return False
