"""The API server of localkube as a process of its own: what a crash, a pause or a restart does to it, and to its clients."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path


class ServerProcess:
    """`python -m raybus_localkube.server` over one folder; `kill` and `start` again as a crash does."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder, self.arguments = folder, arguments
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    def start(self) -> float:
        """Seconds until it was ready."""
        self.kubeconfig.unlink(missing_ok=True)
        command = [sys.executable, "-m", "raybus_localkube.server", "--dir", str(self.folder), *self.arguments]
        began = time.monotonic()
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        while not self.kubeconfig.exists():  # written last
            assert self.process.poll() is None, (self.folder / "server.log").read_text()
            assert time.monotonic() < began + 30, "the server does not get ready"
            time.sleep(0.02)
        return time.monotonic() - began

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(20)

    def kubectl(self, *words: str, stdin: str = "", check: bool = True) -> subprocess.CompletedProcess[str]:
        program = Path(sys.executable).parent / "kubectl"
        env = {**os.environ, "KUBECONFIG": str(self.kubeconfig), "HOME": str(self.folder)}
        done = subprocess.run(
            [program, *words], input=stdin, capture_output=True, text=True, timeout=60, env=env, check=False
        )
        assert not check or done.returncode == 0, done.stderr
        return done
