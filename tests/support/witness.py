"""What happened, as others saw it: who owned which partition and when, every recorded action, every request to an API server."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

import nats
import nats.errors
import orjson
from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig

UNACKED: dict[str, Any] = {"ack_policy": AckPolicy.NONE}
# Status writes and events come again when something new is to be said; these must not.
ONCE = ("Create", "Delete", "Submit")


class Handovers:
    """Owners of the partitions of one controller, from now on. `gaps` are the seconds that partitions had no owner."""

    def __init__(self, controller: str) -> None:
        self._bucket = f"lease-{controller}"
        self.owners: dict[str, str] = {}
        self.gaps: list[float] = []
        self._free_since: dict[str, float] = {}

    async def follow(self, client: nats.NATS) -> None:
        """Until the client is closed."""
        await client.jetstream().subscribe(
            f"$KV.{self._bucket}.part.*", config=ConsumerConfig(**UNACKED), cb=self._seen
        )

    async def _seen(self, message: Msg) -> None:
        part = message.subject.rpartition(".")[2]
        if message.data:
            self.owners[part] = orjson.loads(message.data)["replica"]
            if since := self._free_since.pop(part, None):
                self.gaps.append(time.monotonic() - since)
        else:
            self.owners.pop(part, None)
            self._free_since[part] = time.monotonic()


async def history(client: nats.NATS) -> list[tuple[str, dict[str, Any]]]:
    """Subject and body of everything recorded so far, oldest first."""
    stream = client.jetstream()
    count = (await stream.stream_info("RAYHIST")).state.messages
    subscription = await stream.subscribe("ray.hist.>", config=ConsumerConfig(**UNACKED))
    found = []
    async with asyncio.timeout(30):
        while len(found) < count:
            message = await subscription.next_msg(timeout=10)
            found.append((message.subject, orjson.loads(message.data)))
    await subscription.unsubscribe()
    return found


def done_twice(
    records: list[tuple[str, dict[str, Any]]], namespace: str, uids: Mapping[tuple[str, str], set[str]]
) -> list[str]:
    """What was created, deleted or submitted more often than there were objects of that name, or in vain.

    `uids` has, by kind and name, each uid that was ever seen under it.
    """
    done: Counter[tuple[str, str]] = Counter()
    vain = []
    for subject, body in records:
        if body.get("what") != "action" or not body["class"].startswith(ONCE) or subject.split(".")[3] != namespace:
            continue
        if body["result"] == "done":
            done[body["class"], body.get("target", "")] += 1
        else:
            vain.append(f"{body['class']} {body.get('target')}: {body['result']} {body['message']}")
    often = [
        f"{what} {target}: {count} times"
        for (what, target), count in done.items()
        if count > len(uids.get((target.partition("/")[0], target.partition("/")[2]), {1}))
    ]
    return often + vain


def repeated(audit: list[dict[str, Any]], namespace: str, uids: Mapping[tuple[str, str], set[str]]) -> list[str]:
    """Raybus' creations that were refused, since the object was there already, and deletions beyond one for each object."""
    refused = []
    deleted: Counter[tuple[str, str]] = Counter()
    for each in audit:
        about = each.get("objectRef") or {}
        ours = each["stage"] == "ResponseComplete" and each.get("userAgent", "").startswith("raybus-")
        if not ours or about.get("namespace") != namespace or about.get("resource") == "events":
            continue
        code = each["responseStatus"]["code"]
        if each["verb"] == "create" and code != 201:
            refused.append(f"create {about['resource']} {code}")
        if each["verb"] == "delete":
            deleted[about["resource"], about["name"]] += 1
    known = {(f"{kind.lower()}s", name): len(seen) for (kind, name), seen in uids.items()}
    return refused + [
        f"delete {resource}/{name}: {count} times"
        for (resource, name), count in deleted.items()
        if count > known.get((resource, name), 1)
    ]
