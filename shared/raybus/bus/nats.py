"""The port on a real NATS server: nats-py for the connection, JetStream's own API over it.

The library's pull and key-value watch are not used: after a server restart they are blind for many seconds. Of nats-py this
module needs publish, subscribe and request alone, so another client library would change this file and no other.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import nats.errors
import orjson
import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from raybus.bus import api
from raybus.bus.follow import NatsFollower
from raybus.bus.refusals import Refusals, refused, told_last, unreachable
from raybus.bus.transport import (
    BodyTooLarge,
    BusStats,
    BusTimeout,
    ConnectionCallback,
    Message,
    MessageCallback,
    NotAllowed,
    Refused,
    SettingsDiffer,
    SignalCallback,
    StreamConfig,
    StreamInfo,
    StreamMissing,
    Unavailable,
    WrongSequence,
    nothing,
)

log = structlog.get_logger(__name__)


def _is_news(record: logging.LogRecord) -> bool:
    """The library turns an open connection into one with TLS; asyncio then warns of its own streams each time a server closes one."""
    return not record.getMessage().startswith("returning true from eof_received()")


logging.getLogger("asyncio").addFilter(_is_news)

_RECONNECT_WAIT_S = 0.1
_REFUSED_WAIT_S = 2.0  # what a server refuses, it refuses again until somebody changes something
_PING_S = 15
_MISSED_PINGS = 2
_CLOSE_S = 5.0
_CANCELS = 3
_PENDING_BYTES = 128 << 20

_NO_MESSAGE = 10037
_NO_STREAM = 10059
_NAME_IN_USE = 10058
_WRONG_SEQUENCE = (10071, 10164)
_TOO_LARGE = 10054
_NO_ROOM = (10023, 10047)


class NatsBus:
    """One connection to NATS. `urls` as nats-py takes them; `name` is shown by the server's monitoring.

    `inbox_prefix` is where answers arrive: a user with narrow rights may subscribe to its own only.
    """

    def __init__(
        self,
        urls: str | Sequence[str],
        *,
        name: str = "raybus",
        inbox_prefix: str = "_INBOX",
        tls: ssl.SSLContext | None = None,
        nkeys_seed: str | None = None,
        nkeys_seed_text: str | None = None,
        credentials: str | None = None,
    ) -> None:
        self._urls = [urls] if isinstance(urls, str) else list(urls)
        self._options: dict[str, Any] = {"name": name, "inbox_prefix": inbox_prefix.encode()}
        given = (
            ("tls", tls),
            ("nkeys_seed", nkeys_seed),
            ("nkeys_seed_str", nkeys_seed_text),
            ("user_credentials", credentials),
        )
        for option, value in given:
            if value is not None:
                self._options[option] = value
        self._client = Client()
        self._callbacks: list[ConnectionCallback] = []
        self._followers: set[NatsFollower] = set()
        self._refusals = Refusals(
            f"user {user}" if (user := inbox_prefix.removeprefix("_INBOX_")) != inbox_prefix else name
        )
        self._trouble: Exception | None = None  # the last one while connecting
        self._closing = False
        self.stats = BusStats()

    @property
    def connected(self) -> bool:
        return self._client.is_connected

    @property
    def max_payload(self) -> int:
        return self._client.max_payload

    @property
    def trouble(self) -> str:
        """While there is no connection: why the last attempt failed, and what to do; empty before that."""
        return unreachable(self._urls, self._trouble) if self._trouble and not self.connected else ""

    @property
    def refusal(self) -> str:
        return self._refusals.recent

    async def connect(self, timeout_s: float = 30.0) -> None:
        """Connect, waiting for a server that is not there yet. Raises Unavailable after `timeout_s`."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._client.connect(
                    self._urls,
                    max_reconnect_attempts=-1,
                    # The library waits for whole seconds by default; its annotation says int, its code takes any number.
                    reconnect_time_wait=_RECONNECT_WAIT_S,  # type: ignore[arg-type]
                    ping_interval=_PING_S,
                    max_outstanding_pings=_MISSED_PINGS,
                    error_cb=self._error,
                    disconnected_cb=self._disconnected,
                    reconnected_cb=self._reconnected,
                    **self._options,
                )
        except TimeoutError as error:
            raise Unavailable(unreachable(self._urls, self._trouble)) from error
        except (nats.errors.Error, OSError) as error:
            raise Unavailable(unreachable(self._urls, error)) from error
        self.stats.certificate_ends = self._certificate_ends()

    def _certificate_ends(self) -> float | None:
        """The library keeps its transport to itself, and has no other word about the certificate."""
        writer: asyncio.StreamWriter | None = getattr(getattr(self._client, "_transport", None), "_io_writer", None)
        certificate = writer.get_extra_info("peercert") if writer else None
        return float(ssl.cert_time_to_seconds(certificate["notAfter"])) if certificate else None

    async def close(self) -> None:
        self._closing = True
        for follower in list(self._followers):
            await follower.close()
        await self._stop_reconnecting()
        # A connection that is just being lost may raise while it is closed; there is nothing left to do about it then. One
        # that was never begun, for want of credentials say, is asserted to have been.
        with contextlib.suppress(OSError, nats.errors.Error, TimeoutError, AssertionError):
            async with asyncio.timeout(_CLOSE_S):
                await self._client.close()

    async def _stop_reconnecting(self) -> None:
        """The library's close() cancels a reconnect once, and a cancellation that meets a connect may be lost: the connection
        would come back after it was closed.
        """
        self._client.options["allow_reconnect"] = False
        task: asyncio.Task[None] | None = getattr(self._client, "_reconnection_task", None)
        for _ in range(_CANCELS):
            if task is None or task.done():
                return
            task.cancel()
            await asyncio.wait([task], timeout=1.0)

    def on_connection(self, callback: ConnectionCallback) -> Callable[[], None]:
        self._callbacks.append(callback)

        def off() -> None:
            if callback in self._callbacks:
                self._callbacks.remove(callback)

        return off

    async def _error(self, error: Exception) -> None:
        if self._refusals.hear(error):
            return
        # The library reports each failed attempt to connect here; what it means is told by nats_disconnected.
        self._trouble = told_last(self._trouble, error)
        if isinstance(error, OSError):
            log.debug("nats_connect_failed", error=str(error))
        else:
            log.warning("nats_error", error=str(error) or repr(error))
        if refused(error):
            await asyncio.sleep(_REFUSED_WAIT_S)  # the library tries again when this returns

    async def _disconnected(self) -> None:
        if self._closing:  # as it was asked to be; no news to anybody
            return
        log.warning("nats_disconnected", urls=self._urls)
        self.stats.disconnects += 1
        self._tell(connected=False)

    async def _reconnected(self) -> None:
        log.info("nats_reconnected", url=self._client.connected_url.netloc if self._client.connected_url else "")
        self.stats.certificate_ends = self._certificate_ends()
        self._tell(connected=True)

    def _tell(self, *, connected: bool) -> None:
        for callback in list(self._callbacks):
            callback(connected)

    async def ensure_stream(self, config: StreamConfig) -> StreamInfo:
        wanted = api.stream_settings(config)
        try:
            answer = await self.api(api.stream_create(config.name), wanted, 5.0)
        except Refused as error:
            if error.code != _NAME_IN_USE:
                raise
            info = await self.api(api.stream_info(config.name), None, 5.0)
            found = info["config"]
            # What an administrator has set besides (placement, more replicas) stays as it is.
            replicas = max(int(found.get("num_replicas", 1)), config.replicas)
            wanted = {**found, **wanted, "num_replicas": replicas}
            wanted["metadata"] = {
                **(found.get("metadata") or {}),
                **config.metadata,
            }  # the server keeps some of its own there
            if wanted == found:
                return api.stream_state(info)
            try:
                answer = await self.api(api.stream_update(config.name), wanted, 5.0)
            except NotAllowed as refused:
                fields = ", ".join(sorted(field for field, value in wanted.items() if found.get(field) != value))
                raise SettingsDiffer(
                    f"stream {config.name} has other settings ({fields}): {refused}; `raybus provision` brings it to them"
                ) from None
        return api.stream_state(answer)

    async def stream_info(self, name: str, timeout_s: float = 2.0) -> StreamInfo:
        return api.stream_state(await self.api(api.stream_info(name), None, timeout_s))

    async def publish(
        self,
        subject: str,
        body: bytes,
        headers: Mapping[str, str] | None = None,
        *,
        expect_last_seq: int | None = None,
        ttl_s: int | None = None,
        timeout_s: float = 2.0,
    ) -> int:
        sent = dict(headers) if headers else {}
        if expect_last_seq is not None:
            sent["Nats-Expected-Last-Subject-Sequence"] = str(expect_last_seq)
        if ttl_s is not None:
            sent["Nats-TTL"] = f"{ttl_s}s"
        answer = await self._request(subject, body, sent or None, timeout_s)
        _raise_for_error(answer, subject)
        return int(answer["seq"])

    async def last(self, stream: str, subject: str, timeout_s: float = 2.0) -> Message | None:
        try:
            answer = await self.api(api.message_get(stream), {"last_by_subj": subject}, timeout_s)
        except Refused as error:
            if error.code == _NO_MESSAGE:
                return None
            raise
        found = answer["message"]
        return Message(
            found["subject"],
            base64.b64decode(found.get("data", "")),
            _headers(base64.b64decode(found.get("hdrs", ""))),
            int(found["seq"]),
            _epoch(found["time"]),
        )

    async def purge(self, stream: str, subject: str | None = None, timeout_s: float = 5.0) -> int:
        body = {"filter": subject} if subject else None
        return int((await self.api(api.stream_purge(stream), body, timeout_s))["purged"])

    async def follow(
        self,
        stream: str,
        subjects: Sequence[str],
        *,
        on_message: MessageCallback,
        on_caught_up: SignalCallback = nothing,
        on_gap: SignalCallback = nothing,
        headers_only: bool = False,
    ) -> NatsFollower:
        follower = NatsFollower(
            self,
            stream,
            tuple(subjects),
            on_message=on_message,
            on_caught_up=on_caught_up,
            on_gap=on_gap,
            headers_only=headers_only,
            on_close=self._followers.discard,
        )
        self._followers.add(follower)
        await follower.start()
        return follower

    def new_inbox(self) -> str:
        return self._client.new_inbox()

    async def subscribe(self, subject: str, callback: Callable[[Msg], Awaitable[None]]) -> Subscription:
        return await self._client.subscribe(subject, cb=callback, pending_bytes_limit=_PENDING_BYTES)

    async def send(self, subject: str, body: bytes, reply: str) -> None:
        """Publish without waiting for an answer; raises Unavailable when not connected."""
        if not self._client.is_connected:
            raise Unavailable("not connected to NATS")
        await self._client.publish(subject, body, reply=reply)

    async def api(self, subject: str, body: Mapping[str, Any] | None, timeout_s: float) -> dict[str, Any]:
        """One request to JetStream's API."""
        answer = await self._request(subject, orjson.dumps(body) if body is not None else b"", None, timeout_s)
        _raise_for_error(answer, subject)
        return answer

    async def _request(
        self,
        subject: str,
        body: bytes,
        headers: dict[str, str] | None,
        timeout_s: float,
    ) -> dict[str, Any]:
        # A disconnected client would keep the message and send it after its caller has given up.
        if not self._client.is_connected:
            raise Unavailable(f"not connected to NATS: {subject} was not sent")
        task = asyncio.current_task()
        cancelling = task.cancelling() if task else 0
        scope = self._refusals.asking(subject)
        try:
            async with scope:
                message = await self._client.request(subject, body, timeout=timeout_s, headers=headers)
        except nats.errors.NoRespondersError as error:
            raise Unavailable(f"no stream takes {subject}, or JetStream is not ready") from error
        except nats.errors.MaxPayloadError as error:
            raise BodyTooLarge(f"{subject}: {len(body)} bytes, the server takes {self.max_payload}") from error
        except (nats.errors.TimeoutError, TimeoutError) as error:
            if scope.expired():
                raise self._refusals.error(subject) from None
            raise BusTimeout(f"no answer to {subject} within {timeout_s} s") from error
        except (nats.errors.Error, OSError) as error:
            raise BusTimeout(f"{subject}: the connection failed ({error!r})") from error
        finally:
            self._refusals.answered(subject, scope)
            # The library waits with asyncio.wait_for, which in Python 3.11 forgets a cancellation that comes with the answer.
            if task and task.cancelling() > cancelling:
                raise asyncio.CancelledError
        try:
            answer = orjson.loads(message.data)
        except orjson.JSONDecodeError as error:
            raise Refused(f"{subject}: the answer is not JSON") from error
        return answer if isinstance(answer, dict) else {}


