"""Services of the image, beside NATS and a control plane in containers of their own."""

from __future__ import annotations

import contextlib
import json
import signal
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import pytest

from integration.cluster_ctrl.test_cluster_live import Scene, manifest
from raybus.bus.leases import free_partitions
from raybus.bus.nats import NatsBus
from raybus.bus.streams import DEFAULT_PARTITIONS, GATEWAY, lease_bucket, provision_leases
from support.containers import ControlPlane, Engine, NatsContainer, Running, answer
from support.kube import client_of, fresh_namespace
from support.nats import free_port

pytestmark = [pytest.mark.docker, pytest.mark.timeout(1200)]  # the first of them may have to build the image

HEALTHCHECK = ("python", "-m", "raybus.observe.healthcheck")
SECOND = 1_000_000_000


@dataclass(frozen=True)
class Service:
    container: Running

    @property
    def ready(self) -> bool:
        return answer(f"http://{self.container.here}/readyz") == 200

    def log(self, _name: str = "") -> str:
        return self.container.logs[-4000:]

    def end(self) -> int:
        self.container.send(signal.SIGTERM)
        return self.container.ended(within_s=30)


@dataclass(frozen=True)
class Surroundings:
    engine: Engine
    image: str
    nats: NatsContainer
    control_plane: ControlPlane

    @contextlib.contextmanager
    def running(self, command: str) -> Iterator[Service]:
        """The service, once it is ready, as it runs in a cluster: nothing to write to but /tmp, and no capabilities."""
        port = free_port()
        env = {
            "RAYBUS_NATS_URL": self.nats.inside,
            "RAYBUS_HEALTH_HOST": self.engine.listen,
            "RAYBUS_HEALTH_PORT": str(port),
            "RAYBUS_LEASE_TTL_S": "3",
            "KUBECONFIG": "/kubeconfig",
        }
        mounts = {self.control_plane.inside: "/kubeconfig"}
        hardened = {
            "read_only": True,
            "scratch": ["/tmp"],
            "cap_drop": ["ALL"],
            "security_opt": ["no-new-privileges"],
        }
        often = {"interval": SECOND, "timeout": 10 * SECOND, "retries": 2}  # what to ask is the image's own matter
        container = Running(
            self.engine, self.image, [command], port=port, env=env, mounts=mounts, healthcheck=often, **hardened
        )
        with container:
            service = Service(container)
            container.until(lambda: service.ready, f"{command} is ready")
            yield service


@pytest.fixture
async def surroundings(
    engine: Engine, image: str, nats_container: NatsContainer, control_plane: ControlPlane
) -> AsyncIterator[Surroundings]:
    """The API server knows our kinds, and no replica has to be waited for: the store is new."""
    bus = NatsBus(nats_container.url)
    await bus.connect()
    for owner, partitions in ((GATEWAY, 1), ("raycluster", DEFAULT_PARTITIONS)):
        await provision_leases(bus, owner)
        await free_partitions(bus, lease_bucket(owner), partitions)
    await bus.close()
    async with client_of(str(control_plane.kubeconfig)):
        yield Surroundings(engine, image, nats_container, control_plane)


async def test_a_ray_cluster_becomes_ready_and_goes(surroundings: Surroundings, control_plane: ControlPlane) -> None:
    with surroundings.running("raybus-gateway"), surroundings.running("raybus-cluster-ctrl") as controller:
        async with client_of(str(control_plane.kubeconfig)) as kube, fresh_namespace(kube) as namespace:
            scene = Scene(kube, namespace, controller)
            await scene.apply(manifest(replicas=2))
            await scene.until_pods(3)
            await scene.run_pods()
            await scene.until_ready()


async def test_a_service_tells_its_health_and_ends_when_asked(surroundings: Surroundings) -> None:
    with surroundings.running("raybus-gateway") as gateway:
        container = gateway.container
        container.until(lambda: container.state["Health"]["Status"] == "healthy", "Docker calls it healthy")

        container.send(signal.SIGSTOP)
        container.until(lambda: container.state["Health"]["Status"] == "unhealthy", "a hung process is unhealthy")
        last = container.state["Health"]["Log"][-1]
        assert "/healthz" in last["Output"]
        container.send(signal.SIGCONT)
        container.until(lambda: container.state["Health"]["Status"] == "healthy", "and healthy again")

        assert gateway.end() == 0
        assert "stopped" in {json.loads(line)["event"] for line in container.logs.splitlines()}


async def test_a_service_without_its_surroundings_ends_with_one_line(engine: Engine, image: str) -> None:
    env = {"RAYBUS_HEALTH_HOST": engine.listen, "RAYBUS_HEALTH_PORT": "0", "RAYBUS_NATS_WAIT_S": "1"}
    with Running(
        engine, image, ["raybus-gateway", "--nats-url", "nats://127.0.0.1:1"], env=env, read_only=True
    ) as gateway:
        assert gateway.ended(within_s=30) == 1
        assert gateway.logs.splitlines()[-1].startswith("raybus-gateway: ")
        assert "Traceback" not in gateway.logs
