"""Cluster IPs: every Service's virtual address is an address of the node, and connections to its ports go to a ready pod."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable

from raybus_localkube.node import network, relay
from raybus_localkube.node.names import Names

ATTEMPTS = 3
BACKLOG = 128

Connect = Callable[[], Awaitable[relay.End]]


class VirtualAddresses:
    """Listens on (address, port) of Services. `follow` brings the listeners in line with the table of names."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._fixed: dict[tuple[str, int], Connect] = {}
        self._addresses: set[str] = set()
        self._servers: dict[tuple[str, int], asyncio.Server] = {}
        self._turn = 0
        self._lock = asyncio.Lock()

    async def fix(self, address: str, port: int, connect: Connect) -> None:
        """Let this address and port always lead to where `connect` goes (the API server, which is not a pod)."""
        self._fixed[(address, port)] = connect
        await self.follow()

    async def follow(self) -> None:
        async with self._lock:
            wanted = {(vip, port) for vip, ports in self._names.virtual_addresses().items() for port in ports}
            wanted |= self._fixed.keys()
            for key in self._servers.keys() - wanted:
                self._servers.pop(key).close()
            addresses = {address for address, _ in wanted}
            for address in self._addresses - addresses:
                with contextlib.suppress(OSError):
                    network.delete_virtual_address(address)
            for address in addresses - self._addresses:
                network.add_virtual_address(address)
            self._addresses = addresses
            for key in wanted - self._servers.keys():
                self._servers[key] = await self._listen(*key)

    async def _listen(self, address: str, port: int) -> asyncio.Server:
        loop = asyncio.get_running_loop()
        listener = socket.create_server((address, port), backlog=BACKLOG)
        return await loop.create_server(lambda: _Guest(lambda: self._connect(address, port)), sock=listener)

    async def _connect(self, address: str, port: int) -> relay.End:
        fixed = self._fixed.get((address, port))
        if fixed is not None:
            return await fixed()
        backends = self._names.backends(address, port) or ()
        failure: OSError = ConnectionRefusedError("no ready pod")
        for _ in range(min(ATTEMPTS, len(backends))):
            self._turn += 1
            try:
                return await relay.connect(*backends[self._turn % len(backends)])
            except OSError as error:
                failure = error
        raise failure


class _Guest(relay.End):
    """An accepted connection: finds its backend, then is one end of the pair."""

    def __init__(self, connect: Connect) -> None:
        super().__init__()
        self._connect = connect

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._task = asyncio.get_running_loop().create_task(self._meet())

    async def _meet(self) -> None:
        try:
            host = await self._connect()
        except OSError:
            self.abort()  # a reset, as from an address without a listener
            return
        relay.pair(self, host)
