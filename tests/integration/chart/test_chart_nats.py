"""A real nats-server starts with the configuration that the chart renders, alone and as a group of three."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import subprocess
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import nats
import pytest

from raybus.bus.permissions import users
from raybus.runtime.provision import pki
from support.chart import Json, container, environment, manifests, one, template
from support.nats import binary, free_port

NAME = "raybus-nats"
READY_S = 30.0
LOOK_EVERY_S = 0.2


class Servers:
    """The servers of a rendered release on this machine: paths, ports and names are the only difference."""

    def __init__(self, folder: Path, found: list[Json]) -> None:
        self.seeds = {user.name: pki.new_seed() for user in users()}
        self.ca = pki.new_ca("test", datetime.now(UTC))
        [stateful] = [each for each in found if each["kind"] == "StatefulSet"]
        self._name = stateful["metadata"]["name"]
        self._config: dict[str, str] = one(found, "ConfigMap", NAME)["data"]
        self._variables = {each["name"] for each in container(stateful)["env"]} - {"PATH"}
        self._count: int = stateful["spec"]["replicas"]
        self._folder = folder
        self.ports = [free_port() for _ in range(self._count)]
        self._routes = [free_port() for _ in range(self._count)]
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        for number in range(self._count):
            self._processes.append(self._server(number))

    def _server(self, number: int) -> subprocess.Popen[bytes]:
        folder = self._folder / str(number)
        folder.mkdir()
        certificate = pki.new_server(self.ca, ("localhost",), datetime.now(UTC))
        for name, pem in {**certificate, "ca.crt": self.ca["ca.crt"]}.items():
            (folder / name).write_bytes(pem)
        text = self._config["nats.conf"].replace("0.0.0.0:4222", f"127.0.0.1:{self.ports[number]}")
        text = text.replace("0.0.0.0:8222", f"127.0.0.1:{free_port()}")
        text = text.replace("0.0.0.0:6222", f"127.0.0.1:{self._routes[number]}")
        for other in range(self._count):
            host = f"{self._name}-{other}.{NAME}-headless.raybus-system.svc:6222"
            text = text.replace(host, f"localhost:{self._routes[other]}")
        for path, here in {
            "/etc/nats-tls": folder,
            "/run/nats": folder,
            "store_dir: /data": f"store_dir: {folder}/data",
        }.items():
            text = text.replace(path, str(here))
        (folder / "nats.conf").write_text(text)
        (folder / "accounts.conf").write_text(self._config["accounts.conf"])
        keys = {f"{user.upper()}_NKEY": pki.public_of_seed(seed).decode() for user, seed in self.seeds.items()}
        given = {"POD_NAME": f"{self._name}-{number}", "GOMEMLIMIT": "100MiB", **keys}
        assert self._variables == set(given)  # what the pod gives it
        with (folder / "log").open("wb") as log:
            return subprocess.Popen([binary(), "-c", folder / "nats.conf"], env=given, stdout=log, stderr=log)

    def logs(self) -> str:
        return "\n".join((self._folder / str(number) / "log").read_text() for number in range(self._count))

    def stop(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait(10)

    @contextlib.asynccontextmanager
    async def client(self, user: str) -> AsyncIterator[nats.NATS]:
        client = await nats.connect(
            [f"tls://localhost:{port}" for port in self.ports],
            tls=ssl.create_default_context(cadata=self.ca["ca.crt"].decode()),
            nkeys_seed_str=self.seeds[user].decode(),
            inbox_prefix=f"_INBOX_{user}".encode(),
            max_reconnect_attempts=2,
        )
        try:
            yield client
        finally:
            await client.close()


@pytest.mark.parametrize("replicas", [1, 3])
async def test_a_stream_can_be_made_on_the_rendered_servers(tmp_path: Path, replicas: int) -> None:
    found = manifests(template(sets=[f"nats.replicas={replicas}"]))
    copies = environment(one(found, "Deployment", "raybus-gateway"))["RAYBUS_STREAM_REPLICAS"]
    servers = Servers(tmp_path, found)
    servers.start()
    try:
        assert await _ready(servers, int(copies)) == (replicas, "file")
    finally:
        servers.stop()


async def _ready(servers: Servers, copies: int) -> tuple[int, str]:
    """As _made, when the servers have started and found each other."""
    for _ in range(int(READY_S / LOOK_EVERY_S)):
        if made := await _made(servers, copies):
            return made
        await asyncio.sleep(LOOK_EVERY_S)
    raise AssertionError(servers.logs())


async def _made(servers: Servers, copies: int) -> tuple[int, str] | None:
    """(copies, storage) of a stream made by the provisioner, who alone may; None while the servers find each other."""
    try:
        async with servers.client("provisioner") as client:
            stream = await client.jetstream(timeout=2).add_stream(
                name="RAYHIST", subjects=["ray.hist.>"], num_replicas=copies
            )
    except (nats.errors.Error, OSError):
        return None
    return stream.config.num_replicas or 0, str(stream.config.storage)


async def test_nobody_gets_in_without_a_key_of_its_own(tmp_path: Path) -> None:
    servers = Servers(tmp_path, manifests(template()))
    servers.start()
    try:
        await _ready(servers, 1)
        servers.seeds["gateway"] = pki.new_seed()
        with pytest.raises((nats.errors.Error, OSError)):
            async with servers.client("gateway"):
                pass
    finally:
        servers.stop()
