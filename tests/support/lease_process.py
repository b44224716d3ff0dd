"""A replica with leases as a process of its own, to be frozen and killed: says each gain and loss on a line.

python lease_process.py URL REPLICA TTL PARTITIONS
"""

from __future__ import annotations

import asyncio
import sys

from raybus.bus.leases import Leases
from raybus.bus.nats import NatsBus


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


async def main(url: str, replica: str, ttl_s: int, partitions: int) -> None:
    bus = NatsBus(url)
    await bus.connect()

    async def gain(part: int) -> None:
        say("gain", part)

    async def lose(part: int, graceful: bool) -> None:
        say("release" if graceful else "fence", part)

    leases = Leases(bus, "lease-rayjob", replica, partitions, session=b"{}", on_gain=gain, on_lose=lose, ttl_s=ttl_s)
    await leases.start()
    say("started")
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
