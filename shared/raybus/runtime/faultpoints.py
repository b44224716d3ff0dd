"""Named points at which a test can have this process killed, as a power cut would.

RAYBUS_FAULTPOINT="after:CreatePod" kills at the first hit of that point, "after:CreatePod:3" at the third. With
RAYBUS_FAULTPOINT_ONCE=<file> it happens only while the file does not exist, and the file is written first: the restarted process
lives. Without the variables a hit costs one comparison.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path


class FaultPoint:
    """One armed point: `kill` runs at the `count`-th hit of `name`."""

    def __init__(self, name: str, count: int, once: Path | None, kill: Callable[[], None]) -> None:
        self.name = name
        self._left = count
        self._once = once
        self._kill = kill

    def hit(self, name: str) -> None:
        if name != self.name:
            return
        self._left -= 1
        if self._left or not self._first_time():
            return
        self._kill()

    def _first_time(self) -> bool:
        if self._once is None:
            return True
        try:
            self._once.touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


def _kill_self() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def armed(environment: Mapping[str, str], kill: Callable[[], None] = _kill_self) -> FaultPoint | None:
    """The point that the environment asks for, if any. ValueError if its count is not positive."""
    text = environment.get("RAYBUS_FAULTPOINT", "")
    if not text:
        return None
    name, _, count = text.rpartition(":")
    if not (name and count.isdigit()):
        name, count = text, "1"
    if int(count) < 1:
        raise ValueError(f"RAYBUS_FAULTPOINT={text}: the count must be 1 or more")
    once = environment.get("RAYBUS_FAULTPOINT_ONCE")
    return FaultPoint(name, int(count), Path(once) if once else None, kill)


_armed = armed(os.environ)


def hit(name: str) -> None:
    """Pass the point `name`; returns unless this is the hit to die at."""
    if _armed is not None:
        _armed.hit(name)
