"""From settings to open connections: NATS and the API server, each with a limit and a clear message when it is not there."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import nkeys
from yarl import URL

from raybus.bus import streams
from raybus.bus.nats import NatsBus
from raybus.bus.streams import StreamSettings
from raybus.bus.transport import Bus, BusError
from raybus.kube import config, reach
from raybus.kube.client import KubeClient
from raybus.kube.errors import KubeError
from raybus.observe.logging import get_logger
from raybus.observe.metrics import ServiceMetrics
from raybus.observe.requests import KubeRequests
from raybus.runtime.settings import ServiceSettings

KUBE_WAIT_S = 60.0
KUBE_RETRY_S = 1.0
_LASTING = (401, 403, 404)  # answers that waiting does not change


class StartError(Exception):
    """The service cannot start; the text says what is missing and what to do."""


Waits = Callable[[str, Callable[[], str]], None]
"""Is told what is waited for, and of what to ask why it is not there yet."""


@asynccontextmanager
async def nats(settings: ServiceSettings, name: str, waits: Waits | None = None) -> AsyncIterator[NatsBus]:
    """A connection to NATS. Raises StartError if no server answers within --nats-wait-s."""
    try:
        tls = ssl.create_default_context(cafile=settings.nats_ca_file) if settings.nats_ca_file else None
    except (OSError, ssl.SSLError) as error:
        raise StartError(f"--nats-ca-file {settings.nats_ca_file}: {error}") from None
    bus = NatsBus(
        [url.strip() for url in settings.nats_url.split(",")],
        name=f"{name} {settings.replica_id}",
        inbox_prefix=settings.nats_inbox_prefix,
        tls=tls,
        nkeys_seed_text=_seed(settings.nats_nkey_file),
        credentials=_there("--nats-credentials-file", settings.nats_credentials_file),
    )
    if waits:
        waits("NATS", lambda: bus.trouble)
    try:
        try:
            await bus.connect(settings.nats_wait_s)
        except BusError as error:
            raise StartError(f"{error} (--nats-url)") from None
        yield bus
    finally:
        await bus.close()


def _seed(path: str) -> str | None:
    """What an NKey file holds; None without one. Raises StartError, which does not show it."""
    if _there("--nats-nkey-file", path) is None:
        return None
    try:
        seed = Path(path).read_text().strip()
        nkeys.from_seed(bytearray(seed.encode()))
    except Exception:  # noqa: BLE001 - the library raises what it comes across; the content must not be shown
        raise StartError(
            f"--nats-nkey-file {path}: this is not the seed of a NATS user, which begins with SU"
        ) from None
    return seed


def _there(flag: str, path: str) -> str | None:
    if not path:
        return None
    try:
        Path(path).open("rb").close()
    except OSError as error:
        raise StartError(f"{flag} {path}: {error.strerror}") from None
    return path


@asynccontextmanager
async def kube(settings: ServiceSettings, name: str, metrics: ServiceMetrics) -> AsyncIterator[tuple[KubeClient, str]]:
    """A client of the API server, whose `reach` is kept up to date, and the uid of the cluster.

    Raises StartError if the server does not answer within 60 s.
    """
    try:
        loaded = await asyncio.to_thread(config.load, settings.kubeconfig or None)
    except config.ConfigError as error:
        raise StartError(f"{error} (--kubeconfig)") from None
    meter = KubeRequests(metrics, URL(loaded.server).authority)
    async with KubeClient(loaded, user_agent=f"raybus-{name}", meter=meter) as client:
        uid = await _cluster_uid(client)
        async with reach.watching(client.reach, client.ask):
            yield client, uid


async def _cluster_uid(client: KubeClient) -> str:
    server = client.config.server
    last = "no answer"
    loop = asyncio.get_running_loop()
    until = loop.time() + KUBE_WAIT_S
    while loop.time() < until:
        try:
            return await client.cluster_uid()
        except KubeError as error:
            last = error.message
            if error.code in _LASTING:
                raise StartError(f"the API server {server} does not show the namespace kube-system: {last}") from None
        get_logger().info("waiting for the API server", server=server, error=last)
        await asyncio.sleep(KUBE_RETRY_S)
    raise StartError(f"the API server {server} does not answer: {last} (--kubeconfig)")


async def stream_settings(bus: Bus, controller: str, cluster_uid: str, wait_s: float) -> StreamSettings:
    """What the controller's stream says, when a gateway has made it. Raises StartError if it is another cluster's."""
    try:
        found = await streams.wait_for_settings(bus, controller, timeout_s=wait_s)
        streams.check(streams.object_stream(controller), found, cluster_uid=cluster_uid)
    except TimeoutError:
        name = streams.object_stream(controller)
        raise StartError(f"no stream {name} within {wait_s:g} s: is the gateway running? (--nats-wait-s)") from None
    except BusError as error:
        raise StartError(str(error)) from None
    return found
