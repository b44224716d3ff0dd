"""Keeping a session alive, and knowing for how long it may be believed in. Part of raybus.bus.leases."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from raybus.bus.assignment import DRAINING, KV_DELETE, KV_OPERATION, is_gone
from raybus.bus.clock import Clock
from raybus.bus.streams import bucket_stream
from raybus.bus.subjects import lease_subject
from raybus.bus.transport import Bus, BusError, Message, WrongSequence

log = structlog.get_logger(__name__)

_RETRY_S = (0.1, 1.0)
_GONE_TTL_S = 60  # how long a deleted session's marker stays


class Bucket:
    """Compare-and-set writes and leader reads of one lease bucket."""

    def __init__(self, bus: Bus, name: str, ttl_s: int) -> None:
        self.bus = bus
        self.name = name
        self.stream = bucket_stream(name)
        self.ttl_s = ttl_s
        self._timeout_s = min(1.0, ttl_s / 4)

    async def put(
        self,
        key: str,
        body: bytes,
        expected: int,
        headers: dict[str, str] | None = None,
        ttl_s: int | None = None,
    ) -> int:
        """Write if the key's last sequence is `expected`; answers the new one. Raises as Bus.publish."""
        return await self.bus.publish(
            lease_subject(self.name, key),
            body,
            headers,
            expect_last_seq=expected,
            ttl_s=ttl_s,
            timeout_s=self._timeout_s,
        )

    async def delete(self, key: str, expected: int, ttl_s: int | None = None) -> int:
        return await self.put(key, b"", expected, {KV_OPERATION: KV_DELETE}, ttl_s)

    async def last(self, key: str) -> Message | None:
        return await self.bus.last(self.stream, lease_subject(self.name, key), self._timeout_s)


class SessionKeeper:
    """Renews `session.<replica>` and counts its validity from before each renewal left, on the own monotonic clock.

    `on_lapse(why)` comes as soon as the session must not be believed in any more, also if it is renewed right after;
    `on_renewed` after each renewal.
    """

    def __init__(
        self,
        bucket: Bucket,
        replica: str,
        body: bytes,
        clock: Clock,
        *,
        on_renewed: Callable[[], None],
        on_lapse: Callable[[str], None],
    ) -> None:
        self._bucket = bucket
        self._key = f"session.{replica}"
        self._body = body
        self._clock = clock
        self._on_renewed = on_renewed
        self._on_lapse = on_lapse
        self._until = float("-inf")
        self._seq = 0
        self._trouble = ""
        self._draining = False
        self._now = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._off: Callable[[], None] | None = None

    @property
    def valid(self) -> bool:
        return self._clock.monotonic() < self._until

    @property
    def trouble(self) -> str:
        """Why the last renewal failed; empty if it did not."""
        return self._trouble

    @property
    def written(self) -> bool:
        """Whether this session has ever been stored."""
        return self._seq > 0

    def start(self) -> None:
        self._off = self._bucket.bus.on_connection(self._connection)
        self._task = asyncio.create_task(self._renewing(), name=f"renew {self._bucket.name}")

    def drain(self) -> None:
        """Tell the others, with the next renewal, not to count on this replica; that renewal is now."""
        self._draining = True
        self._now.set()

    def lost(self, why: str) -> None:
        """The session is known to be gone: stop believing in it and make it anew at once."""
        self._until = float("-inf")
        self._on_lapse(why)
        self._now.set()

    async def stop(self) -> None:
        """Stop renewing; the session is believed in until its validity ends or end() deletes it."""
        if self._timer:
            self._timer.cancel()
        if self._off:
            self._off()
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def end(self) -> None:
        """Delete the session, so that the others need not wait for its time to live."""
        await self.stop()
        self._until = float("-inf")
        try:
            await self._bucket.delete(self._key, self._seq, _GONE_TTL_S)
        except BusError as error:
            log.info("session_not_deleted", bucket=self._bucket.name, error=str(error))

    def _connection(self, connected: bool) -> None:
        if connected:
            self._now.set()

    async def _renewing(self) -> None:
        failures = 0
        while True:
            self._now.clear()
            try:
                await self._renew()
                failures, pause = 0, self._bucket.ttl_s / 4
                self._trouble = ""
            except BusError as error:
                pause = min(_RETRY_S[0] * 2.0**failures, _RETRY_S[1])
                failures = min(failures + 1, 8)
                self._trouble = str(error)
                log.info("lease_renewal_failed", bucket=self._bucket.name, error=self._trouble)
            try:
                async with asyncio.timeout(pause):
                    await self._now.wait()
            except TimeoutError:
                continue

    async def _renew(self) -> None:
        left = self._clock.monotonic()
        try:
            self._seq = await self._put()
        except WrongSequence:
            await self._relearn()
            left = self._clock.monotonic()
            self._seq = await self._put()
        if not self.valid:
            self._on_lapse("renewed too late")  # however short: somebody else may have owned something meanwhile
        self._until = left + self._bucket.ttl_s - self._bucket.ttl_s / 6
        self._arm()
        self._on_renewed()

    async def _put(self) -> int:
        headers = {DRAINING: "true"} if self._draining else None
        return await self._bucket.put(self._key, self._body, self._seq, headers, self._bucket.ttl_s)

    async def _relearn(self) -> None:
        """The session is not as we left it: a renewal whose answer was lost, or it expired, or the bucket is a new one."""
        last = await self._bucket.last(self._key)
        self._seq = last.seq if last else 0
        if last is None or is_gone(last):
            self._until = float("-inf")
            self._on_lapse("session gone")

    def _arm(self) -> None:
        if self._timer:
            self._timer.cancel()
        delay = max(self._until - self._clock.monotonic(), 0.0)
        self._timer = asyncio.get_running_loop().call_later(delay, self._check)

    def _check(self) -> None:
        if self.valid:
            self._arm()
        else:
            self._on_lapse("not renewed in time")
