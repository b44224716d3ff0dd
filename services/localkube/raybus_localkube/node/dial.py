"""Connections from inside the sandbox to the host's network (to the API server), which the sandbox itself does not see.

The outer process stays in the host's network namespace, connects on request, and passes the connected socket in. One request per
packet on a SOCK_SEQPACKET pair: {"id", "host", "port"} -> {"id"} with the descriptor, or {"id", "error"}.
"""

from __future__ import annotations

import asyncio
import contextlib
import selectors
import socket
import time
from typing import Any

import orjson

from raybus_localkube.node import relay

PACKET = 4096
TIMEOUT_S = 5.0
PENDING_MAX = 256


class HostDialer:
    """The outer side. `serve` is called when the channel is readable; connections finish in `poll`."""

    def __init__(self, channel: socket.socket, selector: selectors.BaseSelector) -> None:
        self._channel = channel
        self._selector = selector
        self._pending: dict[socket.socket, tuple[int, float]] = {}

    def serve(self) -> None:
        data = self._channel.recv(PACKET)
        if not data:
            self._selector.unregister(self._channel)
            return
        request = orjson.loads(data)
        if len(self._pending) >= PENDING_MAX:
            self._reply(request["id"], error="too many connections are being made")
            return
        family = socket.AF_INET6 if ":" in request["host"] else socket.AF_INET
        connection = socket.socket(family, socket.SOCK_STREAM)
        connection.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            connection.connect_ex((request["host"], request["port"]))
        self._pending[connection] = (request["id"], time.monotonic() + TIMEOUT_S)
        self._selector.register(connection, selectors.EVENT_WRITE, self._connected)

    def _connected(self, connection: Any) -> None:
        number, _ = self._pending.pop(connection)
        self._selector.unregister(connection)
        code = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._reply(number, error=OSError(code, "").strerror or f"error {code}")
        else:
            with contextlib.suppress(OSError):
                socket.send_fds(self._channel, [orjson.dumps({"id": number})], [connection.fileno()])
        connection.close()

    def expire(self) -> float | None:
        """Give up connections that take too long; seconds until the next one would, None without any."""
        now = time.monotonic()
        for connection, (number, deadline) in list(self._pending.items()):
            if deadline <= now:
                del self._pending[connection]
                self._selector.unregister(connection)
                connection.close()
                self._reply(number, error="timed out")
        return min((deadline - now for _, deadline in self._pending.values()), default=None)

    def _reply(self, number: int, *, error: str) -> None:
        with contextlib.suppress(OSError):
            self._channel.send(orjson.dumps({"id": number, "error": error}))


class Dialer:
    """The inner side: `await dial(host, port)`; host is an address."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._number = 0
        self._waiting: dict[int, asyncio.Future[socket.socket]] = {}
        channel.setblocking(False)
        asyncio.get_running_loop().add_reader(channel, self._on_packet)

    async def dial(self, host: str, port: int) -> relay.End:
        """Raises OSError."""
        self._number += 1
        number, answer = self._number, asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            async with asyncio.timeout(TIMEOUT_S + 1):
                self._channel.send(orjson.dumps({"id": number, "host": host, "port": port}))
                connection = await answer
        finally:
            self._waiting.pop(number, None)
        return await relay.adopt(connection)

    def _on_packet(self) -> None:
        data, descriptors, _, _ = socket.recv_fds(self._channel, PACKET, 1)
        if not data:
            asyncio.get_running_loop().remove_reader(self._channel)
            return
        message = orjson.loads(data)
        connection = socket.socket(fileno=descriptors[0]) if descriptors else None
        waiting = self._waiting.get(message["id"])
        if waiting is None or waiting.done():
            if connection is not None:
                connection.close()
        elif connection is None:
            waiting.set_exception(ConnectionError(message["error"]))
        else:
            connection.setblocking(False)
            waiting.set_result(connection)
