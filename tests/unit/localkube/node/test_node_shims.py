"""The programs that pods find on their PATH, run as pods run them: by an isolated Python without packages."""

from __future__ import annotations

import http.server
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from raybus_localkube.node import shims

HERE = Path(shims.__file__).parent


class Pages(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        status, body = {"/ok": (200, b"success\n"), "/moved": (302, b""), "/bad": (503, b"no")}.get(
            self.path, (404, b"?")
        )
        self.send_response(status)
        if status == 302:
            self.send_header("Location", "/ok")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def run(script: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", "-S", str(script), *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=30, check=False, env={"PATH": os.environ["PATH"], **env}
    )


def wget(*arguments: str) -> tuple[int, str]:
    done = run(HERE / "wget.py", *arguments)
    return done.returncode, done.stdout


def test_wget_as_the_probes_call_it(url: str) -> None:
    assert wget("--tries", "1", "-T", "2", "-q", "-O-", f"{url}/ok") == (0, "success\n")
    assert wget("--tries=3", "--timeout=2", "-qO-", f"{url}/moved") == (0, "success\n")
    assert wget("-q", "-O", "-", f"{url}/bad") == (8, "")
    assert wget("-q", "-O-", "http://127.0.0.1:9/") == (4, "")


def test_wget_writes_files(url: str, tmp_path: Path) -> None:
    assert wget("-q", "-O", str(tmp_path / "f"), f"{url}/ok")[0] == 0
    assert (tmp_path / "f").read_text() == "success\n"
    assert wget("-q", "-O", str(tmp_path / "no" / "f"), f"{url}/ok")[0] == 3


def test_wget_says_what_it_cannot_do(url: str) -> None:
    done = run(HERE / "wget.py", "--mirror", url)
    assert done.returncode == 2
    assert "does not know '--mirror'" in done.stderr
    assert run(HERE / "wget.py", "https://x/").returncode == 1


def ray(tmp_path: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    real = tmp_path / "real-ray"
    real.write_text('#!/bin/sh\necho real "$@"\n')
    real.chmod(0o755)
    script = tmp_path / "ray"
    source = (HERE / "ray_cli.py").read_text()
    source = source.replace('RAY_VERSION = ""', 'RAY_VERSION = "2.60.0"').replace(
        'RAY_PROGRAM = ""', f"RAY_PROGRAM = {str(real)!r}"
    )
    script.write_text(source)
    return run(script, *arguments, **env)


@pytest.mark.parametrize(
    ("arguments", "env"),
    [
        (("start", "--head"), {}),
        (("health-check",), {}),
        (("health-check", "--address", "h:1", "--component", "x"), {}),
        (("health-check", "--address", "h:1"), {"RAY_USE_TLS": "1"}),
        (("health-check", "--address", "h:1"), {"RAY_AUTH_MODE": "token"}),
        (("health-check", "--address", "ray://h:1"), {}),
    ],
)
def test_all_else_is_the_real_rays(tmp_path: Path, arguments: tuple[str, ...], env: dict[str, str]) -> None:
    assert ray(tmp_path, *arguments, **env).stdout == f"real {' '.join(arguments)}\n"


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def reply(version: str, code: int = 0) -> bytes:
    """A GCS' frames: settings, a ping, the answer in two pieces."""
    message = (
        (b"\x0a\x02\x08" + bytes([code]) if code else b"\x0a\x00") + b"\x12" + bytes([len(version)]) + version.encode()
    )
    grpc = b"\0" + struct.pack(">I", len(message)) + message
    return (
        frame(4, 0, 0, b"")
        + frame(6, 0, 0, b"12345678")
        + frame(1, 4, 1, b"\x88")
        + frame(0, 0, 1, grpc[:7])
        + frame(0, 0, 1, grpc[7:])
    )


@pytest.fixture
def gcs() -> Iterator[Callable[[bytes, float], str]]:
    threads: list[threading.Thread] = []

    def serve(answer: bytes, after_s: float) -> str:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]

        def answer_one() -> None:
            time.sleep(after_s)
            with socket.create_server(("127.0.0.1", port)) as listener:
                listener.settimeout(20)
                connection, _ = listener.accept()
                with connection:
                    connection.recv(65536)
                    connection.sendall(answer)
                    connection.settimeout(5)
                    while connection.recv(65536):
                        pass

        threads.append(threading.Thread(target=answer_one))
        threads[-1].start()
        return f"127.0.0.1:{port}"

    yield serve
    for thread in threads:
        thread.join()


def test_a_healthy_gcs(tmp_path: Path, gcs: Callable[[bytes, float], str]) -> None:
    done = ray(tmp_path, "health-check", "--address", gcs(reply("2.60.0"), 0))
    assert (done.returncode, done.stdout) == (0, "")


def test_another_version(tmp_path: Path, gcs: Callable[[bytes, float], str]) -> None:
    done = ray(tmp_path, "health-check", "--address", gcs(reply("2.52.0"), 0))
    assert done.returncode == 1
    assert "cluster has Ray version 2.52.0 but local Ray version is 2.60.0" in done.stderr


def test_a_gcs_that_is_not_well(tmp_path: Path, gcs: Callable[[bytes, float], str]) -> None:
    assert ray(tmp_path, "health-check", "--address", gcs(reply("2.60.0", 1), 0)).returncode == 1


def test_an_init_container_waits_a_program_does_not(tmp_path: Path, gcs: Callable[[bytes, float], str]) -> None:
    late = gcs(reply("2.60.0"), 1.0)
    assert ray(tmp_path, "health-check", "--address", late).returncode == 1
    assert ray(tmp_path, "health-check", f"--address={late}", RAYBUS_CONTAINER_TYPE="init").returncode == 0


def test_shims_are_installed_where_they_are_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shims.shutil, "which", lambda *_a, **_k: None)
    monkeypatch.setattr(shims, "find_ray", lambda: ("9.9.9", "/env/bin/ray"))
    shims.install(tmp_path / "bin")
    assert 'RAY_VERSION = "9.9.9"' in (tmp_path / "bin" / "ray").read_text().replace("'", '"')
    assert os.access(tmp_path / "bin" / "wget", os.X_OK)
    monkeypatch.setattr(shims.shutil, "which", lambda *_a, **_k: "/usr/bin/wget")
    monkeypatch.setattr(shims, "find_ray", lambda: None)
    shims.install(tmp_path / "bin")
    assert list((tmp_path / "bin").iterdir()) == []
