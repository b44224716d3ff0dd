"""The `raybus` command: each command is a few lines here and a module beside."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from raybus.cli import console, get, local, manifest, provision, up
from raybus.cli.errors import EXIT_ENVIRONMENT, UserError
from raybus.cli.layout import Layout, open_layout
from raybus.cli.local import UpOptions
from raybus.cli.logs import show_log
from raybus.cli.run import RunOptions
from raybus.cli.run import run as run_file
from raybus.kube import config
from raybus.kube.client import KubeClient

app = typer.Typer(
    name="raybus",
    help="Ray clusters and jobs from ray.io/v1 YAML, on this machine or against a Kubernetes cluster.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Dir = Annotated[
    Path | None,
    typer.Option("--dir", help="folder of the local Raybus (default: $RAYBUS_DIR, else ~/.local/state/raybus)"),
]
Kubeconfig = Annotated[
    str | None, typer.Option("--kubeconfig", help="a cluster elsewhere instead of the local one", show_default=False)
]
Namespace = Annotated[str | None, typer.Option("--namespace", "-n", help="namespace (default: default)")]
Passed = Annotated[str | None, typer.Option(show_default=False)]


def _version(asked: bool) -> None:
    if asked:
        print(metadata.version("raybus"))
        raise typer.Exit


@app.callback()
def every_command(
    version: Annotated[bool, typer.Option("--version", help="print the version and end", callback=_version)] = False,
) -> None:
    """Options before any command."""


@app.command("up")
def up_command(
    directory: Dir = None,
    kubeconfig: Kubeconfig = None,
    foreground: Annotated[bool, typer.Option("--foreground", help="stay; SIGTERM or Ctrl-C ends everything")] = False,
    health_port: Annotated[
        int, typer.Option("--health-port", min=0, max=65535, help="/readyz of the whole on this port; 0: none")
    ] = 0,
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="port of the local API server; 0: drawn once")
    ] = 0,
    namespaces: Annotated[
        str | None, typer.Option(help="namespaces to look after, separated by commas", show_default=False)
    ] = None,
    use_kubernetes_proxy: Annotated[
        bool, typer.Option("--use-kubernetes-proxy", help="reach Ray through the API server, from outside its cluster")
    ] = False,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="start although a KubeRay operator is at work on the same namespaces")
    ] = False,
    feature_gates: Annotated[str | None, typer.Option(help="Name=true,Name=false", show_default=False)] = None,
    config_file: Annotated[
        str | None, typer.Option("--config", help="file of kind Configuration", show_default=False)
    ] = None,
    batch_scheduler: Annotated[str | None, typer.Option(help="not supported yet", show_default=False)] = None,
) -> None:
    """Start everything: on this machine, or with --kubeconfig only NATS, gateway and controllers for that cluster."""
    options = UpOptions(
        kubeconfig=kubeconfig or "",
        health_port=health_port,
        port=port,
        controller_flags={
            "--namespaces": namespaces,
            "--feature-gates": feature_gates,
            "--config": config_file,
            "--batch-scheduler": batch_scheduler,
        },
        use_kubernetes_proxy=use_kubernetes_proxy,
        take_over=take_over,
    )
    if foreground:
        up.stay(_layout(directory), options)
    console.end(lambda: up.up(_layout(directory), options))


@app.command("down")
def down_command(directory: Dir = None) -> None:
    """Stop everything that `raybus up` or `raybus run` started. State stays in the folder."""
    console.end(lambda: up.down(_layout(directory)))


@app.command("status")
def status_command(
    directory: Dir = None,
    output: Annotated[str, typer.Option("--output", "-o", help="table or json")] = "table",
) -> None:
    """The services with pid, readiness, ports and log files, and the kubeconfig's path."""
    console.run(up.status(_layout(directory), output))


@app.command("run")
def run_command(
    file: Annotated[Path, typer.Argument(help="YAML with a RayJob or RayCluster and what it needs")],
    directory: Dir = None,
    kubeconfig: Kubeconfig = None,
    namespace: Namespace = None,
    replace: Annotated[
        bool,
        typer.Option("--replace", help="delete a RayJob of this name that has ended or was refused, and run again"),
    ] = False,
    until_clean: Annotated[
        bool, typer.Option("--until-clean", help="wait until its cluster is gone, if it goes")
    ] = False,
) -> None:
    """Start what is missing, apply the file, follow the Ray object. The exit code is the verdict."""

    async def work() -> int:
        manifest.load(file, namespace)  # a bad file is told before anything is started
        options = RunOptions(replace=replace, until_clean=until_clean, local=not kubeconfig)
        path = kubeconfig or _started(_layout(directory))
        async with KubeClient(_config(path), user_agent="raybus-cli") as client:
            return await run_file(client, file, namespace, options, _ask)

    console.run(work())


