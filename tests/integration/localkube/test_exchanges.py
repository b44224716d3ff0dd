"""Recorded exchanges with a real API server, replayed against localkube: the same request gets the same answer.

The lists name what is equal from the first to the last exchange; they only grow. Recordings and replayers stand in
../shared/exchanges beside the repository.
"""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from support.server_process import ServerProcess

EXCHANGES = Path(__file__).resolve().parents[4] / "shared" / "exchanges"
SCENARIOS = (
    "auth-01-nobody", "clients-01-python-typed", "clients-05-python-aio", "content-01-yaml", "crds-01-life",
    "crds-03-names-and-update", "crud-01-configmaps", "crud-05-leases", "crud-13-leader-election", "custom-03-cel-rules",
    "custom-05-scale-subresource", "custom-07-cluster-scope", "custom-09-nested-objects", "delete-01-finalizers",
    "delete-03-collection", "errors-01-not-found", "errors-03-bodies", "errors-05-metadata", "gc-01-background", "gc-03-orphan",
    "gc-05-job-pods", "jobs-01-defaults", "jobs-03-complete", "jobs-05-suspend-resume", "jobs-07-indexed-and-deadline",
    "lists-01-label-selectors", "lists-03-paging", "lists-05-kinds-and-scopes", "namespaces-01-life", "patch-01-merge",
    "pods-01-minimal-defaults", "pods-03-validation-names", "pods-05-immutable-fields", "pods-07-binding",
    "pods-11-generate-name", "pods-13-service-account", "ray-01-autoscaler-calls", "services-01-cluster-ip",
    "services-03-validation", "services-05-headless-and-unready", "tables-01-workloads", "tables-03-custom-resources",
    "watch-01-from-resource-version", "watch-03-live", "watch-05-errors", "watch-07-custom-and-all-namespaces",
    "watch-09-collection-delete",
)  # fmt: skip
KUBECTL = (
    "kubectl-01-apply-configmap", "kubectl-03-apply-custom-resource", "kubectl-07-apply-prune", "kubectl-09-create-typed",
    "kubectl-11-create-token", "kubectl-13-get-pods", "kubectl-15-get-errors", "kubectl-21-describe-pod",
    "kubectl-23-describe-custom", "kubectl-27-delete-pods", "kubectl-29-delete-with-finalizer", "kubectl-33-label-annotate",
    "kubectl-35-logs-exec-errors", "kubectl-41-replace", "kubectl-43-jobs", "kubectl-45-kustomize-and-lists",
    "kubectl-47-debug-and-evict",
)  # fmt: skip

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.skipif(
        not EXCHANGES.exists(), reason="the recordings, ../shared/exchanges, are not beside the repository"
    ),
]


def replay(server: ServerProcess, program: str, folder: Path, scenario: str, *more: str) -> None:
    command = [
        sys.executable,
        EXCHANGES / program,
        "--kubeconfig",
        server.kubeconfig,
        "--only",
        scenario,
        *more,
        folder,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=170, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"equal {scenario}" in done.stdout, done.stdout


def as_recorded_today(scenario: str, folder: Path) -> Path:
    """The recording with its past instants moved, in a folder of its own: each is as long ago as its printed age says.

    A recording that prints the age of a fixed instant ("3 (2y333d ago)") is right on the day it was made alone.
    """
    text = (EXCHANGES / f"{scenario}.json").read_text()
    ages = {(int(years), int(days)) for years, days in re.findall(r"\((\d+)y(\d+)d ago\)", text)}
    if not ages:
        return EXCHANGES
    ((years, days),) = ages
    # Half a day more: the age must not change while the replay runs.
    instant = datetime.now(UTC) - timedelta(days=365 * years + days, hours=12)
    moved, count = re.subn(r'("finishedAt": )"[^"]*"', rf'\g<1>"{instant:%Y-%m-%dT%H:%M:%SZ}"', text)
    assert count, f"{scenario} prints an age, but of what?"
    (folder / f"{scenario}.json").write_text(moved)
    return folder


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_requests(shared_server: ServerProcess, scenario: str, tmp_path: Path) -> None:
    replay(shared_server, "replay.py", as_recorded_today(scenario, tmp_path), scenario)


@pytest.mark.parametrize("scenario", KUBECTL)
def test_commands(shared_server: ServerProcess, scenario: str) -> None:
    kubectl = str(Path(sys.executable).parent / "kubectl")
    replay(shared_server, "replay_kubectl.py", EXCHANGES / "kubectl", scenario, "--kubectl", kubectl)
