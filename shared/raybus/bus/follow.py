"""Following a stream on a real server: an ephemeral last-per-subject pull consumer that is made anew whenever it may have
missed something.

One pull request is open at a time. The server's heartbeat tells a living consumer from a lost one; a reconnect, a status that
ends the consumer or a hole in the consumer's sequence reads everything again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import nats.errors
import orjson
import structlog
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from raybus.bus import api
from raybus.bus.transport import BusError, Message, MessageCallback, SignalCallback

if TYPE_CHECKING:
    from raybus.bus.nats import NatsBus

log = structlog.get_logger(__name__)

_SECOND = 1_000_000_000
_BATCH = 256
_BATCH_BYTES = 32 << 20
_EXPIRES_S = 60.0
_HEARTBEAT_S = 10.0
_INACTIVE_S = 30.0
_API_TIMEOUT_S = 1.0
_BACKOFF_S = (0.05, 0.5)


class NatsFollower:
    """See Bus.follow. Made by NatsBus alone."""

    def __init__(
        self,
        bus: NatsBus,
        stream: str,
        subjects: tuple[str, ...],
        *,
        on_message: MessageCallback,
        on_caught_up: SignalCallback,
        on_gap: SignalCallback,
        headers_only: bool,
        on_close: Callable[[NatsFollower], None],
    ) -> None:
        self._bus = bus
        self._stream = stream
        self._subjects = subjects
        self._on_message = on_message
        self._on_caught_up = on_caught_up
        self._on_gap = on_gap
        self._headers_only = headers_only
        self._on_close = on_close
        self._off: Callable[[], None] | None = None
        self._subscription: Subscription | None = None
        self._maker: asyncio.Task[None] | None = None
        self._watchdog: asyncio.TimerHandle | None = None
        self._wanted = asyncio.Event()
        self._consumer = ""  # empty: nothing that arrives counts
        self._round = 0  # of the consumer; in the inbox of its pull requests
        self._next = 1  # consumer sequence of the next message
        self._open = 0  # messages that the open pull request may still bring
        self._heard = 0.0  # loop time of the last sign of life
        self._failures = 0  # consumers in a row that could not be made or ended before they brought anything
        self._caught_up = False
        self._closed = False

    @property
    def caught_up(self) -> bool:
        return self._caught_up

    async def start(self) -> None:
        self._inbox = self._bus.new_inbox()
        self._off = self._bus.on_connection(self._connection)
        self._wanted.set()
        self._maker = asyncio.create_task(self._make(), name=f"follow {self._stream}")

    def restart(self, why: str = "asked") -> None:
        if self._closed:
            return
        self._consumer = ""
        self._caught_up = False
        if self._round:
            self._bus.stats.rereads[why] += 1
            self._on_gap()
        self._wanted.set()

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._consumer = ""
        self._on_close(self)
        if self._off:
            self._off()
        if self._watchdog:
            self._watchdog.cancel()
        if self._maker:
            self._maker.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._maker
        if self._subscription:
            # Without interest in the inbox the server drops the consumer by itself; no right to delete it is needed.
            with contextlib.suppress(nats.errors.Error, OSError):
                await self._subscription.unsubscribe()

    def _connection(self, connected: bool) -> None:
        if connected:
            self._failures = 0
            self.restart("reconnect")

    async def _make(self) -> None:
        """Make a consumer each time one is wanted, for as long as it takes."""
        while True:
            await self._wanted.wait()
            if self._failures:
                await asyncio.sleep(min(_BACKOFF_S[0] * 2.0**self._failures, _BACKOFF_S[1]))
            try:
                await self._create()
            except (BusError, nats.errors.Error, OSError) as error:
                self._failures += 1
                log.debug("follow_retry", stream=self._stream, error=str(error))

    async def _create(self) -> None:
        if self._subscription is None:
            self._subscription = await self._bus.subscribe(f"{self._inbox}.*", self._receive)
        self._wanted.clear()
        try:
            answer = await self._bus.api(
                api.consumer_create(self._stream),
                {"stream_name": self._stream, "config": self._config()},
                _API_TIMEOUT_S,
            )
        except BaseException:
            self._wanted.set()
            raise
        if self._wanted.is_set():  # a reconnect came in between: this consumer may be gone
            return
        self._round += 1
        self._consumer, self._next, self._open = answer["name"], 1, 0
        if not answer.get("num_pending"):
            self._catch_up()
        await self._pull()
        self._watch()

    def _config(self) -> dict[str, Any]:
        return {
            "deliver_policy": "last_per_subject",
            "ack_policy": "none",
            "filter_subjects": list(self._subjects),
            "headers_only": self._headers_only,
            "mem_storage": True,
            "num_replicas": 1,
            "inactive_threshold": int(_INACTIVE_S * _SECOND),
        }

    async def _pull(self) -> None:
        self._open = _BATCH
        self._heard = asyncio.get_running_loop().time()
        request = {
            "batch": _BATCH,
            "max_bytes": _BATCH_BYTES,
            "expires": int(_EXPIRES_S * _SECOND),
            "idle_heartbeat": int(_HEARTBEAT_S * _SECOND),
        }
        # Not connected any more: the reconnect makes a new consumer and asks for everything again.
        with contextlib.suppress(BusError, nats.errors.Error, OSError):
            await self._bus.send(
                api.consumer_next(self._stream, self._consumer),
                orjson.dumps(request),
                reply=f"{self._inbox}.{self._round}",
            )

    def _watch(self) -> None:
        """Look again when two heartbeats are due; woken as seldom as that, not per message."""
        loop = asyncio.get_running_loop()
        if self._watchdog:
            self._watchdog.cancel()
        due = self._heard + 2 * _HEARTBEAT_S
        if loop.time() >= due:
            if self._bus.connected and self._consumer:
                log.warning("follow_lost_consumer", stream=self._stream)
                self.restart("silence")
            due = loop.time() + 2 * _HEARTBEAT_S
        self._watchdog = loop.call_at(due, self._watch)

    async def _receive(self, message: Msg) -> None:
        headers = message.headers or {}
        status = headers.get("Status")
        if status is not None and not message.data:
            if message.subject == f"{self._inbox}.{self._round}" and self._consumer:
                await self._status(status, headers.get("Description", ""))
            return
        self._heard = asyncio.get_running_loop().time()
        tokens = message.reply.split(".")
        if len(tokens) > 9:  # with domain and account
            del tokens[2:4]
        if len(tokens) < 9 or tokens[3] != self._consumer:
            return  # of an earlier consumer
        if int(tokens[6]) != self._next:
            log.warning("follow_hole", stream=self._stream, expected=self._next, got=tokens[6])
            self.restart("hole")
            return
        self._next += 1
        self._open -= 1
        self._failures = 0
        received = Message(message.subject, message.data, headers, int(tokens[5]), int(tokens[7]) / _SECOND)
        try:
            self._on_message(received)
        except Exception:  # one message that its reader cannot take must not end the following of all others
            log.exception("follow_callback_failed", subject=message.subject)
        if tokens[8] == "0":
            self._catch_up()
        if self._open <= 0 and self._consumer:
            await self._pull()

    async def _status(self, status: str, description: str) -> None:
        self._heard = asyncio.get_running_loop().time()
        if status == "100":
            self._failures = 0
            self._catch_up()  # the server is idle: there is nothing left to deliver
            return
        self._open = 0
        if status in ("404", "408") or (
            status == "409" and description.startswith(("Message Size", "Batch Completed"))
        ):
            await self._pull()
            return
        self._failures += 1
        log.info("follow_ended", stream=self._stream, status=status, description=description)
        self.restart("ended")

    def _catch_up(self) -> None:
        if not self._caught_up:
            self._caught_up = True
            self._on_caught_up()
