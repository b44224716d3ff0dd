"""A real Ray head on loopback for tests marked `ray`."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def real_head(folder: Path) -> Iterator[str]:
    """A head on loopback, in the foreground so that ending it ends all of it; host:port of its dashboard."""
    ray = Path(sys.executable).with_name("ray")
    if not ray.exists():
        pytest.skip("real Ray is not installed (pip install 'raybus[local]')")
    ports = [_free_port() for _ in range(4)]
    # Ray puts sockets into its folder, whose paths must stay under 107 bytes: pytest's folders are too deep.
    own = tempfile.mkdtemp(prefix="rb", dir="/tmp")
    command = [
        str(ray), "start", "--head", "--block", "--node-ip-address=127.0.0.1", f"--port={ports[0]}",
        f"--dashboard-port={ports[1]}", "--dashboard-host=127.0.0.1", f"--dashboard-agent-listen-port={ports[2]}",
        f"--ray-client-server-port={ports[3]}", "--num-cpus=2", "--object-store-memory=80000000",
        "--include-dashboard=true", "--disable-usage-stats", f"--temp-dir={own}",
    ]  # fmt: skip
    environment = {**os.environ, "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_DEDUP_LOGS": "0"}
    with (folder / "head.log").open("wb") as log:
        head = subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=folder, start_new_session=True)
        try:
            _wait_for(ports[1], head)
            yield f"127.0.0.1:{ports[1]}"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(head.pid, 15)
            # Ray's own processes end by that. The command that waits for them takes it for their business and would wait for ever.
            with contextlib.suppress(subprocess.TimeoutExpired):
                head.wait(3)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(head.pid, 9)
            head.wait(10)
            shutil.rmtree(own, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for(port: int, head: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if head.poll() is not None:
            raise AssertionError(f"ray start ended with {head.returncode}")
        try:
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            with opener.open(f"http://127.0.0.1:{port}/api/version", timeout=2):
                return
        except OSError:
            time.sleep(0.3)
    raise AssertionError("the head's dashboard did not answer in 120 s")
