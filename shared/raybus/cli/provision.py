"""`raybus provision`: what the chart's Job runs. Flags and their variables; the work is raybus.runtime.provision."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Annotated, Any

import typer

from raybus.api import crds
from raybus.api.installed import Mode
from raybus.bus.clock import SYSTEM
from raybus.bus.streams import DEFAULT_HISTORY_BYTES, DEFAULT_PARTITIONS, Wanted
from raybus.cli import console
from raybus.cli.errors import EXIT_ENVIRONMENT, EXIT_INTERRUPTED, UserError
from raybus.kube import config
from raybus.kube.client import KubeClient
from raybus.kube.errors import Forbidden
from raybus.observe.logging import configure
from raybus.runtime import definitions
from raybus.runtime.lifecycle import Stop, StoppedError
from raybus.runtime.provision.run import Nats, provision
from raybus.runtime.provision.secrets import Place, ProvisionError

# Flags, each with its variable.
KubeconfigOption = Annotated[
    str,
    typer.Option(envvar="RAYBUS_KUBECONFIG", help="kubeconfig file", show_default="as kubectl, or the pod's account"),
]
NamespaceOption = Annotated[
    str,
    typer.Option(envvar="RAYBUS_NAMESPACE", help="where the Secrets are", show_default="the pod's or the kubeconfig's"),
]
PrefixOption = Annotated[str, typer.Option(envvar="RAYBUS_PREFIX", help="what the Secrets' names begin with")]
OwnerOption = Annotated[
    str,
    typer.Option(
        envvar="RAYBUS_OWNER",
        help="KIND/NAME of an object there with which the Secrets are deleted",
        show_default=False,
    ),
]
ServerNamesOption = Annotated[
    str,
    typer.Option(
        envvar="RAYBUS_SERVER_NAMES",
        help="names and addresses of the NATS servers for their certificate, separated by commas",
        show_default=False,
    ),
]
NatsUrlOption = Annotated[str, typer.Option(envvar="RAYBUS_NATS_URL", help="NATS servers, separated by commas")]
NatsCredentialsFileOption = Annotated[
    str,
    typer.Option(
        envvar="RAYBUS_NATS_CREDENTIALS_FILE",
        help="credentials of an existing NATS: then no Secrets are made",
        show_default=False,
    ),
]
NatsNkeyFileOption = Annotated[
    str,
    typer.Option(
        envvar="RAYBUS_NATS_NKEY_FILE",
        help="NKey seed of a user of an existing NATS: then no Secrets are made",
        show_default=False,
    ),
]
NatsCaFileOption = Annotated[
    str, typer.Option(envvar="RAYBUS_NATS_CA_FILE", help="CA certificate of an existing NATS", show_default=False)
]
NatsInboxPrefixOption = Annotated[
    str, typer.Option(envvar="RAYBUS_NATS_INBOX_PREFIX", help="where answers arrive", show_default="_INBOX_provisioner")
]
NatsWaitSOption = Annotated[float, typer.Option(envvar="RAYBUS_NATS_WAIT_S", min=1, help="seconds to wait for NATS")]
PartitionsOption = Annotated[
    int, typer.Option(envvar="RAYBUS_PARTITIONS", min=1, max=1024, help="shares of the work of a controller")
]
GenerationOption = Annotated[
    int, typer.Option(envvar="RAYBUS_GENERATION", min=1, help="raise it to change the number of partitions")
]
StreamReplicasOption = Annotated[
    int, typer.Option(envvar="RAYBUS_STREAM_REPLICAS", min=1, max=5, help="copies that NATS keeps of each stream")
]
HistoryBytesOption = Annotated[
    int, typer.Option(envvar="RAYBUS_HISTORY_BYTES", min=1 << 20, help="size limit of the history stream, in bytes")
]
CrdModeOption = Annotated[
    Mode,
    typer.Option(
        "--crds",
        envvar="RAYBUS_CRDS",
        help="ray.io definitions: make missing ones and update Raybus' own, also replace those of others, or neither",
    ),
]


def command(
    kubeconfig: KubeconfigOption = "",
    namespace: NamespaceOption = "",
    prefix: PrefixOption = "raybus-nats",
    owner: OwnerOption = "",
    server_names: ServerNamesOption = "",
    nats_url: NatsUrlOption = "tls://raybus-nats:4222",
    nats_credentials_file: NatsCredentialsFileOption = "",
    nats_nkey_file: NatsNkeyFileOption = "",
    nats_ca_file: NatsCaFileOption = "",
    nats_inbox_prefix: NatsInboxPrefixOption = "",
    nats_wait_s: NatsWaitSOption = 300.0,
    partitions: PartitionsOption = DEFAULT_PARTITIONS,
    generation: GenerationOption = 1,
    stream_replicas: StreamReplicasOption = 1,
    history_bytes: HistoryBytesOption = DEFAULT_HISTORY_BYTES,
    crd_mode: CrdModeOption = Mode.INSTALL,
) -> None:
    """Make the definitions, keys, certificates and streams of an installation that are missing. Run it again at any time."""
    nats = Nats(
        url=nats_url,
        ca_file=nats_ca_file,
        nkey_file=nats_nkey_file,
        credentials_file=nats_credentials_file,
        inbox_prefix=nats_inbox_prefix,
        wait_s=nats_wait_s,
    )
    names = tuple(filter(None, (name.strip() for name in server_names.split(","))))
    wanted = Wanted(partitions=partitions, generation=generation, replicas=stream_replicas, history_bytes=history_bytes)

    async def work() -> None:
        configure(service="provision", log_format="console", level="warning")
        loaded = await asyncio.to_thread(_config, kubeconfig)
        place = Place(namespace=namespace or loaded.namespace, prefix=prefix, server_names=names, owner=owner)
        async with KubeClient(loaded, user_agent="raybus-provision") as kube:
            # All pods wait for the keys, so these do not wait for the definitions, which take an API server seconds.
            parts = _keys_and_streams(kube, place, nats, wanted), _definitions(kube, crd_mode)
            failed = [each for each in await asyncio.gather(*parts, return_exceptions=True) if each is not None]
        if failed:
            raise failed[0]

    console.run(_unless_told_to_stop(work()))


async def _unless_told_to_stop(work: Coroutine[Any, Any, None]) -> int:
    """The first process of a container is not ended by SIGTERM unless it wants to be: its pod would stay for half a minute."""
    with Stop() as stop:
        try:
            await stop.unless(work)
        except StoppedError:
            return EXIT_INTERRUPTED
    return 0


async def _keys_and_streams(kube: KubeClient, place: Place, nats: Nats, wanted: Wanted) -> None:
    try:
        await provision(kube, place, nats, wanted, now=SYSTEM.now(), tell=console.tell)
    except ProvisionError as error:
        raise UserError(str(error), error.remedy, EXIT_ENVIRONMENT) from None


async def _definitions(kube: KubeClient, mode: Mode) -> None:
    """With nothing to install, no right on definitions is needed: the services say what is missing."""
    if mode is Mode.SKIP:
        return
    remedy = "have somebody with the right run: raybus crds | kubectl apply --server-side -f - ; then use --crds skip"
    try:
        for name in await definitions.apply(kube, crds.build(), mode):
            console.tell(f"wrote the definition {name}")
    except (definitions.DefinitionError, Forbidden) as error:
        raise UserError(str(error), remedy, EXIT_ENVIRONMENT) from None


def _config(path: str) -> config.KubeConfig:
    try:
        return config.load(path or None)
    except config.ConfigError as error:
        raise UserError(str(error), "name another with --kubeconfig", EXIT_ENVIRONMENT) from None
