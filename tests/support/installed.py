"""An installation as the chart makes it, of processes: NATS with the generated users and TLS, keys made by `raybus provision`, each
service with its own key and, where the API server asks for them, with its own generated rights.
"""

from __future__ import annotations

import asyncio
import base64
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import aiohttp
import yaml

from raybus.bus.permissions import inbox_prefix, users
from raybus.domain import kinds
from raybus.domain.kinds import Kind
from raybus.kube.client import KubeClient
from raybus.kube.errors import NotFound
from raybus.runtime.provision import plan
from support.kube import ROOT
from support.nats import NatsServer, free_port
from support.operators import MODULES, plain_environment

FILES = ROOT / "deploy" / "helm" / "raybus" / "files"
PREFIX = "raybus-nats"
OWNER = "raybus-nats-config"
USERS = {"gateway": "gateway", "cluster_ctrl": "raycluster", "job_ctrl": "rayjob"}
COMPONENTS = {
    "gateway": "gateway",
    "cluster_ctrl": "cluster-ctrl",
    "job_ctrl": "job-ctrl",
    "provisioner": "provisioner",
}
CLUSTER_ROLE = Kind("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", namespaced=False)
CLUSTER_ROLE_BINDING = Kind(
    "rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings", namespaced=False
)
READY_S = 60.0


class SecureNats(NatsServer):
    """nats-server with the chart's accounts; `server` is what Secret `<prefix>-server` holds."""

    def __init__(self, folder: Path, server: Mapping[str, bytes], port: int, *, max_payload: int = 8 << 20) -> None:
        super().__init__(folder, max_payload=max_payload)
        self.port, self.url = port, f"tls://localhost:{port}"
        shutil.copy(FILES / "nats" / "accounts.conf", folder)
        for name in (plan.CERTIFICATE, plan.KEY, plan.CA_CERTIFICATE):
            (folder / name).write_bytes(server[name])
        self.env = plain_environment() | {user.variable: server[user.variable].decode() for user in users()}
        tls = f'tls {{ cert_file: "{folder / plan.CERTIFICATE}", key_file: "{folder / plan.KEY}" }}'
        (folder / "nats.conf").write_text(
            "\n".join(
                [
                    f'listen: "127.0.0.1:{self.port}"',
                    f"max_payload: {max_payload}",
                    f'jetstream {{ store_dir: "{folder / "store"}" }}',
                    tls,
                    "include accounts.conf",
                    "",
                ]
            )
        )

    def violations(self) -> list[str]:
        return [line for line in (self.folder / "nats.log").read_text().splitlines() if "Violation" in line]


async def secret(kube: KubeClient, namespace: str, name: str) -> dict[str, bytes]:
    found = await kube.get(kinds.SECRET, namespace, name)
    return {key: base64.b64decode(value) for key, value in found["data"].items()}


