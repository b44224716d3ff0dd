"""The cluster of the story, and what becomes of it when a step fails."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.installation import Cluster, CommandError, Times

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
STORY = HERE / "test_kube_story.py"  # its steps need those before them
SYSTEM = "raybus-e2e"  # where it is installed
WORK = "raybus-e2e-work"  # where Ray runs

DEFINITIONS = tuple(f"{kind}.ray.io" for kind in ("rayclusters", "rayjobs", "rayservices", "raycronjobs"))

_broken: list[str] = []


def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    if call.excinfo is not None and item.path == STORY:
        _broken.append(item.name)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if _broken and item.path == STORY:
        pytest.skip(f"the story ended at {_broken[0]}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if Times.told:
        terminalreporter.section("seconds")
        for step, seconds in Times.told.items():
            terminalreporter.write_line(f"{seconds:8.1f}  {step}")


@pytest.fixture(scope="session")
def times() -> Times:
    return Times(ROOT / "build" / "e2e-kube-times.json")


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Clean, with two namespaces. `tests/with-node-kube` gives KUBECONFIG; RAYBUS_E2E_VALUES is a file of values for that cluster."""
    kubeconfig = os.environ.get("KUBECONFIG")
    if not kubeconfig:
        pytest.skip("needs a Kubernetes cluster with a node: set KUBECONFIG, or run it with tests/with-node-kube")
    found = subprocess.run([ROOT / "tests" / "tools" / "helm"], capture_output=True, text=True, check=False)
    if found.returncode:
        pytest.skip(found.stderr.strip())
    made = Cluster(kubeconfig, found.stdout.strip())
    there = [name for name in DEFINITIONS if f"/{name}\n" in made.kubectl("get", "crd", "-o", "name")]
    if there:  # the end of the story deletes them, and with them everything of these kinds
        pytest.fail(f"not a clean state: {', '.join(there)} are there; use a cluster that nobody needs")
    for name in (SYSTEM, WORK):
        made.kubectl("create", "namespace", name)
    made.kubectl("label", "namespace", SYSTEM, "pod-security.kubernetes.io/enforce=restricted")
    volume = "raybus-e2e" in Path(os.environ.get("RAYBUS_E2E_VALUES", os.devnull)).read_text()
    if volume:
        folder = tmp_path_factory.mktemp("nats")
        folder.chmod(0o777)
        made.apply(SYSTEM, (HERE / "volume.yaml").read_text().replace("FOLDER", str(folder)))
    try:
        yield made
    finally:
        if _broken:
            _keep_what_happened(made, ROOT / "build" / "e2e-kube")
        _clear(made, volume=volume)


def _keep_what_happened(cluster: Cluster, folder: Path) -> None:
    """Objects, events and logs, for who has to find out why the story broke."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, words in {
        "objects.txt": ("get", "pods,jobs,deployments,statefulsets,pvc,rayclusters,rayjobs", "-A", "-o", "wide"),
        "events.txt": ("get", "events", "-A", "--sort-by=.lastTimestamp"),
        "pods.txt": ("describe", "pods", "-n", SYSTEM),
        "rayjobs.yaml": ("get", "rayclusters,rayjobs", "-A", "-o", "yaml"),
        "logs.txt": ("logs", "-n", SYSTEM, "-l", "app.kubernetes.io/part-of=raybus", "--tail=-1", "--prefix", "--max-log-requests=20"),
    }.items():  # fmt: skip
        with contextlib.suppress(CommandError, subprocess.TimeoutExpired):
            (folder / name).write_text(cluster.kubectl(*words))


def _clear(cluster: Cluster, *, volume: bool) -> None:
    """Nothing of the story stays, also if it broke anywhere. Controllers go last: they take finalizers off."""
    steps = [
        lambda: cluster.kubectl("delete", "rayjobs,rayclusters", "--all", "-n", WORK, "--timeout=30s"),
        lambda: cluster.kubectl("delete", "pods", "--all", "-n", WORK, "--grace-period=1", "--timeout=30s"),
        lambda: cluster.helm("uninstall", "raybus", "-n", SYSTEM, "--ignore-not-found", "--wait"),
        lambda: cluster.kubectl("delete", "namespace", SYSTEM, WORK, "--timeout=60s", "--ignore-not-found"),
        lambda: cluster.kubectl("delete", "crd", *DEFINITIONS, "--timeout=30s", "--ignore-not-found"),
        lambda: volume and cluster.kubectl("delete", "pv", "raybus-e2e", "--timeout=30s", "--ignore-not-found"),
    ]
    for step in steps:
        with contextlib.suppress(CommandError, subprocess.TimeoutExpired):
            step()
