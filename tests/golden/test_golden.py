"""Plays recorded cases against `raybus up` on a real API server and compares with what the reference operator made of them.

Inputs, expected outputs and the program that plays them stand in ../shared/golden; differences on purpose in allowed.yaml
beside this file, each with its reason.
"""

from __future__ import annotations

import asyncio
import fnmatch
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from raybus.kube.client import KubeClient
from raybus.kube.config import load
from support.kube import REALKUBE, ROOT, install_crds
from support.scripts import module

pytestmark = [pytest.mark.realkube, pytest.mark.timeout(900)]

GOLDEN = ROOT.parent / "shared" / "golden"
ALLOWED = Path(__file__).with_name("allowed.yaml")
BIN = Path(sys.executable).parent
CASES = (
    "001-head-only",
    "019-overwrite-command",
    "021-sidecars-and-init",
    "029-longest-name",
    "043-clamped-replicas",
    "049-name-too-long",
    "100-job-default",
    "102-job-submitter-own-command",
    "110-job-shutdown",
    "118-job-failed",
    "120-job-submission-failed",
    "122-job-deleted-while-running",
)


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory):
    """A control plane that gives service accounts to pods, as the one did on which the cases were recorded."""
    if not REALKUBE.exists() or not GOLDEN.exists():
        pytest.skip("needs ../shared/realkube and ../shared/golden beside the repository")
    folder = tmp_path_factory.mktemp("golden-kube")
    up = [REALKUBE, "up", "--dir", folder, "--serviceaccount-admission"]
    done = subprocess.run(up, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    try:
        path = done.stdout.strip().splitlines()[-1]
        asyncio.run(_prepare(path))
        yield path
    finally:
        subprocess.run([REALKUBE, "down", "--dir", folder], check=True, capture_output=True, timeout=120)


async def _prepare(kubeconfig):
    async with KubeClient(load(kubeconfig), user_agent="raybus-tests") as client:
        await install_crds(client)


@pytest.fixture(scope="module")
def played(kubeconfig, tmp_path_factory):
    """The snapshots of all cases, and what the player said about each."""
    folder = tmp_path_factory.mktemp("golden")
    port = _free_port()
    operator = (
        f"{BIN / 'raybus'} up --kubeconfig {kubeconfig} --dir {folder / 'state'} --foreground --health-port {port}"
    )
    command = [
        sys.executable, GOLDEN / "harness" / "run.py", "--kubeconfig", kubeconfig, "--operator", operator,
        "--ready-url", f"http://127.0.0.1:{port}/readyz", "--cases", GOLDEN / "cases", "--out", folder / "out",
        "--only", ",".join(CASES), "--jobs", str(len(CASES)),
    ]  # fmt: skip
    environment = os.environ | {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=800, check=False, env=environment)
    return folder / "out", done.stdout + done.stderr


def _free_port():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


@pytest.mark.parametrize("case", CASES)
def test_case(played, case):
    out, said = played
    # The player writes a case's snapshots when all of its conditions were met, and says why where they were not.
    assert (out / case / "expected.json").exists(), said[-4000:]
    expected, actual = (_snapshots(folder / case) for folder in (GOLDEN / "cases", out))
    assert list(actual) == list(expected)
    differences = [
        f"{path}: {text}"
        for after in expected
        for path, text in module(GOLDEN / "compare.py").differences(expected[after], actual[after], after)
        if not _allowed(path)
    ]
    assert differences == []


def _snapshots(folder):
    return {snapshot["after"]: snapshot for snapshot in json.loads((folder / "expected.json").read_text())}


def _allowed(path):
    return any(fnmatch.fnmatchcase(path, rule["path"]) for rule in yaml.safe_load(ALLOWED.read_text()))


def test_each_allowance_says_why():
    rules = yaml.safe_load(ALLOWED.read_text())
    assert all(rule["path"] and len(rule["reason"]) > 10 for rule in rules)
    assert len({rule["path"] for rule in rules}) == len(rules)
