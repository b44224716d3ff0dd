"""A local Raybus in a folder of its own, driven by the command line alone, as a user would."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from raybus.domain import kinds
from raybus.kube.client import KubeClient
from raybus.kube.config import load

REPOSITORY = Path(__file__).parents[2]
EXAMPLE = REPOSITORY / "examples" / "rayjob.yaml"
RUN_S = 240
WRITTEN = (
    kinds.RAYJOB, kinds.RAYCLUSTER, kinds.JOB, kinds.POD, kinds.SERVICE, kinds.ENDPOINT_SLICE, kinds.SECRET, kinds.CONFIG_MAP, kinds.EVENT,
)  # fmt: skip


class Local:
    """`raybus(...)` runs a command; `env` is added for all of them, and so for the services that `raybus up` starts."""

    def __init__(self, folder: Path, env: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self._env = {**os.environ, "RAYBUS_DIR": str(folder), "COLUMNS": "200", **(env or {})}

    def raybus(self, *words: str, timeout: float = RUN_S) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self._command(words), capture_output=True, text=True, timeout=timeout, env=self._env, check=False
        )

    def start(self, *words: str) -> subprocess.Popen[str]:
        """A command that goes on beside the test; its output is read when it has ended."""
        return subprocess.Popen(
            self._command(words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self._env
        )

    def _command(self, words: tuple[str, ...]) -> list[str]:
        return [sys.executable, "-m", "raybus.cli.main", *words]

    def up(self) -> None:
        done = self.raybus("up")
        assert done.returncode == 0, done.stderr + (self.folder / "logs" / "raybus.log").read_text()

    def down(self) -> None:
        done = self.raybus("down")
        assert done.returncode == 0, done.stderr

    def status(self) -> dict[str, Any]:
        return json.loads(self.raybus("status", "--output", "json").stdout)

    def pid(self, service: str) -> int | None:
        """The pid that the supervisor knows now; None while the process is being started again."""
        for name in ("base.json", "services.json"):
            for each in json.loads((self.folder / name).read_text())["services"]:
                if each["name"] == service:
                    return each["pid"]
        raise KeyError(service)

    def get(self, what: str) -> list[dict[str, Any]]:
        done = self.raybus("get", what, "--output", "json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def versions(self) -> dict[str, str]:
        """uid and resourceVersion of all that Raybus, or Kubernetes for it, could write in any namespace.

        Not the kubelet's events: on a busy machine a probe is late, and it says so.
        """
        return asyncio.run(self._versions())

    async def _versions(self) -> dict[str, str]:
        async with KubeClient(load(self.kubeconfig), user_agent="raybus-tests") as client:
            found = [obj for kind in WRITTEN for obj in await client.list_all(kind)]
            return {
                f"{obj['kind']}/{obj['metadata']['name']} {obj['metadata']['uid']}": obj["metadata"]["resourceVersion"]
                for obj in found
                if not (obj["kind"] == "Event" and obj.get("reportingController") == "kubelet")
            }

    @property
    def ports(self) -> dict[str, int]:
        return json.loads((self.folder / "ports.json").read_text())

    @property
    def kubeconfig(self) -> str:
        return str(self.folder / "kube" / "kubeconfig")

    @property
    def nats_url(self) -> str:
        return f"nats://127.0.0.1:{self.ports['nats']}"

    @property
    def nkey_file(self) -> str:
        return str(self.folder / "nats" / "user.nk")


def write_job(path: Path, name: str, *, workers: bool = True, **changes: Any) -> Path:
    """The example under another name, with changes to its spec; without workers it starts sooner."""
    job, code = yaml.safe_load_all(EXAMPLE.read_text())
    job["metadata"]["name"] = name
    if not workers:
        del job["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    job["spec"].update(changes)
    path.write_text(yaml.safe_dump_all([job, code]))
    return path
