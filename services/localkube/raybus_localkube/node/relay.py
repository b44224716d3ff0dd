"""Joins two TCP connections: what comes from one goes to the other, with back pressure and half closes."""

from __future__ import annotations

import asyncio
import socket
from typing import cast

CONNECT_TIMEOUT_S = 5.0
BUFFER_MAX = 256 * 1024


class End(asyncio.Protocol):
    """One side of a pair. Until it has a partner it does not read."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._partner: End | None = None
        self._finished = False
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=BUFFER_MAX)
        self._transport.pause_reading()

    def join(self, partner: End) -> None:
        """Begin to pass data; call it on both ends."""
        self._partner = partner
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def data_received(self, data: bytes) -> None:
        if self._partner is not None:
            self._partner.write(data)

    def eof_received(self) -> bool:
        self._finished = True
        if self._partner is not None:
            self._partner.finish()
        return True  # the other direction may go on

    def finish(self) -> None:
        """No more will be written to this end."""
        if self._transport is None or self._transport.is_closing():
            return
        if self._finished:
            self._transport.close()
        elif self._transport.can_write_eof():
            self._transport.write_eof()

    def pause_writing(self) -> None:
        if self._partner is not None:
            self._partner.read(going_on=False)

    def resume_writing(self) -> None:
        if self._partner is not None:
            self._partner.read(going_on=True)

    def read(self, *, going_on: bool) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if going_on:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 -- asyncio's signature
        if not self.closed.done():
            self.closed.set_result(None)
        if self._partner is not None:
            self._partner.close()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


async def connect(address: str, port: int, timeout_s: float = CONNECT_TIMEOUT_S) -> End:
    """A connection to a numeric address. Raises OSError (TimeoutError too)."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(timeout_s):
        _, end = await loop.create_connection(End, address, port)
    return end


async def adopt(connection: socket.socket) -> End:
    """An End for a socket that is connected already."""
    loop = asyncio.get_running_loop()
    _, end = await loop.create_connection(End, sock=connection)
    return end


def pair(one: End, other: End) -> None:
    one.join(other)
    other.join(one)
