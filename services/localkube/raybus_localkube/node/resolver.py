"""The pods' DNS server: UDP port 53 of the bridge's address."""

from __future__ import annotations

import asyncio
from typing import cast

from raybus_localkube.node import dns
from raybus_localkube.node.names import Names

PORT = 53


class Resolver(asyncio.DatagramProtocol):
    def __init__(self, names: Names) -> None:
        self._names = names

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str | int, int]) -> None:
        reply = dns.answer(data, self._names.lookup)
        if reply is not None:
            self._transport.sendto(reply, addr)


async def serve(names: Names, address: str) -> asyncio.DatagramTransport:
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(lambda: Resolver(names), local_addr=(address, PORT))
    return transport
