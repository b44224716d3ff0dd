"""A real kube-apiserver for tests marked `realkube`: the one of KUBECONFIG, else one that is started for the session."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

REALKUBE = Path(__file__).resolve().parents[4] / "shared" / "realkube" / "realkube"


@pytest.fixture(scope="session")
def real_kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Path of the kubeconfig of a control plane without nodes."""
    if given := os.environ.get("KUBECONFIG"):
        yield given
        return
    if not REALKUBE.exists():
        pytest.skip("no KUBECONFIG, and no ../shared/realkube beside the repository to start a control plane with")
    folder = tmp_path_factory.mktemp("realkube")
    started = subprocess.run([REALKUBE, "up", "--dir", folder], check=True, capture_output=True, text=True, timeout=900)
    try:
        yield started.stdout.strip().splitlines()[-1]
    finally:
        subprocess.run([REALKUBE, "down", "--dir", folder], check=True, capture_output=True, timeout=60)
