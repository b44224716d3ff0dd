"""`raybus up --kubeconfig`: for development, everything but Ray runs here, and serves a real cluster from outside."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from support.installation import BIN, program

PATIENCE = float(os.environ.get("RAYBUS_E2E_PATIENCE", "1"))

pytestmark = [pytest.mark.node, pytest.mark.timeout(240 * PATIENCE)]

ROOT = Path(__file__).resolve().parents[2]
WORK = "raybus-e2e-work"


def test_a_job_runs_in_the_cluster_and_its_operator_here(cluster, times, tmp_path_factory):
    folder = tmp_path_factory.mktemp("up")
    try:
        with times.of("raybus up --kubeconfig"):
            cluster.raybus("up", "--dir", folder, "--use-kubernetes-proxy", "--namespaces", WORK)
        found = json.loads(program(str(BIN / "raybus"), "doctor", "--dir", folder, "-o", "json"))
        assert "failed" not in {each["level"] for each in found["checks"]}
        assert {"services", "API server", "definitions"} <= {each["check"] for each in found["checks"]}
        with times.of("raybus run --until-clean, through the API server's proxy"):
            output = cluster.raybus("run", ROOT / "examples" / "rayjob.yaml", "-n", WORK, "--replace", "--until-clean")
        assert "Hello from Ray" in output
        assert "nodes in the cluster: 2" in output
    finally:
        program(str(BIN / "raybus"), "down", "--dir", folder)
