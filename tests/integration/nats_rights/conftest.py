"""A nats-server with the chart's accounts, its streams made by the provisioner, and a connection of any user to it."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from raybus.bus import permissions, streams
from raybus.bus.nats import NatsBus
from raybus.runtime.provision import pki, plan
from support.installed import SecureNats
from support.nats import free_port

CLUSTER = "cluster-uid"


class Keys:
    """What `raybus provision` would have put into Secrets."""

    def __init__(self, *names: str) -> None:
        now = datetime.now(UTC)
        self.ca = pki.new_ca("test", now)
        self.seeds = {user.name: pki.new_seed() for user in permissions.users()}
        self.server = {
            **pki.new_server(self.ca, names, now),
            plan.CA_CERTIFICATE: self.ca[plan.CA_CERTIFICATE],
            **{user.variable: pki.public_of_seed(self.seeds[user.name]) for user in permissions.users()},
        }

    def tls(self) -> ssl.SSLContext:
        return ssl.create_default_context(cadata=self.ca[plan.CA_CERTIFICATE].decode())


class Secured:
    def __init__(self, server: SecureNats, keys: Keys) -> None:
        self.server, self.keys = server, keys

    @contextlib.asynccontextmanager
    async def bus(self, user: str) -> AsyncIterator[NatsBus]:
        bus = NatsBus(
            self.server.url,
            inbox_prefix=permissions.inbox_prefix(user),
            tls=self.keys.tls(),
            nkeys_seed_text=self.keys.seeds[user].decode(),
        )
        await bus.connect(10)
        try:
            yield bus
        finally:
            await bus.close()


@pytest.fixture
async def secured(tmp_path: Path) -> AsyncIterator[Secured]:
    keys = Keys("localhost")
    server = SecureNats(tmp_path / "nats", keys.server, free_port())
    server.start()
    try:
        found = Secured(server, keys)
        async with found.bus(permissions.PROVISIONER) as bus:
            await streams.provision_all(bus, CLUSTER, streams.Wanted())
        yield found
    finally:
        server.kill()
