"""History: what happened, for people. Best effort by design: it never delays and never fails the one who records."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from typing import Any, NamedTuple

import orjson
import structlog

from raybus.bus import envelope
from raybus.bus.clock import SYSTEM, Clock
from raybus.bus.subjects import HistoryAddress, history_subject
from raybus.bus.transport import Bus, BusError, BusTimeout, Unavailable
from raybus.decide.actions import Json

log = structlog.get_logger(__name__)

_BACKOFF_S = (0.05, 1.0)
_CAPACITY = 2000


class _Entry(NamedTuple):
    subject: str
    body: bytes
    headers: dict[str, str]


class History:
    """Records of one writer ("gateway", "rayjob", ...). `instance` makes ids unique: the replica id.

    When NATS is away or slow, up to `capacity` records wait; then the oldest is dropped for each new one and counted.
    """

    def __init__(
        self,
        bus: Bus,
        writer: str,
        *,
        instance: str = "",
        cluster_uid: str = "",
        clock: Clock = SYSTEM,
        capacity: int = _CAPACITY,
    ) -> None:
        self._bus = bus
        self._writer = writer
        self._instance = instance or writer
        self._source = envelope.source(cluster_uid, writer)
        self._clock = clock
        self._capacity = capacity
        self._waiting: deque[_Entry] = deque()
        self._numbers = itertools.count(1)
        self._wanted = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()
        self._task: asyncio.Task[None] | None = None
        self.dropped = 0
        self.recorded = 0

    @property
    def waiting(self) -> int:
        """Records that are not stored yet."""
        return len(self._waiting)

    async def start(self) -> None:
        self._task = asyncio.create_task(self._drain(), name=f"history {self._writer}")

    def record(self, namespace: str, kind: str, name: str, body: Json, *, traceparent: str = "") -> None:
        """Queue one record. `body` needs "what"; "time" is set if missing. Never raises, never waits."""
        now = self._clock.now()
        address = HistoryAddress(self._writer, namespace, kind, name)
        entry: dict[str, Any] = {"time": envelope.rfc3339(now), **body}
        event_id = f"{self._instance}-{next(self._numbers)}"
        headers = envelope.history_headers(
            address,
            event_id,
            source=self._source,
            time=now,
            traceparent=traceparent,
        )
        headers["Nats-Msg-Id"] = event_id  # a retry after a lost answer is stored once
        try:
            data = orjson.dumps(entry, default=str)
        except (orjson.JSONEncodeError, TypeError):
            self.dropped += 1
            log.warning("history_not_json", subject=history_subject(*address))
            return
        if len(self._waiting) >= self._capacity:
            self._waiting.popleft()
            self.dropped += 1
        self._waiting.append(_Entry(history_subject(*address), data, headers))
        self._empty.clear()
        self._wanted.set()

    async def flush(self, timeout_s: float = 2.0) -> bool:
        """Wait until everything recorded so far is stored or given up; False if that took too long."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._empty.wait()
        except TimeoutError:
            return False
        return True

    async def close(self, timeout_s: float = 2.0) -> None:
        if self._task is None:
            return
        await self.flush(timeout_s)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._task = None

    async def _drain(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            while self._waiting:
                await self._store(self._waiting.popleft())
            self._empty.set()

    async def _store(self, entry: _Entry) -> None:
        pause = _BACKOFF_S[0]
        while True:
            try:
                await self._bus.publish(entry.subject, entry.body, entry.headers)
            except (Unavailable, BusTimeout):
                if len(self._waiting) >= self._capacity:
                    self.dropped += 1
                    return
                await asyncio.sleep(pause)
                pause = min(pause * 2, _BACKOFF_S[1])
            except BusError as error:
                self.dropped += 1
                log.warning("history_refused", subject=entry.subject, error=str(error))
                return
            else:
                self.recorded += 1
                return
