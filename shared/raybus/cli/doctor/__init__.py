"""`raybus doctor`: facts are gathered (gather, local), judged (checks, installation, machine) and shown (report)."""

from __future__ import annotations

from pathlib import Path

from raybus.cli.doctor import checks, gather, local, machine, report
from raybus.cli.doctor.facts import Finding
from raybus.cli.doctor.gather import NatsAddress
from raybus.cli.errors import EXIT_ENVIRONMENT, UserError
from raybus.kube import config
from raybus.kube.pages import PageClient

__all__ = ["NatsAddress", "run"]


async def run(
    directory: Path | None, kubeconfig: str | None, namespace: str | None, output: str, nats: NatsAddress | None
) -> int:
    """Print the findings; 1 if one is a failure, else 0.

    With a kubeconfig the installation by the chart in that cluster is looked at, without one this machine, and the cluster that a
    running `raybus up --kubeconfig` serves.
    """
    if output not in ("table", "json"):
        raise UserError(f"no output {output!r}", "table or json")
    found: list[Finding] = []
    if kubeconfig:
        found += await _cluster(kubeconfig, namespace, expected=True, nats=nats)
    else:
        found += machine.findings(await local.machine(directory))
        if served := local.served_elsewhere(directory):
            found += await _cluster(served, namespace, expected=False, nats=nats)
    report.show(found, output)
    return report.exit_code(found)


async def _cluster(
    kubeconfig: str, namespace: str | None, *, expected: bool, nats: NatsAddress | None
) -> list[Finding]:
    try:
        loaded = config.load(kubeconfig)
    except config.ConfigError as error:
        raise UserError(str(error), "name another with --kubeconfig", EXIT_ENVIRONMENT) from None
    async with PageClient(loaded, user_agent="raybus-cli") as client:
        return checks.findings(await gather.cluster(client, namespace, expected=expected, nats=nats))
