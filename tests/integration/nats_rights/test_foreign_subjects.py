"""Each user of NATS tries what is not its own, on a real server with the generated permissions.

What belongs to whom is written down here once more, by hand: a mistake in the table that permissions are made from must show.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

import pytest
from nats.aio.client import Client

from raybus.bus import envelope
from raybus.bus.nats import NatsBus
from raybus.bus.streams import SettingsDiffer, Wanted, provision_all
from raybus.bus.transport import NotAllowed, Refused

SETTLE_S = 0.3
USERS = ("provisioner", "gateway", "raycluster", "rayjob", "rayservice")
CONTROLLERS = ("raycluster", "rayjob", "rayservice")
OBJECTS = {name: f"ray.{name}.1.obj.0.ns.Root.a.Pod.p" for name in CONTROLLERS}
MARKERS = {name: f"ray.{name}.1.mark.Pod" for name in CONTROLLERS}
HISTORY = {name: f"ray.hist.{name}.ns.RayJob.a" for name in ("gateway", *CONTROLLERS)}
STREAMS = (
    "RAYCLUSTER", "RAYJOB", "RAYSERVICE", "RAYHIST",
    "KV_lease-gateway", "KV_lease-raycluster", "KV_lease-rayjob", "KV_lease-rayservice",
)  # fmt: skip
READS_OF = {
    "provisioner": (),
    "gateway": tuple(stream for stream in STREAMS if stream != "RAYHIST"),
    **{name: (name.upper(), f"KV_lease-{name}") for name in CONTROLLERS},
}


def may_publish(user: str) -> Iterator[str]:
    if user == "gateway":
        yield from OBJECTS.values()
        yield from MARKERS.values()
    if user != "provisioner":
        yield HISTORY[user]
        yield from (f"$KV.lease-{user}.session.me", f"$KV.lease-{user}.part.0")
    else:
        yield from (f"$KV.lease-{name}.part.0" for name in ("gateway", *CONTROLLERS))


def may_ask(user: str) -> Iterator[str]:
    if user in {"gateway", "provisioner"}:
        for stream in STREAMS:
            yield from (f"$JS.API.STREAM.INFO.{stream}", f"$JS.API.STREAM.CREATE.{stream}")
    if user == "provisioner":
        yield from (f"$JS.API.STREAM.UPDATE.{stream}" for stream in STREAMS)
        yield from (f"$JS.API.STREAM.PURGE.{name.upper()}" for name in CONTROLLERS)
    if user in CONTROLLERS:
        yield f"$JS.API.STREAM.INFO.{user.upper()}"
        yield f"$JS.API.STREAM.MSG.GET.KV_lease-{user}"
    if user == "gateway":
        yield "$JS.API.STREAM.MSG.GET.KV_lease-gateway"
        yield from (f"$JS.API.STREAM.MSG.GET.{name.upper()}" for name in CONTROLLERS)
    for stream in READS_OF[user]:
        yield from (f"$JS.API.CONSUMER.CREATE.{stream}", f"$JS.API.CONSUMER.MSG.NEXT.{stream}.any")


def everything() -> set[str]:
    """All that somebody might publish to, or ask of JetStream."""
    found = {
        *OBJECTS.values(),
        *MARKERS.values(),
        *HISTORY.values(),
        "ray.other.1.obj.0.a.b.c.d.e",
        "ray.hist.ns.RayJob.a",
    }
    for name in ("gateway", *CONTROLLERS):
        found |= {f"$KV.lease-{name}.session.me", f"$KV.lease-{name}.part.0", f"_INBOX_{name}.a.b"}
    for stream in STREAMS:
        found |= {
            f"$JS.API.STREAM.{verb}.{stream}"
            for verb in (
                "CREATE", "UPDATE", "INFO", "PURGE", "DELETE", "MSG.GET", "MSG.DELETE", "SNAPSHOT", "RESTORE", "PEER.REMOVE",
                "LEADER.STEPDOWN",
            )
        }  # fmt: skip
        found |= {
            f"$JS.API.DIRECT.GET.{stream}",
            f"$JS.API.DIRECT.GET.{stream}.a.b",
            f"$JS.API.CONSUMER.CREATE.{stream}",
            f"$JS.API.CONSUMER.CREATE.{stream}.name",
            f"$JS.API.CONSUMER.CREATE.{stream}.name.filter",
            f"$JS.API.CONSUMER.DURABLE.CREATE.{stream}.any",
            f"$JS.API.CONSUMER.DELETE.{stream}.any",
            f"$JS.API.CONSUMER.INFO.{stream}.any",
            f"$JS.API.CONSUMER.LIST.{stream}",
            f"$JS.API.CONSUMER.NAMES.{stream}",
            f"$JS.API.CONSUMER.RESET.{stream}.any",
            f"$JS.API.CONSUMER.MSG.NEXT.{stream}.any",
            f"$JS.ACK.{stream}.any.1.1.1.1.0",
            f"$JS.FC.{stream}.any.a",
        }
    found |= {"$JS.API.INFO", "$JS.API.STREAM.LIST", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.CREATE.OTHER"}
    found |= {
        "$JS.API.META.LEADER.STEPDOWN",
        "$JS.API.SERVER.REMOVE",
        "$SYS.REQ.SERVER.PING",
        "$SYS.REQ.ACCOUNT.PING.STATZ",
    }
    return found | {"other", "_INBOX.a", "_R_.a", "$KV.other.key", "$O.other.C.a"}


@contextlib.asynccontextmanager
async def heard(secured, user: str) -> AsyncIterator[tuple[Client, list[str]]]:
    """A bare connection of the user, and what the server complained about."""
    complaints: list[str] = []

    async def note(error: Exception) -> None:
        complaints.append(str(error))

    client = Client()
    await client.connect(
        secured.server.url,
        tls=secured.keys.tls(),
        nkeys_seed_str=secured.keys.seeds[user].decode(),
        inbox_prefix=f"_INBOX_{user}",
        error_cb=note,
    )
    try:
        yield client, complaints
    finally:
        await client.close()


@pytest.mark.parametrize("user", USERS)
async def test_what_is_foreign_is_refused_and_what_is_own_is_not(secured, user: str) -> None:
    own = {*may_publish(user), *may_ask(user)}
    assert own <= everything()
    async with heard(secured, user) as (client, complaints):
        for subject in sorted(everything()):
            await client.publish(subject, b"not json")
        await client.flush()
        await asyncio.sleep(SETTLE_S)
    refused = {subject for subject in everything() if any(f'"{subject.lower()}"' in line for line in complaints)}

    assert refused == everything() - own


@pytest.mark.parametrize("user", USERS)
async def test_each_hears_its_own_inbox_alone(secured, user: str) -> None:
    asked = {f"_INBOX_{other}.>" for other in USERS} | {
        ">", "_INBOX.>", "*.>", "ray.>", "ray.hist.>", *(f"ray.{name}.>" for name in CONTROLLERS),
        "$KV.>", *(f"$KV.lease-{name}.>" for name in CONTROLLERS), "$JS.>", "$JS.API.>", "$JS.EVENT.>", "$SYS.>",
    }  # fmt: skip
    async with heard(secured, user) as (client, complaints):
        for subject in asked:
            await client.subscribe(subject)
        await client.flush()
        await asyncio.sleep(SETTLE_S)
    refused = {subject for subject in asked if any(f'"{subject.lower()}"' in line for line in complaints)}

    assert refused == asked - {f"_INBOX_{user}.>"}


@pytest.mark.parametrize("user", CONTROLLERS)
async def test_a_header_wipes_nothing(secured, user: str) -> None:
    """A roll-up replaces what a stream holds by one message; a schedule lets the server publish for others."""
    async with secured.bus("gateway") as gateway, secured.bus(user) as bus:
        for name in CONTROLLERS:
            await gateway.publish(OBJECTS[name], b"{}")
        await gateway.publish(HISTORY["gateway"], b"{}")
        with pytest.raises(Refused, match="rollup not permitted"):
            await bus.publish(HISTORY[user], b"", {"Nats-Rollup": "all"})
        schedule = {"Nats-Schedule": "@at 2026-01-01T00:00:00Z", "Nats-Schedule-Target": OBJECTS["rayjob"]}
        for subject in (HISTORY[user], f"$KV.lease-{user}.part.0"):
            with pytest.raises(Refused, match="schedules is disabled"):
                await bus.publish(subject, b"", schedule)
        # Its own leases are its own to wipe, and nobody else's.
        await bus.publish(f"$KV.lease-{user}.part.0", b"", {"Nats-Rollup": "all"})
        with pytest.raises(Refused, match="rollup not permitted"):
            await gateway.publish(OBJECTS["rayjob"], b"{}", {"Nats-Rollup": "all"})

        held = [await gateway.last(name.upper(), OBJECTS[name]) for name in CONTROLLERS]
        assert all(held)


async def test_an_answer_that_is_sent_elsewhere_brings_nothing_that_is_believed(secured) -> None:
    """Where an answer goes is the asker's word, and the server does not check it against the asker's rights.

    So nobody may ask for something whose answer could pass for an object: a message in its own words with its headers, under
    a subject of the asker's choice. That is what a direct get would be.
    """
    target, key = OBJECTS["rayjob"], "$KV.lease-raycluster.session.me"
    headers = {"ce-type": "io.raybus.object.v1", "ce-id": "u/1", "ray-op": "PUT", "ray-uid": "u", "ray-rv": "1"}
    async with secured.bus("gateway") as gateway, heard(secured, "raycluster") as (client, complaints):
        await client.publish(key, b'{"forged": true}', headers=headers)
        bucket = "KV_lease-raycluster"
        async with secured.bus("raycluster") as bus:
            made = await bus.api(f"$JS.API.CONSUMER.CREATE.{bucket}", _consumer(bucket), 2.0)
            push = _consumer(bucket, deliver_subject=target)
            with contextlib.suppress(Refused):
                await bus.api(f"$JS.API.CONSUMER.CREATE.{bucket}", push, 2.0)
            for ask, body in (
                (f"$JS.API.CONSUMER.MSG.NEXT.{bucket}.{made['name']}", b"1"),
                (f"$JS.API.STREAM.MSG.GET.{bucket}", b'{"last_by_subj": "%s"}' % key.encode()),
                (f"$JS.API.DIRECT.GET.{bucket}", b'{"last_by_subj": "%s"}' % key.encode()),
            ):
                await client.publish(ask, body, reply=target)
            await client.flush()
            await asyncio.sleep(SETTLE_S)
        stored = await gateway.last("RAYJOB", target)

    assert stored is None or envelope.decode_object(stored) is None
    assert [line for line in complaints if "direct.get" in line]


def _consumer(stream: str, **more: str) -> dict[str, object]:
    return {"stream_name": stream, "config": {"deliver_policy": "all", "ack_policy": "none", **more}}


async def test_a_gateway_makes_lost_streams_again_and_changes_none(secured) -> None:
    async with secured.bus("provisioner") as bus:
        await provision_all(bus, "cluster-uid", Wanted(history_bytes=1 << 21))
    async with secured.bus("gateway") as gateway:
        await provision_all(gateway, "cluster-uid", Wanted(history_bytes=1 << 21))
        assert gateway.refusal == ""
        with pytest.raises(
            SettingsDiffer, match=r"RAYHIST has other settings \(max_bytes\).*user gateway.*raybus provision"
        ):
            await provision_all(gateway, "cluster-uid", Wanted())
        assert gateway.refusal == "NATS refused to user gateway: publish to $JS.API.STREAM.UPDATE.RAYHIST"
        await provision_all(gateway, "cluster-uid", Wanted(), lenient=True)
        with pytest.raises(NotAllowed, match=r"holds the objects of another cluster.*raybus provision"):
            await provision_all(gateway, "another-uid", Wanted(history_bytes=1 << 21), lenient=True)
        assert (await gateway.stream_info("RAYCLUSTER")).metadata["raybus.cluster"] == "cluster-uid"
    await asyncio.to_thread(_lose_store, secured.server)
    async with secured.bus("gateway") as gateway:
        made = await provision_all(gateway, "cluster-uid", Wanted())
        assert set(made) == set(CONTROLLERS)


def _lose_store(server) -> None:
    import shutil

    server.kill()
    shutil.rmtree(server.folder / "store")
    server.start()


async def test_a_request_that_is_refused_does_not_wait_for_its_time_out(secured) -> None:
    async with secured.bus("rayjob") as bus:
        async with asyncio.timeout(30):
            with pytest.raises(NotAllowed, match=r"to user rayjob: publish to \$JS\.API\.STREAM\.PURGE\.RAYCLUSTER"):
                await bus.purge("RAYCLUSTER", timeout_s=60.0)


async def test_one_refusal_leaves_other_requests_alone(secured) -> None:
    async with secured.bus("rayjob") as bus:
        answers = await asyncio.gather(
            bus.purge("RAYCLUSTER", timeout_s=30.0),
            bus.stream_info("RAYJOB"),
            bus.publish("ray.hist.rayjob.a.b.c", b"{}"),
            return_exceptions=True,
        )
    assert isinstance(answers[0], NotAllowed)
    assert not [answer for answer in answers[1:] if isinstance(answer, Exception)]


async def test_a_cancelled_request_stays_cancelled(secured) -> None:
    async with secured.bus("rayjob") as bus:
        asking = asyncio.create_task(_forever(bus))
        await asyncio.sleep(0.05)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking


async def _forever(bus: NatsBus) -> None:
    while True:
        with contextlib.suppress(NotAllowed):
            await bus.purge("RAYCLUSTER", timeout_s=30.0)