def _raise_for_error(answer: Mapping[str, Any], subject: str) -> None:
    error = answer.get("error")
    if not error:
        return
    code, text = int(error.get("err_code", 0)), f"{subject}: {error.get('description', 'refused')}"
    if code in _WRONG_SEQUENCE:
        raise WrongSequence(text)
    if code == _NO_STREAM:
        raise StreamMissing(text)
    if code == _TOO_LARGE:
        raise BodyTooLarge(text)
    if code in _NO_ROOM:
        text += (
            ": NATS has no room left; raise its max_file_store (nats.jetstream.maxFileStore) and the size of its disk"
        )
    if error.get("code") == 503:
        raise Unavailable(text)
    raise Refused(text, code)


def _headers(block: bytes) -> dict[str, str]:
    """The header block of a stored message: a version line, then `name: value` lines."""
    lines = block.decode(errors="replace").split("\r\n")[1:]
    pairs = (line.partition(":") for line in lines if line)
    return {name: value.strip() for name, _, value in pairs}


def _epoch(time: str) -> float:
    """RFC 3339 with up to nine digits, as seconds since the epoch."""
    seconds, _, rest = time.partition(".")
    whole = datetime.fromisoformat(f"{seconds.rstrip('Z')}+00:00").timestamp()
    digits = rest.rstrip("Z")
    return whole + (int(digits) / 10 ** len(digits) if digits.isdigit() else 0.0)
