"""Finding the long-lived process of a folder again, whatever became of it; its part is played by small processes."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from raybus.cli import background
from raybus.cli.background import Foreground, Place
from raybus.cli.errors import UserError


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(command="raybus", root=tmp_path, record=tmp_path / "daemon.json", log=tmp_path / "log")


def record(place: Place, pid: int, phase: str, **more: Any) -> None:
    mine = {"pid": pid, "start_ticks": background.start_ticks(pid), "phase": phase, "error": None}
    place.record.write_text(json.dumps({**mine, **more}))


def sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])


def test_a_process_that_was_killed_but_not_waited_for_does_not_run(place: Place):
    process = sleeper()
    record(place, process.pid, "ready")
    assert place.running()
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it has ended and stays a zombie
    try:
        assert not place.running()
        assert not background.stop(place)
    finally:
        process.wait()


def test_who_starts_second_waits_for_the_first(place: Place):
    first, second = sleeper(), subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    try:
        record(place, first.pid, "starting")
        second.wait()
        threading.Timer(0.3, record, (place, first.pid, "ready")).start()
        assert background.until_ready(place, second)["pid"] == first.pid
    finally:
        first.kill()
        first.wait()


def test_one_that_is_killed_while_it_starts_is_not_waited_for(place: Place):
    process = sleeper()
    record(place, process.pid, "starting")
    process.kill()
    process.wait()
    with pytest.raises(UserError, match="has ended"):
        background.until_ready(place, None)


def test_an_error_of_an_earlier_start_is_not_told_again(place: Place):
    error = {"message": "old", "hint": "", "code": 3}
    record(place, os.getpid(), "failed", error=error, start_ticks="1")  # long gone: its pid is somebody else's
    child = background.spawn(place, [sys.executable, "-c", "raise SystemExit(7)"])
    with pytest.raises(UserError, match="has ended with code 7"):
        background.until_ready(place, child)
    record(place, child.pid, "failed", error=error, start_ticks="1")
    with pytest.raises(UserError, match="old"):
        background.until_ready(place, child)


async def test_one_whose_folder_was_removed_ends(place: Place, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(background, "LOST_LOOK_S", 0.01)

    async def serve(foreground: Foreground) -> None:
        foreground.ready()
        assert place.running()
        await asyncio.sleep(0.1)
        assert not foreground.stopping.is_set()
        shutil.rmtree(place.root)
        await foreground.stopping.wait()

    await asyncio.wait_for(Foreground(place).run(serve), 20)
    assert not place.root.exists()
