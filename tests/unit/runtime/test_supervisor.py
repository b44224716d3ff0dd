"""The supervisor, with real processes: order, restarts, giving up, orderly stop, and no orphan whatever happens."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import psutil
import pytest

from raybus.runtime import supervisor as supervisor_module
from raybus.runtime.child import ProcessSpec
from raybus.runtime.supervisor import Supervisor, SupervisorError
from support.waiting import eventually

# Notes each start in `log`, says that it is ready, and waits.
STAYS = """
import os, pathlib, signal, sys, time
log, ready = sys.argv[1:3]
with open(log, "a") as file: file.write(f"{sys.argv[3]} {os.getpid()}\\n")
def end(*_):
    with open(log, "a") as file: file.write(f"{sys.argv[3]} ends\\n")
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
time.sleep(float(sys.argv[4]) if len(sys.argv) > 4 else 0)
pathlib.Path(ready).touch()
print("up and running", flush=True)
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor_module, "BACK_OFF_S", 0.02)


class Bench:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "story"
        self.state_file = folder / "state.json"

    def stays(self, name: str, *, ready_after_s: float = 0, **fields: Any) -> ProcessSpec:
        ready = self.folder / f"{name}.ready"
        argv = (sys.executable, "-c", STAYS, str(self.log), str(ready), name, str(ready_after_s))
        return self.spec(name, *argv, ready_file=ready, **fields)

    def spec(self, name: str, *argv: str, **fields: Any) -> ProcessSpec:
        return ProcessSpec(name=name, argv=argv, log_file=self.folder / "logs" / f"{name}.log", **fields)

    def state(self, name: str) -> dict[str, Any]:
        services = orjson.loads(self.state_file.read_bytes())["services"]
        found: dict[str, Any] = next(service for service in services if service["name"] == name)
        return found

    def text(self, path: str) -> str:
        return Path(path).read_text()

    def story(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@asynccontextmanager
async def supervised(bench: Bench, *specs: ProcessSpec, grace_s: float = 5.0) -> AsyncIterator[Supervisor]:
    supervisor = Supervisor(specs, bench.state_file, grace_s=grace_s)
    await supervisor.start()
    try:
        yield supervisor
    finally:
        await supervisor.stop()


def lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def test_processes_start_after_what_they_need_and_end_before_it(bench: Bench) -> None:
    first = bench.stays("nats", ready_after_s=0.3)
    second = bench.stays("gateway", depends_on=("nats",), ports={"health": 4711})

    async with supervised(bench, first, second) as supervisor:
        assert [line.split()[0] for line in bench.story()] == ["nats", "gateway"]
        assert await supervisor.all_ready() == {"nats": True, "gateway": True}
        state = bench.state("gateway")
        assert state["ready"]
        assert lives(state["pid"])
        assert state["ports"] == {"health": 4711}
        assert "up and running" in bench.text(state["logFile"])

    assert bench.story()[2:] == ["gateway ends", "nats ends"]
    assert bench.state("nats")["pid"] is None


async def test_a_process_that_is_killed_comes_back(bench: Bench) -> None:
    async with supervised(bench, bench.stays("gateway")):
        for restarts in range(1, 7):
            pid = bench.state("gateway")["pid"]
            os.kill(pid, signal.SIGKILL)
            await eventually(lambda n=restarts: bench.state("gateway")["restarts"] == n)
            await eventually(lambda: bench.state("gateway")["ready"])
            assert bench.state("gateway")["pid"] != pid


async def test_one_that_never_comes_up_is_given_up_with_the_end_of_its_log(bench: Bench) -> None:
    program = "import sys; print('port 4222 is in use', flush=True); sys.exit(1)"
    broken = bench.spec("nats", sys.executable, "-c", program, ready_file=bench.folder / "never")

    with pytest.raises(SupervisorError, match=r"(?s)nats does not run: it ended 5 times.*port 4222 is in use"):
        await Supervisor([broken, bench.stays("other")], bench.state_file).start()

    assert bench.state("other")["pid"] is None
    assert bench.state("nats")["problem"]


async def test_one_that_was_up_once_is_never_given_up(bench: Bench) -> None:
    """Else one service that is killed again and again would take the running pods down with it."""
    flag = bench.folder / "works"
    flag.touch()
    ready = bench.folder / "ready"
    program = f"import pathlib, sys, time; pathlib.Path({str(flag)!r}).exists() or sys.exit(1); pathlib.Path({str(ready)!r}).touch(); time.sleep(600)"

    async with supervised(bench, bench.spec("nats", sys.executable, "-c", program, ready_file=ready)):
        flag.unlink()
        os.kill(bench.state("nats")["pid"], signal.SIGKILL)
        await eventually(
            lambda: bench.state("nats")["restarts"] > supervisor_module.QUICK_FAILURES_MAX + 1, within_s=60
        )
        flag.touch()
        await eventually(lambda: bench.state("nats")["ready"], within_s=60)

        assert bench.state("nats")["problem"] == ""


async def test_one_that_refuses_its_settings_is_not_tried_again(bench: Bench) -> None:
    program = "import sys; print('--port: not a number', flush=True); sys.exit(2)"
    broken = bench.spec("nats", sys.executable, "-c", program, ready_file=bench.folder / "never")

    with pytest.raises(SupervisorError, match=r"(?s)refuses its settings.*--port"):
        await Supervisor([broken], bench.state_file).start()

    assert bench.state("nats")["restarts"] == 0


async def test_a_program_that_is_not_there_is_named(bench: Bench) -> None:
    with pytest.raises(SupervisorError, match="/no/such/program"):
        await Supervisor([bench.spec("nats", "/no/such/program")], bench.state_file).start()


async def test_one_that_is_not_ready_in_time_is_said(bench: Bench) -> None:
    slow = bench.stays("slow", ready_after_s=60, ready_timeout_s=0.3)

    with pytest.raises(SupervisorError, match=r"not ready within 0.3 s"):
        await Supervisor([slow], bench.state_file).start()

    assert not lives(int(bench.story()[0].split()[1]))


async def test_one_that_ignores_the_request_to_end_is_killed(bench: Bench) -> None:
    program = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    stubborn = bench.spec("stubborn", sys.executable, "-c", program)

    async with supervised(bench, stubborn, grace_s=0.2):
        pid = bench.state("stubborn")["pid"]

    assert not lives(pid)


async def test_what_a_process_started_itself_ends_with_it(bench: Bench) -> None:
    program = textwrap.dedent("""
        import subprocess, sys, time
        print(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid, flush=True)
        time.sleep(600)
    """)
    spec = bench.spec("parent", sys.executable, "-c", program)

    async with supervised(bench, spec):
        await eventually(lambda: spec.log_file.read_text().strip())
        grandchild = int(spec.log_file.read_text())
        assert lives(grandchild)

    await eventually(lambda: not lives(grandchild))


async def test_readiness_by_url(bench: Bench) -> None:
    program = textwrap.dedent("""
        import http.server, sys
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self): self.send_response(200); self.end_headers()
        server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
        server.serve_forever()
    """)
    port = free_port()
    spec = bench.spec("web", sys.executable, "-c", program, str(port), ready_url=f"http://127.0.0.1:{port}/readyz")

    async with supervised(bench, spec) as supervisor:
        assert await supervisor.all_ready() == {"web": True}


def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def test_a_name_that_is_not_given_before_is_an_error(bench: Bench) -> None:
    with pytest.raises(ValueError, match="gateway depends on nats"):
        Supervisor([bench.stays("gateway", depends_on=("nats",))], bench.state_file)


def test_no_orphan_is_left_when_the_supervisor_is_killed(bench: Bench) -> None:
    program = textwrap.dedent("""
        import asyncio, sys
        from pathlib import Path
        from raybus.runtime.child import ProcessSpec
        from raybus.runtime.supervisor import Supervisor
        folder = Path(sys.argv[1])
        sleeps = (sys.executable, "-c", "import time; time.sleep(600)")
        specs = [ProcessSpec(name=name, argv=sleeps, log_file=folder / f"{name}.log") for name in ("a", "b")]
        async def main():
            await Supervisor(specs, folder / "state.json").start()
            print("ready", flush=True)
            await asyncio.sleep(600)
        asyncio.run(main())
    """)
    command = [sys.executable, "-c", program, str(bench.folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert "ready\n" in process.stdout  # reads line after line until then
        pids = [bench.state(name)["pid"] for name in ("a", "b")]
        assert all(lives(pid) for pid in pids)
        process.kill()

    asyncio.run(eventually(lambda: not any(lives(pid) for pid in pids)))


async def test_it_makes_no_folder_again_that_was_removed_and_spoils_no_others_state(tmp_path: Path):
    bench = Bench(tmp_path / "run")
    bench.folder.mkdir()
    supervisor = Supervisor([bench.stays("nats")], bench.state_file)
    await supervisor.start()
    shutil.rmtree(bench.folder)
    await supervisor.stop()
    assert not bench.folder.exists()

    bench.folder.mkdir()
    await (supervisor := Supervisor([bench.stays("nats")], bench.state_file)).start()
    theirs = b'{"supervisor": 1, "services": []}'
    bench.state_file.write_bytes(theirs)
    await supervisor.stop()
    assert bench.state_file.read_bytes() == theirs
