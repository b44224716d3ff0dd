"""The server as a process: start, crash, restart, sign-in, refusals at start."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import psutil
import pytest
import yaml

from support.server_process import ServerProcess

LOCALKUBE = Path(sys.executable).parent / "localkube"


def ask(server: ServerProcess, path: str, token: str | None = None) -> tuple[int, bytes]:
    config = yaml.safe_load(server.kubeconfig.read_text())
    url = config["clusters"][0]["cluster"]["server"] + path
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    context = ssl.create_default_context(cafile=str(server.folder / "pki" / "ca.crt"))
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, headers=headers), timeout=10, context=context
        ) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def test_a_fresh_start_is_quick_and_small(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path)
    server.start()
    try:
        assert server.process is not None
        process = psutil.Process(server.process.pid)
        times = process.cpu_times()
        assert times.user + times.system < 3, "seconds of computing, however busy the machine is; meant to be below one"
        assert process.memory_info().rss < 90 << 20
    finally:
        server.stop()


def test_nothing_answered_is_lost_by_kill_9_and_versions_go_on(server: ServerProcess) -> None:
    server.kubectl("create", "configmap", "one", "--from-literal=k=v")
    before = json.loads(server.kubectl("get", "configmap", "one", "-o", "json").stdout)
    server.stop(signal.SIGKILL)
    server.start()

    after = json.loads(server.kubectl("get", "configmap", "one", "-o", "json").stdout)
    server.kubectl("create", "configmap", "two")
    two = json.loads(server.kubectl("get", "configmap", "two", "-o", "json").stdout)

    assert after == before
    assert int(two["metadata"]["resourceVersion"]) > int(before["metadata"]["resourceVersion"])


def test_it_ends_on_sigterm_though_somebody_watches(server: ServerProcess) -> None:
    env = {**os.environ, "KUBECONFIG": str(server.kubeconfig)}
    program = Path(sys.executable).parent / "kubectl"
    watch = subprocess.Popen(
        [program, "get", "configmaps", "-A", "-w"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env
    )
    assert watch.stdout is not None
    watch.stdout.readline()
    assert server.stop() == 0
    watch.communicate(timeout=10)


def test_who_may_in(server: ServerProcess) -> None:
    config = yaml.safe_load(server.kubeconfig.read_text())
    tokens = {user["name"]: user["user"]["token"] for user in config["users"]}

    assert stat.S_IMODE(server.kubeconfig.stat().st_mode) == 0o600
    assert ask(server, "/api/v1/namespaces")[0] == 401
    assert ask(server, "/api/v1/namespaces", "rubbish")[0] == 401
    assert ask(server, "/api/v1/namespaces", tokens["nobody"])[0] == 403
    assert ask(server, "/api/v1/namespaces", tokens["admin"])[0] == 200
    assert ask(server, "/readyz") == (200, b"ok")


def test_a_service_account_token_works_while_its_account_exists(server: ServerProcess) -> None:
    server.kubectl("create", "serviceaccount", "robot")
    token = server.kubectl("create", "token", "robot").stdout.strip()
    assert ask(server, "/api/v1/namespaces/default/pods", token)[0] == 200
    server.kubectl("delete", "serviceaccount", "robot")
    assert ask(server, "/api/v1/namespaces/default/pods", token)[0] == 401


def test_the_client_certificate_of_the_kubeconfig_is_enough(server: ServerProcess) -> None:
    config = yaml.safe_load(server.kubeconfig.read_text())
    del next(user for user in config["users"] if user["name"] == "admin")["user"]["token"]
    server.kubeconfig.write_text(yaml.safe_dump(config))
    assert server.kubectl("auth", "whoami", check=False).returncode in (0, 1)  # not every review is served
    assert "default" in server.kubectl("get", "namespaces").stdout


@pytest.mark.parametrize("kind", ["port", "folder", "controller", "second"])
def test_mistakes_at_the_start_are_one_line(server: ServerProcess, tmp_path: Path, kind: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        file = tmp_path / "file"
        file.write_text("")
        arguments, words = {
            "port": (["--dir", str(tmp_path / "x"), "--port", port], f"port {port} on 127.0.0.1 cannot be used"),
            "folder": (["--dir", str(file)], "cannot be used as state folder"),
            "controller": (["--dir", str(tmp_path / "y"), "--controllers", "nope"], "no such controller: nope"),
            "second": (["--dir", str(server.folder)], "another localkube serves"),
        }[kind]
        command = [sys.executable, "-m", "raybus_localkube.server", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode not in (0, 1)
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([LOCALKUBE, *words], capture_output=True, text=True, timeout=100, check=False)


def test_the_command_starts_once_shows_and_stops(tmp_path: Path) -> None:
    folder = str(tmp_path)
    up = ("up", "--dir", folder, "--no-kubelet")
    first, second = run(*up), run(*up)
    try:
        assert first.stdout == second.stdout == f"{folder}/kubeconfig\n", first.stderr
        shown = json.loads(run("status", "--dir", folder, "--output", "json").stdout)
        assert [(s["name"], s["ready"]) for s in shown["services"]] == [("localkube", True)]
        other = run(*up, "--port", "1")
        assert other.returncode == 4
        assert "runs in" in other.stderr
    finally:
        down = run("down", "--dir", folder)
    assert down.returncode == 0, down.stderr
    assert not psutil.pid_exists(shown["services"][0]["pid"])
    assert "nothing runs" in run("down", "--dir", folder).stderr
    assert run("status", "--dir", folder).returncode == 4


def test_after_a_kill_of_the_daemon_nothing_is_left_and_it_starts_again(tmp_path: Path) -> None:
    up = ("up", "--dir", str(tmp_path), "--no-kubelet")
    assert run(*up).returncode == 0
    server = json.loads((tmp_path / "processes.json").read_text())["services"][0]["pid"]
    os.kill(json.loads((tmp_path / "localkube.json").read_text())["pid"], signal.SIGKILL)
    psutil.wait_procs([p for p in psutil.process_iter() if p.pid == server], timeout=10)
    try:
        again = run(*up)
        assert again.returncode == 0, again.stderr
        assert not psutil.pid_exists(server)
    finally:
        run("down", "--dir", str(tmp_path))


def test_a_taken_port_and_a_folder_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = run("up", "--dir", str(tmp_path / "a"), "--no-kubelet", "--port", port)
    assert (done.returncode, f"port {port} (--port) is in use" in done.stderr) == (4, True)
    (tmp_path / "file").write_text("")
    done = run("up", "--dir", str(tmp_path / "file"))
    assert (done.returncode, "cannot use the folder" in done.stderr) == (4, True)
