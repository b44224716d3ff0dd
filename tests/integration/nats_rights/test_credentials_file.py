"""An existing NATS that knows its users by JWT: provisioner and services connect with a credentials file, the chart's default for it."""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import nkeys
import pytest

from raybus.bus import streams
from raybus.bus.streams import Wanted
from raybus.domain import kinds
from raybus.kube.client import KubeClient
from raybus.runtime import connections
from raybus.runtime.connections import StartError
from raybus.runtime.provision.run import Nats, provision
from raybus.runtime.provision.secrets import Place
from raybus.runtime.settings import ServiceSettings
from support.nats import NatsServer

pytestmark = [pytest.mark.kube, pytest.mark.timeout(120)]

UNLIMITED = {"subs": -1, "data": -1, "payload": -1}
OF_ACCOUNT = UNLIMITED | {"imports": -1, "exports": -1, "wildcards": True, "conn": -1, "leaf": -1}
JETSTREAM = {"mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1}


class Key:
    def __init__(self, prefix: int) -> None:
        self.seed = nkeys.encode_seed(os.urandom(32), prefix)
        self._pair = nkeys.from_seed(bytearray(self.seed))
        self.public = self._pair.public_key.decode()

    def signs(self, subject: str, name: str, claims: Mapping[str, Any]) -> str:
        """A JWT about `subject`."""
        header = {"typ": "JWT", "alg": "ed25519-nkey"}
        about = {"jti": name, "iat": int(time.time()), "iss": self.public, "sub": subject, "name": name}
        body = ".".join(map(_part, (header, about | {"nats": {**claims, "version": 2}})))
        return f"{body}.{_text(self._pair.sign(body.encode()))}"


def _part(claims: Mapping[str, Any]) -> str:
    return _text(json.dumps(claims).encode())


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


class Operated:
    """A server in operator mode; `credentials` gives a user of its account."""

    def __init__(self, folder: Path) -> None:
        self.server = NatsServer(folder / "nats")
        operator, self._account, system = (
            Key(prefix) for prefix in (nkeys.PREFIX_BYTE_OPERATOR, nkeys.PREFIX_BYTE_ACCOUNT, nkeys.PREFIX_BYTE_ACCOUNT)
        )
        accounts = {
            self._account.public: operator.signs(
                self._account.public, "raybus", {"type": "account", "limits": OF_ACCOUNT | JETSTREAM}
            ),
            system.public: operator.signs(system.public, "SYS", {"type": "account", "limits": OF_ACCOUNT}),
        }
        known = "".join(f"  {public}: {token}\n" for public, token in accounts.items())
        with (self.server.folder / "nats.conf").open("a") as config:
            config.write(f"operator: {operator.signs(operator.public, 'operator', {'type': 'operator'})}\n")
            config.write(f"system_account: {system.public}\nresolver: MEMORY\nresolver_preload {{\n{known}}}\n")

    def credentials(self, path: Path, *, signed_by: Key | None = None) -> Path:
        user = Key(nkeys.PREFIX_BYTE_USER)
        token = (signed_by or self._account).signs(user.public, "user", {"type": "user", **UNLIMITED})
        path.write_text(
            f"-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n"
            f"-----BEGIN USER NKEY SEED-----\n{user.seed.decode()}\n------END USER NKEY SEED------\n"
        )
        return path


@pytest.fixture
def operated(tmp_path: Path) -> Iterator[Operated]:
    found = Operated(tmp_path)
    found.server.start()
    try:
        yield found
    finally:
        found.server.kill()


def settings(operated: Operated, credentials: Path) -> ServiceSettings:
    return ServiceSettings(
        nats_url=operated.server.url,
        nats_credentials_file=str(credentials),
        nats_inbox_prefix="_INBOX_gateway",
        nats_wait_s=5.0,
    )


async def test_streams_are_made_and_no_secrets_and_a_service_finds_them(
    operated: Operated, kube: KubeClient, namespace: str, tmp_path: Path
) -> None:
    file = operated.credentials(tmp_path / "nats.creds")
    place = Place(namespace=namespace, prefix="raybus-nats", server_names=())
    told: list[str] = []
    nats = Nats(url=operated.server.url, credentials_file=str(file), wait_s=20.0)
    await provision(kube, place, nats, Wanted(), now=datetime.now(UTC), tell=told.append)

    assert told[-1] == "streams and lease buckets are there"
    assert await kube.list_all(kinds.SECRET, namespace) == []
    async with connections.nats(settings(operated, file), "gateway") as bus:
        assert (await streams.read_settings(bus, "rayjob")).cluster_uid == await kube.cluster_uid()


async def test_a_user_of_an_account_that_the_server_does_not_know_is_told(operated: Operated, tmp_path: Path) -> None:
    file = operated.credentials(tmp_path / "nats.creds", signed_by=Key(nkeys.PREFIX_BYTE_ACCOUNT))

    with pytest.raises(StartError, match="does not know this user or its key"):
        async with connections.nats(settings(operated, file), "gateway"):
            pass
