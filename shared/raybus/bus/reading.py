"""Reading what a stream holds, once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from raybus.bus.transport import Bus, BusTimeout, Message


async def read_last(
    bus: Bus,
    stream: str,
    subjects: Sequence[str],
    *,
    headers_only: bool = False,
    timeout_s: float = 60.0,
) -> list[Message]:
    """The last message of each subject under the filters. Raises BusTimeout if that is not delivered in time."""
    found: dict[str, Message] = {}
    done = asyncio.Event()

    def take(message: Message) -> None:
        found[message.subject] = message

    follower = await bus.follow(
        stream,
        subjects,
        on_message=take,
        on_caught_up=done.set,
        on_gap=found.clear,
        headers_only=headers_only,
    )
    try:
        async with asyncio.timeout(timeout_s):
            await done.wait()
    except TimeoutError as error:
        raise BusTimeout(f"{stream} was not read within {timeout_s} s") from error
    finally:
        await follower.close()
    return sorted(found.values(), key=lambda message: message.seq)
