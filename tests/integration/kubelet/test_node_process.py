"""The node process by itself: who may run it, what it refuses, and that nothing is left of it."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import site
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import raybus_localkube
from support.localnode import LocalNode, answers, ask, free_port, processes_with, wait_until

pytestmark = pytest.mark.timeout(60)
PLAIN_UID = 12345
SYSTEM_PYTHON = "/usr/bin/python3"


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="rbn-") as name:
        yield Path(name)


def spawn(
    folder: Path, *arguments: str, before: tuple[str, ...] = (), python: str = sys.executable, **env: str
) -> subprocess.Popen[bytes]:
    command = [*before, python, "-m", "raybus_localkube.node", "--dir", str(folder), *arguments]
    with (folder / "node.log").open("wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **env})


def start_one(folder: Path, marker: str, argv: list[str], **more: Any) -> dict[str, Any]:
    pod = {"uid": "u1", "name": "p1", "namespace": "ns", "hostname": "p1", "search": [], "options": [], "tmpfs": []}
    ip = ask(folder, "pod-ensure", **pod)["ip"]
    spec = {
        "pod": "u1", "name": "main", "attempt": 0, "argv": argv, "env": {"PATH": "/usr/bin:/bin", "MARK": marker}, "cwd": "/home/ray",
        "mounts": [], "cpu": 1.0, "memory": 1 << 30, "log": str(folder / "log"), "init": False, "message_path": "/dev/termination-log", **more,
    }  # fmt: skip
    container: dict[str, Any] = ask(folder, "container-start", spec=spec)["container"]
    return {**container, "ip": ip}


def test_a_plain_user_without_capabilities_can_run_pods(folder: Path) -> None:
    if os.getuid() != 0 or not shutil.which("setpriv") or not Path(SYSTEM_PYTHON).exists():
        pytest.skip(
            "becomes another user, for which it has to be root, with setpriv and a Python that all users can read"
        )
    if subprocess.run(
        [SYSTEM_PYTHON, "-c", f"import sys; sys.exit(sys.version_info[:2] != {sys.version_info[:2]})"], check=False
    ).returncode:
        pytest.skip("the system's Python is another version than the one whose packages are used here")
    os.chown(folder, PLAIN_UID, PLAIN_UID)
    before = ("setpriv", f"--reuid={PLAIN_UID}", f"--regid={PLAIN_UID}", "--clear-groups", "--bounding-set=-all")
    packages = os.pathsep.join([*site.getsitepackages(), str(Path(raybus_localkube.__file__).parents[1])])
    node = spawn(folder, before=before, python=SYSTEM_PYTHON, PYTHONPATH=packages)
    try:
        wait_until(lambda: answers(folder), "the node answers", node, folder / "node.log")
        marker = secrets.token_hex(8)
        container = start_one(folder, marker, ["python3", "-m", "http.server", "8000"])
        assert container["running"], container
        script = "id -u; hostname; touch /home/ray/x && echo home; touch /usr/x || echo read-only; ls /proc | grep -c '^[0-9]'"
        seen = ask(folder, "exec", container=container["id"], argv=["sh", "-c", script], timeout_s=5)
        assert seen["output"].split("\n")[:3] == ["0", "p1", "home"], seen
        assert "read-only" in seen["output"]
        fetch = "import time, urllib.request\nfor _ in range(50):\n    try: print(urllib.request.urlopen('http://%s:8000/').status); break\n    except OSError: time.sleep(0.1)"
        seen = ask(
            folder, "exec", container=container["id"], argv=["python3", "-c", fetch % container["ip"]], timeout_s=10
        )
        assert seen["output"].strip() == "200"
        assert processes_with(f"MARK={marker}")
    finally:
        node.terminate()
        assert node.wait(15) == 0
    assert processes_with(f"MARK={marker}") == []


def test_one_node_per_folder_and_port(folder: Path, tmp_path: Path) -> None:
    port = free_port()
    node = spawn(folder, "--proxy-port", str(port))
    try:
        wait_until(lambda: answers(folder), "the node answers", node)
        for arguments, words in (
            (["--dir", str(folder)], "runs in"),
            (
                ["--dir", str(tmp_path), "--proxy-port", str(port)],
                f"port {port} on 127.0.0.1: Address already in use; choose another --proxy-port",
            ),
            (["--dir", str(tmp_path / ("x" * 120))], "choose a shorter --dir"),
        ):
            done = subprocess.run(
                [sys.executable, "-m", "raybus_localkube.node", *arguments],
                capture_output=True,
                text=True,
                timeout=20,
                check=False,
            )
            assert done.returncode == 1
            assert words in done.stderr
            assert "Traceback" not in done.stderr
        assert answers(folder)
    finally:
        node.terminate()
        node.wait(15)


def test_the_node_ends_with_its_supervisor(folder: Path) -> None:
    """A supervisor that is killed takes the node, and with it every pod, along."""
    script = (
        "import subprocess, sys, time\n"
        f"subprocess.Popen([sys.executable, '-m', 'raybus_localkube.node', '--dir', {str(folder)!r}, '--die-with-parent'])\n"
        "time.sleep(1000)"
    )
    supervisor = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.DEVNULL)
    marker = secrets.token_hex(8)
    try:
        wait_until(lambda: answers(folder), "the node answers", supervisor)
        start_one(folder, marker, ["sh", "-c", "sleep 1000 & sleep 1001"])
        wait_until(lambda: len(processes_with(f"MARK={marker}")) == 3, "its processes run")
    finally:
        supervisor.kill()
        supervisor.wait(10)
    wait_until(lambda: not processes_with(f"MARK={marker}"), "every process ends")
    wait_until(lambda: not answers(folder), "the node ends")


def test_a_mount_at_a_path_that_the_host_does_not_have(folder: Path) -> None:
    node = spawn(folder)
    try:
        wait_until(lambda: answers(folder), "the node answers", node)
        source = folder / "data"
        source.mkdir()
        (source / "f").write_text("mine")
        targets = ["/usr/share/deep/er", "/usr/lib/x.txt", "/etc/ray/tls", "/data", "/tmp/ray/logs"]
        mounts = [
            {"source": str(source / "f" if t.endswith(".txt") else source), "target": t, "read_only": t != "/data"}
            for t in targets
        ]
        script = (
            "cat /usr/share/deep/er/f /usr/lib/x.txt /etc/ray/tls/f /data/f /tmp/ray/logs/f; ls /usr/share | wc -l; getent hosts p1 > /dev/null;"
            " echo new > /data/new; echo no > /tmp/ray/logs/no"
        )
        container = start_one(folder, "x", ["sh", "-c", script], mounts=mounts)
        wait_until(lambda: not ask(folder, "list")["containers"][0]["running"], "it ends")
        record = ask(folder, "list")["containers"][0]
        lines = [line.split(" ", 3)[3] for line in (folder / "log").read_text().splitlines()]
        assert lines[0].startswith("mine" * 5), (record, lines, container)
        assert int(lines[0].removeprefix("mine" * 5)) == len(list(Path("/usr/share").iterdir())) + 1
        assert (source / "new").exists()
        assert not (source / "no").exists()
        assert not Path("/usr/share/deep").exists()
    finally:
        node.terminate()
        node.wait(15)


def test_sigkill_of_process_one_ends_a_container_at_once(folder: Path) -> None:
    node = spawn(folder)
    marker = secrets.token_hex(8)
    try:
        wait_until(lambda: answers(folder), "the node answers", node)
        container = start_one(
            folder, marker, ["sh", "-c", "trap '' TERM; setsid sleep 1000 & while true; do sleep 0.1; done"]
        )
        wait_until(lambda: len(processes_with(f"MARK={marker}")) >= 3, "it runs")
        ask(folder, "container-signal", container=container["id"], signal=int(signal.SIGTERM))
        time.sleep(0.3)
        assert ask(folder, "list")["containers"][0]["running"]
        ask(folder, "container-signal", container=container["id"], signal=int(signal.SIGKILL))
        wait_until(lambda: not ask(folder, "list")["containers"][0]["running"], "it ends")
        assert ask(folder, "list")["containers"][0]["exit_code"] == 137
        wait_until(lambda: not processes_with(f"MARK={marker}"), "nothing is left")
    finally:
        node.terminate()
        node.wait(15)


def test_one_kubelet_per_folder(local_node: LocalNode) -> None:
    command = ["raybus_localkube.kubelet", "--dir", str(local_node.folder), "--kubeconfig", local_node.kubeconfig]
    done = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 1
    assert "a kubelet runs in" in done.stderr
    missing = [*command[:3], "--kubeconfig", str(local_node.folder / "none")]
    done = subprocess.run([sys.executable, "-m", *missing], capture_output=True, text=True, timeout=20, check=False)
    assert (done.returncode, "no such file" in done.stderr, "Traceback" in done.stderr) == (1, True, False)
