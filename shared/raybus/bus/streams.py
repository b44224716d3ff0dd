"""The streams: their names and settings, how they are made, and what every process reads from them before it starts."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

import structlog

from raybus.bus.subjects import HISTORY_FILTER, controller_filter, lease_subject
from raybus.bus.transport import Bus, BusError, NotAllowed, SettingsDiffer, StreamConfig, StreamMissing

OBJECT_STREAMS = {"raycluster": "RAYCLUSTER", "rayjob": "RAYJOB", "rayservice": "RAYSERVICE"}
HISTORY_STREAM = "RAYHIST"
DEFAULT_PARTITIONS = 8
DEFAULT_HISTORY_BYTES = 1 << 30
GATEWAY = "gateway"

_PARTITIONS = "raybus.partitions"
_GENERATION = "raybus.generation"
_CLUSTER = "raybus.cluster"
_MARKER_TTL_S = 30
_HISTORY_AGE_S = 7 * 24 * 3600
_HISTORY_PER_SUBJECT = 128

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSettings:
    """What an object stream says about itself. `cluster_uid` is the uid of the namespace kube-system."""

    partitions: int
    generation: int
    cluster_uid: str


class SettingsMismatch(BusError):
    """The stream was made with other settings than this process was told. It must not start."""


def object_stream(controller: str) -> str:
    return OBJECT_STREAMS[controller]


def lease_bucket(controller: str) -> str:
    """The bucket that holds a controller's leases, or with GATEWAY those of the gateway."""
    return f"lease-{controller}"


def bucket_stream(bucket: str) -> str:
    return f"KV_{bucket}"


async def provision(
    bus: Bus,
    controller: str,
    *,
    cluster_uid: str,
    partitions: int = DEFAULT_PARTITIONS,
    generation: int = 1,
    replicas: int = 1,
    lenient: bool = False,
) -> StreamSettings:
    """Make a controller's object stream and lease bucket, or find them as they should be.

    A stream that carries another cluster's identity is emptied and gets the new one; other partitions or another generation
    raise SettingsMismatch. Killed at any point, the next call finishes the work. `lenient`: what is there and may not be
    changed by this user is left as it is, and logged; else it raises SettingsDiffer.
    """
    wanted = StreamSettings(partitions=partitions, generation=generation, cluster_uid=cluster_uid)
    await provision_leases(bus, controller, replicas=replicas, lenient=lenient)
    name = object_stream(controller)
    try:
        found = _settings(name, (await bus.stream_info(name)).metadata)
    except StreamMissing:
        found = None
    if found is not None:
        check(name, found, partitions=partitions, generation=generation)
        if found.cluster_uid != cluster_uid:
            log.warning("stream_of_another_cluster", stream=name, found=found.cluster_uid, ours=cluster_uid)
            # First empty, then sign: killed in between, the foreign identity is still there and we come back here.
            await _empty(bus, name)
    await _ensure(
        bus,
        StreamConfig(
            name=name,
            subjects=(controller_filter(controller),),
            replicas=replicas,
            metadata={
                _PARTITIONS: str(wanted.partitions),
                _GENERATION: str(wanted.generation),
                _CLUSTER: wanted.cluster_uid,
            },
        ),
        lenient=lenient,
    )
    return wanted


async def provision_leases(bus: Bus, controller: str, *, replicas: int = 1, lenient: bool = False) -> None:
    """Make the lease bucket of a controller or of the gateway: a key-value bucket that leaves markers after expiry."""
    bucket = lease_bucket(controller)
    await _ensure(
        bus,
        StreamConfig(
            name=bucket_stream(bucket),
            subjects=(lease_subject(bucket, ">"),),
            marker_ttl_s=_MARKER_TTL_S,
            replicas=replicas,
        ),
        lenient=lenient,
    )