@app.command("logs")
def logs_command(
    name: Annotated[str, typer.Argument(help="rayjob/NAME, or NAME")],
    directory: Dir = None,
    kubeconfig: Kubeconfig = None,
    namespace: Namespace = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="go on until the job has ended")] = False,
) -> None:
    """The output of a RayJob, from its submitter's pod or from Ray."""

    async def work() -> int:
        layout = _layout(directory)
        path = kubeconfig or local.kubeconfig_of(layout)
        if not kubeconfig:
            local.use_proxy(layout)
        async with KubeClient(_config(path), user_agent="raybus-cli") as client:
            _, job = get.split_name(name)
            return await show_log(client, namespace or "default", job, follow_on=follow, local=not kubeconfig)

    console.run(work())


@app.command("get")
def get_command(
    what: Annotated[str | None, typer.Argument(help="a kind, or KIND/NAME; default: all that Ray objects own")] = None,
    directory: Dir = None,
    kubeconfig: Kubeconfig = None,
    namespace: Namespace = None,
    output: Annotated[str, typer.Option("--output", "-o", help="table, json or yaml")] = "table",
) -> None:
    """Ray objects, and the Jobs and pods that they own."""

    async def work() -> int:
        path = kubeconfig or local.kubeconfig_of(_layout(directory))
        async with KubeClient(_config(path), user_agent="raybus-cli") as client:
            return await _get(client, what, namespace, output)

    console.run(work())


app.command("provision")(provision.command)


@app.command("crds")
def crds_command() -> None:
    """The definitions of the four ray.io kinds as YAML: raybus crds | kubectl apply --server-side -f -"""
    from raybus.api import crds  # noqa: PLC0415 - building them takes a moment that other commands need not wait

    print(crds.as_yaml(), end="")


@app.command("doctor")
def doctor_command(
    directory: Dir = None,
    kubeconfig: Annotated[
        str | None, typer.Option("--kubeconfig", help="check the installation in this cluster", show_default=False)
    ] = None,
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="where it is installed (default: look everywhere)")
    ] = None,
    output: Annotated[str, typer.Option("--output", "-o", help="table or json")] = "table",
    nats_url: Annotated[
        str | None, typer.Option(help="ask NATS directly: tls://localhost:4222", show_default=False)
    ] = None,
    nats_nkey_file: Annotated[str, typer.Option(help="file with a NATS NKey seed", show_default=False)] = "",
    nats_credentials_file: Annotated[str, typer.Option(help="file with NATS credentials", show_default=False)] = "",
    nats_ca_file: Annotated[str, typer.Option(help="CA certificate of NATS", show_default=False)] = "",
    nats_inbox_prefix: Annotated[str, typer.Option(help="where answers of NATS arrive")] = "_INBOX",
) -> None:
    """Check an installation, or without --kubeconfig this machine and the local Raybus, and say what to do. Exit code 1: a check failed."""
    from raybus.cli import doctor  # noqa: PLC0415 - what it needs takes a moment that other commands need not wait

    nats = nats_url and doctor.NatsAddress(
        url=nats_url,
        nkey_file=nats_nkey_file,
        credentials_file=nats_credentials_file,
        ca_file=nats_ca_file,
        inbox_prefix=nats_inbox_prefix,
    )
    console.run(doctor.run(directory, kubeconfig, namespace, output, nats or None))


async def _get(client: KubeClient, what: str | None, namespace: str | None, output: str) -> int:
    if output not in ("table", "json", "yaml"):
        raise UserError(f"no output {output!r}", "table, json or yaml")
    kind, name = (None, "") if what is None else get.split_word(what)
    found: list[dict[str, Any]] = []
    for each in get.COLUMNS if kind is None else (kind,):
        items = await get.objects(client, each, namespace, name)
        found += items
        if output == "table" and items:
            console.out.print(get.table(each, items, dt.datetime.now(dt.UTC)))
            console.out.print()
    if output == "json":
        print(json.dumps(found, indent=2))
    if output == "yaml":
        print(yaml.safe_dump_all(found, sort_keys=False), end="")
    if output == "table" and not found:
        console.err.print("nothing here yet; try: raybus run job.yaml")
    return 0


def _started(layout: Layout) -> str:
    """The kubeconfig of a local Raybus that runs, started if it does not."""
    if not layout.place.running():
        console.tell("starting a local Raybus: an API server, NATS, the gateway and the controllers")
        console.tell(f"state and logs are in {layout.root}; `raybus down` stops it")
    up.start(layout, UpOptions())
    local.use_proxy(layout)
    return str(layout.kubeconfig)


async def _ask(question: str) -> bool:
    try:
        return await asyncio.to_thread(typer.confirm, question, default=False, err=True)
    except typer.Abort:
        return False


def _layout(directory: Path | None) -> Layout:
    try:
        return open_layout(directory)
    except UserError as error:
        console.fail(error)


def _config(path: str) -> config.KubeConfig:
    try:
        return config.load(path)
    except config.ConfigError as error:
        raise UserError(str(error), "name another with --kubeconfig", EXIT_ENVIRONMENT) from None


def main() -> None:
    app()


if __name__ == "__main__":
    main()
