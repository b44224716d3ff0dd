"""The end of NATS' certificate, as a service that is connected over TLS shows it."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import trustme

from raybus.bus.nats import NatsBus
from raybus.observe.metrics import ServiceMetrics
from raybus.runtime import telemetry
from support.nats import binary, free_port

ENDS = datetime(2040, 2, 3, 4, 5, 6, tzinfo=UTC)
AUTHORITY = trustme.CA()


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    certificate = AUTHORITY.issue_cert("127.0.0.1", not_after=ENDS)
    certificate.private_key_pem.write_to_path(tmp_path / "tls.key")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "tls.crt")
    port = free_port()
    (tmp_path / "nats.conf").write_text(
        f'listen: "127.0.0.1:{port}"\n'
        f'tls {{ cert_file: "{tmp_path / "tls.crt"}", key_file: "{tmp_path / "tls.key"}" }}\n'
    )
    with (tmp_path / "nats.log").open("wb") as log:
        process = subprocess.Popen([binary(), "-c", tmp_path / "nats.conf"], stdout=log, stderr=log)
    try:
        yield f"tls://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait(10)


async def test_it_is_shown_while_connected_over_tls(url: str) -> None:
    context = ssl.create_default_context()
    AUTHORITY.configure_trust(context)
    bus, metrics = NatsBus(url, tls=context), ServiceMetrics("test")
    telemetry.watch_bus(metrics, bus)
    name = b"raybus_nats_certificate_expires_timestamp_seconds "
    assert name not in metrics.render()

    await bus.connect(20)
    try:
        (line,) = (line for line in metrics.render().splitlines() if line.startswith(name))
        assert float(line.split()[1]) == ENDS.timestamp()
    finally:
        await bus.close()