async def provision_history(
    bus: Bus, *, max_bytes: int = DEFAULT_HISTORY_BYTES, replicas: int = 1, lenient: bool = False
) -> None:
    await _ensure(
        bus,
        StreamConfig(
            name=HISTORY_STREAM,
            subjects=(HISTORY_FILTER,),
            max_msgs_per_subject=_HISTORY_PER_SUBJECT,
            max_age_s=_HISTORY_AGE_S,
            max_bytes=max_bytes,
            deny_delete=True,
            deny_purge=True,
            compress=True,
            replicas=replicas,
        ),
        lenient=lenient,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Settings of all streams, as an installation is told them."""

    partitions: int = DEFAULT_PARTITIONS
    generation: int = 1
    replicas: int = 1
    history_bytes: int = DEFAULT_HISTORY_BYTES


async def provision_all(
    bus: Bus, cluster_uid: str, wanted: Wanted, *, lenient: bool = False
) -> dict[str, StreamSettings]:
    """Make every stream and bucket of Raybus, or find them as they should be; what each controller's stream says."""
    await provision_leases(bus, GATEWAY, replicas=wanted.replicas, lenient=lenient)
    await provision_history(bus, max_bytes=wanted.history_bytes, replicas=wanted.replicas, lenient=lenient)
    return {
        controller: await provision(
            bus,
            controller,
            cluster_uid=cluster_uid,
            partitions=wanted.partitions,
            generation=wanted.generation,
            replicas=wanted.replicas,
            lenient=lenient,
        )
        for controller in OBJECT_STREAMS
    }


async def _ensure(bus: Bus, config: StreamConfig, *, lenient: bool) -> None:
    try:
        await bus.ensure_stream(config)
    except SettingsDiffer as error:
        if not lenient:
            raise
        log.warning("stream_differs", stream=config.name, problem=str(error))


async def _empty(bus: Bus, name: str) -> None:
    try:
        await bus.purge(name)
    except NotAllowed as error:
        raise NotAllowed(
            f"stream {name} holds the objects of another cluster, and this user may not empty it ({error}): "
            f"run `raybus provision`, or use another NATS",
        ) from None


async def read_settings(bus: Bus, controller: str) -> StreamSettings:
    """What the controller's stream says. Raises StreamMissing before a gateway has made it."""
    name = object_stream(controller)
    return _settings(name, (await bus.stream_info(name)).metadata)


async def wait_for_settings(bus: Bus, controller: str, *, timeout_s: float) -> StreamSettings:
    """As read_settings, but gives a gateway that starts at the same time `timeout_s` to make the stream."""
    pause = 0.05
    async with asyncio.timeout(timeout_s):
        while True:
            try:
                return await read_settings(bus, controller)
            except SettingsMismatch:
                raise
            except BusError as error:
                log.debug("settings_not_there_yet", controller=controller, error=str(error))
            await asyncio.sleep(pause)
            pause = min(pause * 2, 1.0)


def check(
    stream: str,
    found: StreamSettings,
    *,
    partitions: int | None = None,
    generation: int | None = None,
    cluster_uid: str | None = None,
) -> None:
    """Raise SettingsMismatch if the stream differs from what this process was told (None: it was told nothing)."""
    told = {"partitions": partitions, "generation": generation, "cluster_uid": cluster_uid}
    for field, value in told.items():
        has = getattr(found, field)
        if value is not None and value != has:
            raise SettingsMismatch(
                f"stream {stream} says {field} = {has}, this process was told {value}: "
                f"give all processes the same value, or delete the stream so that the gateway makes it anew",
            )


def _settings(stream: str, metadata: Mapping[str, str]) -> StreamSettings:
    try:
        return StreamSettings(
            partitions=int(metadata[_PARTITIONS]),
            generation=int(metadata[_GENERATION]),
            cluster_uid=str(metadata[_CLUSTER]),
        )
    except (KeyError, ValueError) as error:
        raise SettingsMismatch(
            f"stream {stream} carries no readable settings ({error}): it was not made by a Raybus gateway; "
            f"delete it or use another NATS account",
        ) from error
