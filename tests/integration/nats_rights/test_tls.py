"""Connections to NATS under TLS: whom a service believes, and what it says when it does not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import structlog

from raybus.bus import permissions
from raybus.runtime import connections
from raybus.runtime.connections import StartError
from raybus.runtime.provision import plan
from raybus.runtime.settings import ServiceSettings

from .conftest import Keys

WAIT_S = 1.5


def settings(folder: Path, keys: Keys, url: str, user: str = "gateway", seed: bytes = b"") -> ServiceSettings:
    (folder / "seed").write_bytes(seed or keys.seeds[user])
    (folder / "ca.crt").write_bytes(keys.ca[plan.CA_CERTIFICATE])
    return ServiceSettings(
        nats_url=url,
        nats_nkey_file=str(folder / "seed"),
        nats_ca_file=str(folder / "ca.crt"),
        nats_inbox_prefix=permissions.inbox_prefix(user),
        nats_wait_s=WAIT_S,
    )


async def connect(given: ServiceSettings) -> None:
    async with connections.nats(given, "gateway") as bus:
        await bus.stream_info("RAYHIST")


async def test_with_the_right_ca_name_and_key_it_works(secured, tmp_path: Path) -> None:
    await connect(settings(tmp_path, secured.keys, secured.server.url))


async def test_a_server_of_another_ca_is_not_believed(secured, tmp_path: Path) -> None:
    given = settings(tmp_path, Keys("localhost"), secured.server.url, seed=secured.keys.seeds["gateway"])

    with pytest.raises(StartError, match=r"certificate that is not trusted \(.*\): give the CA"):
        await connect(given)


async def test_a_server_of_another_name_is_not_believed(secured, tmp_path: Path) -> None:
    url = f"tls://127.0.0.1:{secured.server.port}"

    with pytest.raises(StartError, match=r"not trusted \(.*127\.0\.0\.1.*\).*a name that the certificate holds"):
        await connect(settings(tmp_path, secured.keys, url))


async def test_without_tls_nobody_gets_in(secured, tmp_path: Path) -> None:
    given = settings(tmp_path, secured.keys, f"nats://localhost:{secured.server.port}")

    with pytest.raises(StartError, match="NATS at"):
        await connect(given.model_copy(update={"nats_ca_file": ""}))


async def test_a_key_that_the_server_does_not_know_is_told(secured, tmp_path: Path) -> None:
    given = settings(tmp_path, secured.keys, secured.server.url, seed=Keys("localhost").seeds["gateway"])

    with pytest.raises(StartError, match="does not know this user or its key"):
        await connect(given)


async def test_who_is_refused_says_why_it_waits_and_does_not_hammer(secured, tmp_path: Path) -> None:
    given = settings(tmp_path, secured.keys, secured.server.url, seed=Keys("localhost").seeds["gateway"])
    waited: list[tuple[str, Callable[[], str]]] = []

    with structlog.testing.capture_logs() as lines, pytest.raises(StartError):
        async with connections.nats(given, "gateway", lambda what, why: waited.append((what, why))):
            pass

    ((what, why),) = waited
    assert what == "NATS"
    assert "does not know this user or its key" in why()
    assert 1 <= sum(line["event"] == "nats_error" for line in lines) <= 2


@pytest.mark.parametrize("content", [b"", b"not a word of it", b"SUAAAA"])
async def test_a_file_that_holds_no_seed_is_told_without_its_content(secured, tmp_path: Path, content: bytes) -> None:
    given = settings(tmp_path, secured.keys, secured.server.url, seed=b"x")
    (tmp_path / "seed").write_bytes(content)

    with pytest.raises(StartError, match="seed") as refused:
        await connect(given)

    assert content.decode() not in str(refused.value) or not content


async def test_a_file_that_is_not_there_is_named(secured, tmp_path: Path) -> None:
    given = settings(tmp_path, secured.keys, secured.server.url)

    with pytest.raises(StartError, match="nowhere"):
        await connect(given.model_copy(update={"nats_nkey_file": str(tmp_path / "nowhere")}))


async def test_a_missing_ca_file_is_named(secured, tmp_path: Path) -> None:
    given = settings(tmp_path, secured.keys, secured.server.url)

    with pytest.raises(StartError, match=r"--nats-ca-file .*nowhere"):
        await connect(given.model_copy(update={"nats_ca_file": str(tmp_path / "nowhere")}))
