"""`python -m raybus.cli.prepare`: what `raybus up` does once between starting NATS and starting the services.

A process of its own, so that the long-lived one stays small. Prints the names of installed definitions, one a line; a problem goes
to standard error as JSON {"message", "hint"} with exit code 4.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys

from raybus.bus.leases import free_partitions
from raybus.bus.nats import NatsBus
from raybus.bus.streams import DEFAULT_PARTITIONS, bucket_stream, lease_bucket, provision_leases
from raybus.cli import definitions
from raybus.cli.errors import EXIT_ENVIRONMENT, UserError
from raybus.kube import config
from raybus.kube.client import KubeClient
from raybus.kube.errors import KubeError
from raybus.observe.logging import configure

REACH_S = 10.0
PARTITIONS = {"gateway": 1, "raycluster": DEFAULT_PARTITIONS, "rayjob": DEFAULT_PARTITIONS}


async def prepare(kubeconfig: str, nats_url: str, nkey_file: str) -> list[str]:
    """The definitions that were installed. UserError names what is in the way."""
    try:
        loaded = config.load(kubeconfig)
    except config.ConfigError as error:
        raise UserError(str(error), "name another with --kubeconfig", EXIT_ENVIRONMENT) from None
    async with KubeClient(loaded, user_agent="raybus-cli") as client:
        try:
            await client.request("GET", "/version", timeout_s=REACH_S)
            installed = await definitions.install_missing(client)
        except KubeError as error:
            raise UserError(
                f"the API server of {kubeconfig} cannot be used: {error.message}",
                f"try: kubectl --kubeconfig {kubeconfig} version",
                EXIT_ENVIRONMENT,
            ) from None
    await _free_leases(nats_url, nkey_file)
    return installed


async def _free_leases(nats_url: str, nkey_file: str) -> None:
    """Nobody holds a lease: the NATS server was just started and only this folder's services use it."""
    bus = NatsBus(nats_url, name="raybus up", nkeys_seed=nkey_file)
    await bus.connect()
    try:
        for controller, partitions in PARTITIONS.items():
            bucket = lease_bucket(controller)
            await provision_leases(bus, controller)
            await bus.purge(bucket_stream(bucket), f"$KV.{bucket}.>")
            await free_partitions(bus, bucket, partitions)
    finally:
        await bus.close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="raybus.cli.prepare", description=__doc__)
    for flag in ("--kubeconfig", "--nats-url", "--nats-nkey-file"):
        parser.add_argument(flag, required=True)
    options = parser.parse_args()
    configure(service="raybus-up", log_format="console")  # standard output is the answer
    try:
        installed = asyncio.run(prepare(options.kubeconfig, options.nats_url, options.nats_nkey_file))
    except UserError as error:
        print(json.dumps({"message": error.message, "hint": error.hint}), file=sys.stderr)
        return EXIT_ENVIRONMENT
    print(*installed, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