class Installation:
    """`async with` installs and starts all; in the end everything is stopped. Its Secrets are in `release`, it looks after
    `watched`.

    `own_accounts`: each service is a service account with exactly the generated rights; else all use `kubeconfig`.
    """

    def __init__(
        self,
        kube: KubeClient,
        kubeconfig: str,
        folder: Path,
        *,
        release: str,
        watched: str,
        own_accounts: bool = False,
        max_payload: int = 8 << 20,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.kube, self.folder, self.release, self.watched = kube, folder, release, watched
        self._own_accounts = own_accounts
        self._max_payload = max_payload
        self._env = plain_environment() | dict(env or {})
        self._admin: dict[str, Any] = yaml.safe_load(Path(kubeconfig).read_text())
        self._kubeconfigs = dict.fromkeys(COMPONENTS, kubeconfig)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._health: dict[str, int] = {}
        self.nats: SecureNats

    async def __aenter__(self) -> Self:
        try:
            await self._install()
        except BaseException:
            self.end()
            raise
        return self

    async def __aexit__(self, *_error: object) -> None:
        self.end()

    async def _install(self) -> None:
        if self._own_accounts:
            for service, component in COMPONENTS.items():
                self._kubeconfigs[service] = await self.account(component)
        owner = {"metadata": {"name": OWNER, "namespace": self.release}}
        await self.kube.create(kinds.CONFIG_MAP, owner)
        port = free_port()
        provisioning = self.provision(port)
        server = await self._server_secret(provisioning)
        self.nats = SecureNats(self.folder / "nats", server, port, max_payload=self._max_payload)
        self.nats.start()
        await ended(provisioning, self.folder / "provision.log")
        for service in USERS:
            await self.keys(service)
            self.start(service)
        for service in USERS:
            await self.ready(service)

    async def _server_secret(self, provisioning: subprocess.Popen[bytes]) -> dict[str, bytes]:
        for _ in range(300):
            try:
                return await secret(self.kube, self.release, plan.server_name(PREFIX))
            except NotFound:
                assert provisioning.poll() is None, (self.folder / "provision.log").read_text()
                await asyncio.sleep(0.1)
        raise AssertionError("no Secret of the server: " + (self.folder / "provision.log").read_text())

    def provision(self, port: int, *flags: str) -> subprocess.Popen[bytes]:
        """`raybus provision` as the chart's Job runs it."""
        arguments = [
            "provision", "--kubeconfig", self._kubeconfigs["provisioner"], "--namespace", self.release, "--prefix", PREFIX,
            "--owner", f"ConfigMap/{OWNER}", "--server-names", "localhost,127.0.0.1", "--nats-url", f"tls://localhost:{port}",
            *flags,
        ]  # fmt: skip
        return self._run("provision", ["-m", "raybus.cli.main", *arguments])

    async def keys(self, service: str) -> Path:
        """The service's Secret as a volume shows it: `seed` and `ca.crt`."""
        folder = self.folder / f"keys-{service}"
        folder.mkdir(exist_ok=True)
        found = await secret(self.kube, self.release, plan.user_name(PREFIX, USERS.get(service, service)))
        for name, value in found.items():
            (folder / name).write_bytes(value)
        return folder

    def start(self, service: str, *flags: str) -> None:
        keys, user = self.folder / f"keys-{service}", USERS[service]
        self._health[service] = free_port()
        arguments = [
            "-m", MODULES[service], "--kubeconfig", self._kubeconfigs[service], "--namespaces", self.watched,
            "--nats-url", self.nats.url, "--nats-nkey-file", str(keys / plan.SEED),
            "--nats-ca-file", str(keys / plan.CA_CERTIFICATE), "--nats-inbox-prefix", inbox_prefix(user),
            "--health-port", str(self._health[service]), "--lease-ttl-s", "3", *flags,
        ]  # fmt: skip
        self._processes[service] = self._run(service, arguments)

    def stop(self, service: str) -> None:
        self._processes[service].send_signal(signal.SIGTERM)
        self._processes[service].wait(20)

    async def ready(self, service: str) -> None:
        said = "no answer"
        try:
            async with asyncio.timeout(READY_S):
                while not (checks := await self.checks(service)).get("ready"):
                    said = str(checks)
                    assert self._processes[service].poll() is None, self.log(service)
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"{service} is not ready: {said}\n{self.log(service)}") from None

    async def checks(self, service: str) -> dict[str, Any]:
        """What /readyz says; {} while nobody answers."""
        url = f"http://127.0.0.1:{self._health[service]}/readyz"
        try:
            async with aiohttp.ClientSession() as session, session.get(url) as response:
                body: dict[str, Any] = await response.json()
                return body
        except aiohttp.ClientError:
            return {}

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()[-4000:]

    def end(self) -> None:
        running = [process for process in self._processes.values() if process.poll() is None]
        for process in running:
            process.send_signal(signal.SIGTERM)
        for process in running:
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)
        if hasattr(self, "nats"):
            self.nats.stop()

    def _run(self, name: str, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._env
            )
        self._processes[name] = process
        return process

    # Accounts

    async def account(self, component: str) -> str:
        """A service account with the generated rights of a component; path of a kubeconfig for it."""
        name = f"raybus-{component}"
        rights = rules(component)
        subject = await self._new_account(name)
        everywhere = [*rights["cluster"], *(rule for given in rights["clusterSettings"].values() for rule in given)]
        await self._bind_cluster(f"{self.release}-{component}", everywhere, subject)
        for namespace, given in ((self.watched, rights["namespaced"]), (self.release, rights["release"])):
            if given:
                await self.bind(name, namespace, given, subject)
        return await self._kubeconfig_of(name)

    async def account_with(self, name: str, given: list[Any]) -> str:
        """A service account with these rights in the namespace that is looked after."""
        await self.bind(name, self.watched, given, await self._new_account(name))
        return await self._kubeconfig_of(name)

    async def add_settings(self, component: str) -> None:
        """The rights that come with settings, all of them."""
        name = f"raybus-{component}"
        given = [rule for more in rules(component)["settings"].values() for rule in more]
        subject = {"kind": "ServiceAccount", "name": name, "namespace": self.release}
        await self.bind(f"{name}-settings", self.watched, given, subject)

    async def _new_account(self, name: str) -> dict[str, str]:
        await self.kube.create(kinds.SERVICE_ACCOUNT, {"metadata": {"name": name, "namespace": self.release}})
        return {"kind": "ServiceAccount", "name": name, "namespace": self.release}

    async def _bind_cluster(self, name: str, given: list[Any], subject: Mapping[str, str]) -> None:
        await self.kube.create(CLUSTER_ROLE, {"metadata": {"name": name}, "rules": given})
        binding = {
            "metadata": {"name": name},
            "subjects": [subject],
            "roleRef": {"apiGroup": CLUSTER_ROLE.group, "kind": "ClusterRole", "name": name},
        }
        await self.kube.create(CLUSTER_ROLE_BINDING, binding)

    async def bind(self, name: str, namespace: str, given: list[Any], subject: Mapping[str, str]) -> None:
        metadata = {"name": name, "namespace": namespace}
        await self.kube.create(kinds.ROLE, {"metadata": metadata, "rules": given})
        reference = {"apiGroup": CLUSTER_ROLE.group, "kind": "Role", "name": name}
        await self.kube.create(kinds.ROLE_BINDING, {"metadata": metadata, "subjects": [subject], "roleRef": reference})

    async def _kubeconfig_of(self, name: str) -> str:
        path = kinds.SERVICE_ACCOUNT.path(self.release, name, "token")
        answer = await self.kube.request("POST", path, body={"spec": {"expirationSeconds": 3600}})
        config = {**self._admin, "users": [{"name": name, "user": {"token": answer["status"]["token"]}}]}
        context = {**config["contexts"][0]["context"], "user": name}
        config["contexts"] = [{"name": name, "context": context}]
        config["current-context"] = name
        written = self.folder / f"{name}.kubeconfig"
        written.write_text(yaml.safe_dump(config))
        return str(written)


def rules(component: str) -> dict[str, Any]:
    """The generated rights, with the names of this installation in them."""
    text = (FILES / "rights" / f"{component}.yaml").read_text()
    found: dict[str, Any] = yaml.safe_load(text.replace("${prefix}", PREFIX).replace("${owner}", OWNER))
    return found


async def ended(process: subprocess.Popen[bytes], log: Path, within_s: float = 90.0) -> None:
    """It has ended well."""
    code = await asyncio.wait_for(asyncio.to_thread(process.wait), within_s)
    assert code == 0, text_of(log)


def text_of(log: Path) -> str:
    return log.read_text()
