"""What happened in a run, in order: for people when it fails, and as one number that says whether two runs were the same.

What may live here: the keeping and printing of lines. Nothing that changes a run.
"""

from __future__ import annotations

import hashlib
import sys
from typing import Any

import structlog

from simulation.sim.loop import BEGIN, SimLoop


class Story:
    """`tell` keeps a line only where `detailed` is set; `mark` goes into the digest in any case."""

    def __init__(self, loop: SimLoop, *, detailed: bool) -> None:
        self.detailed = detailed
        self.lines: list[str] = []
        self._loop = loop
        self._digest = hashlib.blake2b(digest_size=12)

    def begin(self) -> None:
        """A schedule begins: what came before is the same for all."""
        self.lines.clear()
        self._digest = hashlib.blake2b(digest_size=12)

    def tell(self, who: str, what: str) -> None:
        if self.detailed:
            self.lines.append(f"{self._loop.now - BEGIN:10.4f}  {who:<16} {what}")

    def mark(self, *parts: str | bytes) -> None:
        for part in parts:
            self._digest.update(part if isinstance(part, bytes) else part.encode())
        self._digest.update(repr(self._loop.now).encode())

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()


def log_into(story: Story, who: Any) -> Any:
    """A structlog processor that makes lines of the product's own log; `who()` names the process."""

    def processor(_logger: Any, method: str, event: dict[str, Any]) -> str:
        words = str(event.pop("event", ""))
        event.pop("exc_info", None)
        rest = " ".join(f"{key}={event[key]}" for key in sorted(event))
        level = f"{method}: " if method in ("error", "warning", "exception") else ""
        story.tell(who(), f"  {level}{words} {rest}".rstrip())
        raise structlog.DropEvent

    return processor


def keep_errors(errors: list[str]) -> Any:
    """A structlog processor that remembers what the product calls an error: it does so only for its own bugs."""

    def processor(_logger: Any, method: str, event: dict[str, Any]) -> dict[str, Any]:
        if method in ("error", "exception", "critical"):
            caught = sys.exc_info()[1]
            rest = " ".join(f"{key}={event[key]}" for key in sorted(event) if key not in ("event", "exc_info"))
            errors.append(f"{event.get('event')} {rest} {caught!r}")
        return event

    return processor


def dropped(_logger: Any, _method: str, _event: Any) -> Any:
    raise structlog.DropEvent
