"""All of provisioning: Secrets first, then the streams, each as its user's rights allow."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from datetime import datetime

from raybus.bus import permissions, streams
from raybus.bus.leases import free_partitions
from raybus.bus.nats import NatsBus
from raybus.bus.streams import Wanted
from raybus.bus.transport import BusError, BusTimeout, Unavailable
from raybus.kube.client import KubeClient
from raybus.runtime.provision.secrets import Keeper, Made, Place, ProvisionError, Tell

NATS_ATTEMPTS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Nats:
    """How NATS is reached. With a file of a user's it is an existing one, and no Secrets are made."""

    url: str
    ca_file: str = ""
    nkey_file: str = ""
    credentials_file: str = ""
    inbox_prefix: str = ""
    wait_s: float = 300.0

    @property
    def existing(self) -> bool:
        return bool(self.nkey_file or self.credentials_file)


async def provision(kube: KubeClient, place: Place, nats: Nats, wanted: Wanted, *, now: datetime, tell: Tell) -> None:
    """Idempotent. Raises ProvisionError, KubeError."""
    made = None if nats.existing else await Keeper(kube, place, now, tell).keep()
    cluster_uid = await kube.cluster_uid()
    bus = _bus(nats, made)
    tell(f"waiting for NATS at {nats.url}")
    try:
        await bus.connect(nats.wait_s)
        await _make(bus, cluster_uid, wanted)
        if made is not None and made.new:
            await _nobody_to_wait_for(bus, wanted)
    except (BusError, OSError) as error:
        raise ProvisionError(
            str(error), "see the log of the NATS pods; a run later goes on where this one ended"
        ) from None
    finally:
        await bus.close()
    tell("streams and lease buckets are there")


async def _make(bus: NatsBus, cluster_uid: str, wanted: Wanted) -> None:
    """A server that has just started elects leaders first: some requests may go unanswered."""
    for attempt in range(1, NATS_ATTEMPTS + 1):
        try:
            await streams.provision_all(bus, cluster_uid, wanted)
            return
        except (Unavailable, BusTimeout):
            if attempt == NATS_ATTEMPTS:
                raise


async def _nobody_to_wait_for(bus: NatsBus, wanted: Wanted) -> None:
    """The keys are new, so nobody can hold a partition: the first replicas need not wait for a lease to run out."""
    await free_partitions(bus, streams.lease_bucket(streams.GATEWAY), 1)
    for controller in permissions.controllers():
        await free_partitions(bus, streams.lease_bucket(controller), wanted.partitions)


def _bus(nats: Nats, made: Made | None) -> NatsBus:
    try:
        tls = _tls(nats, made)
    except (OSError, ssl.SSLError) as error:
        raise ProvisionError(f"{nats.ca_file}: {error}", "correct --nats-ca-file") from None
    return NatsBus(
        [url.strip() for url in nats.url.split(",")],
        name="raybus provision",
        inbox_prefix=nats.inbox_prefix or permissions.inbox_prefix(permissions.PROVISIONER),
        tls=tls,
        nkeys_seed=nats.nkey_file or None,
        nkeys_seed_text=made.seed if made else None,
        credentials=nats.credentials_file or None,
    )


def _tls(nats: Nats, made: Made | None) -> ssl.SSLContext | None:
    if made is not None:
        return ssl.create_default_context(cadata=made.ca)
    return ssl.create_default_context(cafile=nats.ca_file) if nats.ca_file else None
