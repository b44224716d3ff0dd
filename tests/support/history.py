"""Reading RAYHIST, as a user's own subscriber would."""

from __future__ import annotations

import asyncio
from typing import Any

import nats
import nats.errors
import orjson

from support.local import Local


def actions_of(local: Local) -> list[dict[str, Any]]:
    """All recorded actions, oldest first."""
    return [each for each in asyncio.run(_read(local)) if each.get("what") == "action"]


async def _read(local: Local) -> list[dict[str, Any]]:
    client = await nats.connect(local.nats_url, nkeys_seed=local.nkey_file)
    found: list[dict[str, Any]] = []
    try:
        subscription = await client.jetstream().subscribe("ray.hist.>", ordered_consumer=True)
        while True:
            try:
                message = await subscription.next_msg(timeout=2)
            except nats.errors.TimeoutError:
                return found
            found.append(orjson.loads(message.data))
    finally:
        await client.close()
