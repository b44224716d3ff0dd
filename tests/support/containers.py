"""Containers for tests marked `docker`, on any engine that the environment names.

An ordinary engine gives each container an address of its own on its bridge and publishes ports on the host. An engine without a
bridge runs them in the host's network: then servers listen on loopback, on a free port. RAYBUS_TEST_DOCKER_NETWORK says which,
"bridge" or "host"; without it the engine is asked whether it has a bridge.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import docker
import pytest
import trustme
from docker.errors import ImageNotFound
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer

from support.nats import free_port

ROOT = Path(__file__).resolve().parents[2]
NETWORK = "RAYBUS_TEST_DOCKER_NETWORK"
START_S = 60.0
NATS_IMAGE = "nats:2"
LOCAL_KUBE_IMAGE = "raybus-test/kube:local"  # every program of Kubernetes, where the public images cannot be had
ETCD_IMAGE = "registry.k8s.io/etcd:3.6.8-0"
APISERVER_IMAGE = "registry.k8s.io/kube-apiserver:v1.36.1"


@dataclass(frozen=True)
class Engine:
    """`listen` is the address that a server in a container has to listen on."""

    client: docker.DockerClient
    network: str

    @property
    def listen(self) -> str:
        return "127.0.0.1" if self.network == "host" else "0.0.0.0"

    def has(self, image: str) -> bool:
        try:
            self.client.images.get(image)
        except ImageNotFound:
            return False
        return True


@contextmanager
def engine() -> Iterator[Engine]:
    """The engine of DOCKER_HOST, else the default one. Skips the test where none answers."""
    if trouble := no_engine():
        pytest.skip(
            f"needs a Docker engine, and none answers at {os.environ.get('DOCKER_HOST', 'its default')}: {trouble}"
        )
    client = docker.from_env()
    try:
        network = os.environ.get(NETWORK) or ("bridge" if client.networks.list(names=["^bridge$"]) else "host")
        assert network in {"bridge", "host"}, f'{NETWORK} must be "bridge" or "host", not {network!r}'
        if network == "host":
            testcontainers_config.ryuk_disabled = True  # it wants a published port
        yield Engine(client, network)
    finally:
        client.close()


def no_engine() -> str:
    """Why there is none; empty if one answers. Asked by its own command, which the image is built with too."""
    if not shutil.which("docker"):
        return "the command docker is missing"
    asked = subprocess.run(
        ["docker", "version", "--format", "{{.Server.Version}}"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    return "" if asked.returncode == 0 else asked.stderr.strip()


class Running:
    """A container, started and at the end removed by `with`. With a `port` others reach it at `address` of `here` and `inside`.

    `files` are put into it before it starts, `mounts` are files of the host that it reads, `scratch` are folders in memory. What
    docker-py's `create` knows further is given on.
    """

    def __init__(
        self,
        where: Engine,
        image: str,
        command: Sequence[str],
        *,
        port: int | None = None,
        env: Mapping[str, str] | None = None,
        files: Mapping[str, bytes] | None = None,
        mounts: Mapping[Path, str] | None = None,
        scratch: Sequence[str] = (),
        **more: Any,
    ) -> None:
        self._where = where
        self._port = port
        self._container = DockerContainer(image, command=list(command), env=dict(env or {}))
        self._container.with_kwargs(**more | ({"network_mode": "host"} if where.network == "host" else {}))
        if port and where.network == "bridge":
            self._container.with_bind_ports(port, port)
        for path, content in (files or {}).items():
            self._container.with_copy_into_container(content, path)
        for source, target in (mounts or {}).items():
            self._container.with_volume_mapping(str(source), target)
        for path in scratch:
            self._container.with_tmpfs_mount(path)

    def __enter__(self) -> Self:
        self._container.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._container.__exit__(*error)

    @property
    def here(self) -> str:
        """host:port for this process."""
        host = "127.0.0.1" if self._where.network == "host" else self._container.get_container_host_ip()
        return f"{host}:{self._port}"

    @property
    def inside(self) -> str:
        """host:port for other containers."""
        if self._where.network == "host":
            return f"127.0.0.1:{self._port}"
        identity = self._container.get_container_id()
        return f"{self._container.get_docker_client().bridge_ip(identity)}:{self._port}"

    @property
    def state(self) -> dict[str, Any]:
        """As `docker inspect` shows it under State."""
        wrapped = self._container.get_wrapped_container()
        wrapped.reload()
        found: dict[str, Any] = wrapped.attrs["State"]
        return found

    @property
    def logs(self) -> str:
        return "".join(part.decode(errors="replace") for part in self._container.get_logs())

    def run(self, *command: str) -> tuple[int, str]:
        """A further process in it: exit code and output."""
        done = self._container.exec(list(command))
        return done.exit_code, done.output.decode(errors="replace")

    def send(self, number: signal.Signals) -> None:
        self._container.get_wrapped_container().kill(signal=number.name)

    def ended(self, within_s: float) -> int:
        """Wait until its process has ended; the exit code."""
        code: int = self._container.get_wrapped_container().wait(timeout=within_s)["StatusCode"]
        return code

    def start_again(self) -> None:
        """On the same file system."""
        self._container.get_wrapped_container().start()

    def until(self, holds: Any, what: str) -> None:
        """Wait until `holds()` is true; an OSError counts as not yet."""
        ends = time.monotonic() + START_S
        while True:
            try:
                if holds():
                    return
                said = ""
            except OSError as error:
                said = str(error)
            assert self.state["Running"], f"the container ended with {self.state['ExitCode']}:\n{self.logs[-4000:]}"
            assert time.monotonic() < ends, f"not within {START_S} s: {what} ({said})\n{self.logs[-4000:]}"
            time.sleep(0.05)


class NatsContainer:
    """A NATS server with JetStream, with the face of support.nats.NatsServer that a bus back end needs."""

    def __init__(self, where: Engine) -> None:
        self._port = free_port()
        command = ["--jetstream", "--store_dir", "/store", "--addr", where.listen, "--port", str(self._port)]
        self._running = Running(where, NATS_IMAGE, command, port=self._port)

    def __enter__(self) -> Self:
        self._running.__enter__()
        self._until_served()
        return self

    def __exit__(self, *error: object) -> None:
        self._running.__exit__(*error)

    @property
    def url(self) -> str:
        return f"nats://{self._running.here}"

    @property
    def inside(self) -> str:
        return f"nats://{self._running.inside}"

    def kill(self) -> None:
        self._running.send(signal.SIGKILL)
        self._running.ended(10)

    def start(self) -> None:
        if not self._running.state["Running"]:
            self._running.start_again()
        self._until_served()

    def _until_served(self) -> None:
        self._running.until(self._greets, "NATS greets")

    def _greets(self) -> bool:
        """A published port takes connections before the server behind it does: only its greeting tells."""
        host, _, port = self._running.here.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=1) as connection:
            return connection.recv(4) == b"INFO"


@dataclass(frozen=True)
class ControlPlane:
    """A kube-apiserver in a container; paths of a kubeconfig for this process, and of one for other containers."""

    kubeconfig: Path
    inside: Path


@contextmanager
def control_plane(where: Engine, folder: Path) -> Iterator[ControlPlane]:
    """etcd and kube-apiserver, without anything that would run a pod."""
    local = where.has(LOCAL_KUBE_IMAGE)
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost", "127.0.0.1")
    key = certificate.private_key_pem.bytes()
    token = free_token()
    files = {
        "/test/tls.crt": b"".join(part.bytes() for part in certificate.cert_chain_pems),
        "/test/tls.key": key,
        "/test/tokens.csv": f'{token},admin,admin,"system:masters"\n'.encode(),
    }
    with ExitStack() as stack:
        etcd_port, port = free_port(), free_port()
        command = etcd_command(where.listen, etcd_port, free_port())
        etcd = stack.enter_context(Running(where, LOCAL_KUBE_IMAGE if local else ETCD_IMAGE, command, port=etcd_port))
        etcd.until(lambda: answer(f"http://{etcd.here}/readyz") == 200, "etcd is ready")
        command = apiserver_command(where.listen, port, etcd.inside)
        image = LOCAL_KUBE_IMAGE if local else APISERVER_IMAGE
        apiserver = stack.enter_context(Running(where, image, command, port=port, files=files))
        folder.mkdir(parents=True, exist_ok=True)
        ca = folder / "ca.crt"
        ca.write_bytes(authority.cert_pem.bytes())
        tls = ssl.create_default_context(cafile=str(ca))
        tls.check_hostname = False  # the engine's host may have any name; the chain is checked
        apiserver.until(
            lambda: answer(f"https://{apiserver.here}/readyz", token, tls) == 200, "kube-apiserver is ready"
        )
        paths = [folder / "kubeconfig", folder / "kubeconfig-inside"]
        for path, address in zip(paths, (apiserver.here, apiserver.inside), strict=True):
            path.write_text(kubeconfig(f"https://{address}", authority.cert_pem.bytes().decode(), token))
            path.chmod(0o644)  # the user of the image reads it too
        yield ControlPlane(*paths)


def etcd_command(listen: str, port: int, peer: int) -> list[str]:
    client, other = f"http://{listen}:{port}", f"http://127.0.0.1:{peer}"
    return [
        "etcd",
        "--name=one",
        "--data-dir=/etcd-data",
        "--unsafe-no-fsync",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={other}",
        f"--initial-advertise-peer-urls={other}",
        f"--initial-cluster=one={other}",
    ]


def apiserver_command(listen: str, port: int, etcd: str) -> list[str]:
    return [
        "kube-apiserver",
        f"--etcd-servers=http://{etcd}",
        f"--bind-address={listen}",
        f"--secure-port={port}",
        *(["--advertise-address=127.0.0.1"] if listen == "127.0.0.1" else []),
        "--endpoint-reconciler-type=none",
        "--tls-cert-file=/test/tls.crt",
        "--tls-private-key-file=/test/tls.key",
        "--token-auth-file=/test/tokens.csv",
        "--authorization-mode=RBAC",
        "--service-account-key-file=/test/tls.key",
        "--service-account-signing-key-file=/test/tls.key",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--disable-admission-plugins=ServiceAccount",
    ]


def kubeconfig(server: str, ca: str, token: str) -> str:
    cluster = {
        "server": server,
        "tls-server-name": "localhost",
        "certificate-authority-data": base64.b64encode(ca.encode()).decode(),
    }
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "test", "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        }
    )


def free_token() -> str:
    return os.urandom(16).hex()


def answer(url: str, token: str = "", tls: ssl.SSLContext | None = None) -> int:
    """The status code of a GET, asked without a proxy. Raises OSError if nobody answers."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=tls))
    try:
        with opener.open(request, timeout=2) as said:
            return int(said.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def built_image(where: Engine) -> str:
    """The image under test: the one of RAYBUS_TEST_IMAGE, else built from the working tree."""
    if given := os.environ.get("RAYBUS_TEST_IMAGE"):
        return given
    name = "raybus/raybus:test"
    build(where, name)
    return name


def build(where: Engine, name: str, *flags: str, sources: Path = ROOT) -> None:
    """The image of the working tree, or of other sources. Its build needs the network, so it gets the one that this engine has."""
    given = os.environ.get("DOCKER_BUILD_FLAGS", "--network host" if where.network == "host" else "")
    done = subprocess.run(
        [sources / "deploy" / "images" / "build", name],
        env=os.environ | {"DOCKER_BUILD_FLAGS": " ".join([given, *flags])},
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert done.returncode == 0, f"deploy/images/build: {done.stdout[-4000:]}\n{done.stderr[-4000:]}"
