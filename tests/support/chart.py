"""The chart as Helm renders it. Helm is found or built by tests/tools/helm."""

from __future__ import annotations

import functools
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "helm" / "raybus"
VALUES = ROOT / "tests" / "integration" / "chart" / "values"
NAMESPACE = "raybus-system"

Json = dict[str, Any]


@functools.cache
def helm(major: int = 4) -> str:
    """The path of Helm; skips where it cannot be had."""
    found = subprocess.run(
        [ROOT / "tests" / "tools" / "helm", str(major)], capture_output=True, text=True, timeout=900, check=False
    )
    if found.returncode == 77:
        pytest.skip(found.stderr.strip().splitlines()[-1])
    assert found.returncode == 0, found.stderr
    return found.stdout.strip()


def run(arguments: Sequence[str | Path], major: int = 4) -> subprocess.CompletedProcess[str]:
    # A Helm that `go install` built takes the cluster that it renders for to be an old one, unless it is told.
    of = ["--kube-version", "1.36.0"] if arguments[0] == "template" else []
    command = [helm(major), *map(str, arguments), *of]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)


def template(values: Iterable[Path] = (), sets: Iterable[str] = (), major: int = 4) -> str:
    """What `helm template` prints for these value files and --set arguments."""
    flags: list[str | Path] = []
    for path in values:
        flags += ["--values", path]
    for each in sets:
        flags += ["--set", each]
    done = run(["template", "raybus", CHART, "--namespace", NAMESPACE, *flags], major)
    assert done.returncode == 0, done.stderr
    return done.stdout


@functools.cache
def rendered(name: str) -> list[Json]:
    """The manifests of one of the value sets beside the tests."""
    return manifests(template([VALUES / f"{name}.yaml"]))


def manifests(text: str) -> list[Json]:
    return [document for document in yaml.safe_load_all(text) if document]


def sets() -> list[str]:
    return sorted(path.stem for path in VALUES.glob("*.yaml"))


def one(found: Iterable[Json], kind: str, name: str) -> Json:
    """The manifest of this kind and name, in whatever namespace."""
    matching = [each for each in found if each["kind"] == kind and each["metadata"]["name"] == name]
    assert len(matching) == 1, f"{len(matching)} of {kind} {name}"
    return matching[0]


def container(manifest: Json) -> Json:
    found: Json = manifest["spec"]["template"]["spec"]["containers"][0]
    return found


def environment(manifest: Json) -> dict[str, str]:
    """The variables of the first container that have a value of their own."""
    return {each["name"]: each["value"] for each in container(manifest).get("env", ()) if "value" in each}
