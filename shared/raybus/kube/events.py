"""Events on objects, as `kubectl describe` shows them: recorded at once, sent in the background, never in anybody's way."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import heapq
import itertools
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Literal, Self

from raybus.domain import kinds
from raybus.kube import errors
from raybus.kube.client import KubeClient
from raybus.kube.gate import Lane
from raybus.kube.series import WORD_MAX, EventKey, Series, SeriesTable, cut, event_body, reference

QUEUE_MAX = 1000
ATTEMPTS = 3
RETRY_S = 1.0
SEND_TIMEOUT_S = 15.0
FLUSH_S = 2.0


class EventRecorder:
    """`async with EventRecorder(client, "raycluster-controller", "raycluster-controller-host1") as events`.

    record() never waits and never fails: beyond 1000 unsent events new ones are dropped and counted in `dropped`, as are those
    that the server refuses. Leaving the block sends what is queued, for two seconds at most.
    """

    def __init__(
        self,
        client: KubeClient,
        controller: str,
        instance: str,
        *,
        clock: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC),
    ) -> None:
        self._client = client
        self._controller = cut(controller, WORD_MAX)
        self._instance = cut(instance, WORD_MAX)
        self._clock = clock
        self._table = SeriesTable()
        self._queue: list[tuple[float, int, Series, int]] = []  # due, order, what, attempt
        self._order = itertools.count()
        self._added = asyncio.Event()
        self._closing = False
        self._task: asyncio.Task[None] | None = None
        self.sent = 0
        self.dropped = 0
        self.last_error = ""

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run(), name="event-recorder")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing = True
        self._added.set()
        task = self._task
        if task is None:
            return
        await asyncio.wait((task,), timeout=FLUSH_S)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        self.dropped += len(self._queue)
        self._queue.clear()

    def record(
        self,
        regarding: Mapping[str, Any],
        type: Literal["Normal", "Warning"],  # noqa: A002 - the field's name in Kubernetes
        reason: str,
        action: str,
        note: str,
    ) -> None:
        """Something happened to `regarding` (an object, or a reference to one)."""
        now = self._clock()
        target = reference(regarding)
        key = EventKey(
            self._controller, self._instance, type, cut(reason, WORD_MAX), cut(action, WORD_MAX), tuple(target.values())
        )
        name = f"{target.get('name', '')[:200]}.{int(now.timestamp() * 1e6):x}{next(self._order) & 0xFFF:03x}"
        namespace = target.get("namespace", "default")
        body = event_body(key, target, note, name=name, namespace=namespace, now=now)
        series, delay_s = self._table.observe(key, body, now)
        if delay_s is None:
            return
        if len(self._queue) >= QUEUE_MAX:
            series.queued = False
            self.dropped += 1
            return
        self._push(series, delay_s, attempt=1)

    def _push(self, series: Series, delay_s: float, attempt: int) -> None:
        due = asyncio.get_running_loop().time() + delay_s
        heapq.heappush(self._queue, (due, next(self._order), series, attempt))
        self._added.set()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while self._queue or not self._closing:
            self._added.clear()
            wait_s = self._queue[0][0] - loop.time() if self._queue else None
            if wait_s is not None and (wait_s <= 0 or self._closing):
                _, _, series, attempt = heapq.heappop(self._queue)
                await self._send(series, attempt)
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._added.wait()

    async def _send(self, series: Series, attempt: int) -> None:
        count = series.count
        series.queued = False  # what happens from now on is sent by a later write
        meta = series.body["metadata"]
        try:
            if series.created:
                await self._client.merge_patch(
                    kinds.EVENT,
                    meta["namespace"],
                    meta["name"],
                    series.series(),
                    timeout_s=SEND_TIMEOUT_S,
                    lane=Lane.EVENT,
                )
            else:
                await self._client.create(
                    kinds.EVENT, series.create_body(), timeout_s=SEND_TIMEOUT_S, lane=Lane.EVENT
                )  # fmt: skip
        except errors.AlreadyExists:
            pass  # an earlier attempt arrived, its answer did not
        except errors.KubeError as error:
            self._failed(series, error, attempt)
            return
        series.written = count
        self.sent += 1

    def _failed(self, series: Series, error: errors.KubeError, attempt: int) -> None:
        self.last_error = str(error)
        useless = 400 <= error.code < 500 and not isinstance(error, errors.TooManyRequests)
        if useless or attempt >= ATTEMPTS or series.queued:
            self.dropped += 1
            return
        series.queued = True
        self._push(series, error.retry_after_s or RETRY_S * attempt, attempt + 1)
