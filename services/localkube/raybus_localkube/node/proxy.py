"""The HTTP proxy on the host's loopback through which programs of this machine reach Services and pods.

It resolves names as a pod would (`http://<service>.<namespace>.svc.cluster.local:8265`), serves plain requests, WebSockets and CONNECT.
"""

from __future__ import annotations

import asyncio
import socket

from raybus_localkube.node import httphead, relay
from raybus_localkube.node.names import Names

HEAD_TIMEOUT_S = 30.0
CONNECTIONS_MAX = 1000


class Proxy:
    def __init__(self, names: Names) -> None:
        self._names = names
        self._open = 0
        self._turn = 0

    async def serve(self, listener: socket.socket) -> asyncio.Server:
        loop = asyncio.get_running_loop()
        return await loop.create_server(lambda: _Client(self), sock=listener)

    def enter(self) -> bool:
        if self._open >= CONNECTIONS_MAX:
            return False
        self._open += 1
        return True

    def leave(self) -> None:
        self._open -= 1

    async def connect(self, host: str, port: int) -> relay.End:
        """Raises LookupError for an unknown name, OSError when nobody answers."""
        addresses = self._names.search(host)
        if not addresses:
            raise LookupError(
                f"{host}: no such Service, or no ready pod behind it; use NAME.NAMESPACE.svc.{self._names.domain}"
            )
        self._turn += 1
        address = addresses[self._turn % len(addresses)]
        backends = self._names.backends(address, port)
        if backends is None:
            return await relay.connect(address, port)
        if not backends:
            raise ConnectionRefusedError(f"Service {host} has no ready pod for port {port}")
        return await relay.connect(*backends[self._turn % len(backends)])


class _Client(relay.End):
    """A client's connection: its head decides where the other end is."""

    def __init__(self, proxy: Proxy) -> None:
        super().__init__()
        self._proxy = proxy
        self._head = b""
        self._counted = False
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._counted = self._proxy.enter()
        if not self._counted:
            self.abort()
            return
        self._timer = asyncio.get_running_loop().call_later(HEAD_TIMEOUT_S, self.abort)
        assert self._transport is not None
        self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        if self._partner is not None:
            self._partner.write(data)
            return
        self._head += data
        if self._task is not None or b"\r\n\r\n" not in self._head:
            if len(self._head) > httphead.HEAD_MAX:
                self._refuse(431, "Request Header Fields Too Large", "the head of the request is too long")
            return
        assert self._transport is not None
        self._transport.pause_reading()
        self._task = asyncio.get_running_loop().create_task(self._meet())

    async def _meet(self) -> None:
        self._timer.cancel()
        head, separator, body = self._head.partition(b"\r\n\r\n")
        self._head = b""
        try:
            target = httphead.proxy_target(head + separator)
            partner = await self._proxy.connect(target.host, target.port)
        except httphead.BadRequest as error:
            self._refuse(400, "Bad Request", str(error))
            return
        except LookupError as error:
            self._refuse(502, "Bad Gateway", str(error.args[0]))
            return
        except OSError as error:
            self._refuse(502, "Bad Gateway", f"{target.host}:{target.port}: {error or type(error).__name__}")
            return
        if target.tunnel:
            self.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        partner.write(target.head + body)
        relay.pair(self, partner)

    def _refuse(self, code: int, reason: str, text: str) -> None:
        self.write(httphead.refusal(code, reason, text))
        self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._counted:
            self._timer.cancel()
            self._proxy.leave()
