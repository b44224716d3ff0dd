"""What is said where pods cannot run; the cases are made for real, in user namespaces with a limit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from raybus_localkube.node import host


def test_this_machine_can() -> None:
    assert host.check_host() == []


def test_other_systems_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host.platform, "system", lambda: "Darwin")
    (problem,) = host.check_host()
    assert "need Linux, this is Darwin" in problem.missing
    assert "raybus up --kubeconfig" in problem.remedy


@pytest.mark.parametrize("command", [["raybus_localkube.node.host"], ["raybus_localkube.node", "--dir", "d"]])
def test_without_user_namespaces(command: list[str], tmp_path: Path) -> None:
    python = " ".join([sys.executable, "-m", *command])
    script = f"echo 0 > /proc/sys/user/max_user_namespaces; exec {python}"
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "sh", "-c", script],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        cwd=tmp_path,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 1
    assert "User namespaces are switched off (user.max_user_namespaces = 0)" in said
    assert "sysctl -w user.max_user_namespaces=" in said
    assert "Traceback" not in said


def test_without_network_namespaces_the_reason_is_given() -> None:
    script = f"echo 0 > /proc/sys/user/max_net_namespaces; exec {sys.executable} -m raybus_localkube.node.host"
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "sh", "-c", script],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 1
    assert len(done.stdout.strip().splitlines()) == 2
