"""A cluster with a node, as its user handles it: kubectl, helm and raybus as programs, what is in it, and how long things take."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

BIN = Path(sys.executable).parent
# Kinds whose objects come and go by themselves, or are made anew for every request.
RESTLESS = {"events", "events.events.k8s.io", "leases.coordination.k8s.io", "componentstatuses"}

Object = Mapping[str, Any]
Name = tuple[str, str, str]


class CommandError(AssertionError):
    """A program ended with an error that the story did not expect."""


def program(
    name: str, *arguments: str | Path, text: str = "", timeout_s: float = 900, env: Mapping[str, str] | None = None
) -> str:
    """Standard output of a program that must succeed."""
    done = subprocess.run(
        [name, *arguments],
        input=text or None,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        env={**os.environ, **(env or {})},
    )
    if done.returncode:
        command = " ".join(map(str, [Path(name).name, *arguments]))
        raise CommandError(f"{command}: exit code {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return done.stdout


@dataclass
class Times:
    """Seconds per step of the story, printed at its end and written to `path`."""

    path: Path
    told: ClassVar[dict[str, float]] = {}

    @contextlib.contextmanager
    def of(self, step: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        self.add(step, time.monotonic() - began)

    def add(self, step: str, seconds: float) -> None:
        self.told[step] = round(seconds, 1)
        self.path.parent.mkdir(exist_ok=True)
        self.path.write_text(json.dumps(self.told, indent=2) + "\n")


class Cluster:
    """The cluster of a kubeconfig."""

    def __init__(self, kubeconfig: str, helm: str) -> None:
        self.kubeconfig = kubeconfig
        self._helm = helm
        self._env = {"KUBECONFIG": kubeconfig}

    def kubectl(self, *arguments: str | Path, text: str = "", timeout_s: float = 900) -> str:
        return program(str(BIN / "kubectl"), *arguments, text=text, timeout_s=timeout_s, env=self._env)

    def helm(self, *arguments: str | Path, timeout_s: float = 900) -> str:
        return program(self._helm, *arguments, timeout_s=timeout_s, env=self._env)

    def raybus(self, *arguments: str | Path, timeout_s: float = 900) -> str:
        return program(str(BIN / "raybus"), *arguments, "--kubeconfig", self.kubeconfig, timeout_s=timeout_s)

    def get(self, namespace: str, *what: str) -> Any:
        """An object, or with a kind or selector alone a list's items. {} for an object that is not there."""
        found = json.loads(self.kubectl("get", "-n", namespace, *what, "-o", "json", "--ignore-not-found") or "{}")
        return found.get("items", []) if found.get("kind") == "List" else found

    def apply(self, namespace: str, source: Path | str) -> None:
        """A file, or YAML or JSON text."""
        if isinstance(source, Path):
            self.kubectl("apply", "-n", namespace, "-f", source)
        else:
            self.kubectl("apply", "-n", namespace, "-f", "-", text=source)

    def until(self, what: str, holds: Callable[[], Any], *, within_s: float, every_s: float = 0.5) -> Any:
        """What `holds` answers as soon as that is true; CommandError after `within_s`."""
        ends = time.monotonic() + within_s
        while time.monotonic() < ends:
            if found := holds():
                return found
            time.sleep(every_s)
        raise CommandError(f"not within {within_s:g} s: {what}")

    def everything(self, *, but: Sequence[str] = ()) -> set[Name]:
        """(kind, namespace, name) of all objects, but for those in some namespaces."""
        kinds = set(self.kubectl("api-resources", "--verbs=list", "-o", "name").split()) - RESTLESS
        template = '{range .items[*]}{.kind}{"\\t"}{.metadata.namespace}{"\\t"}{.metadata.name}{"\\n"}{end}'
        lines = self.kubectl("get", ",".join(sorted(kinds)), "-A", "-o", f"jsonpath={template}").splitlines()
        names = {tuple(line.split("\t")) for line in lines}
        return {(kind, namespace, name) for kind, namespace, name in names if namespace not in but}
