"""`raybus logs rayjob/NAME`: the output of a job that runs or ran."""

from __future__ import annotations

from raybus.cli import follow, story
from raybus.cli.console import show
from raybus.cli.errors import EXIT_ENVIRONMENT, UserError
from raybus.cli.ray_log import RayLog, access_of
from raybus.domain.kinds import POD, RAYJOB
from raybus.kube.client import KubeClient
from raybus.kube.errors import KubeError, NotFound

DRAIN_S = 30.0


async def show_log(client: KubeClient, namespace: str, name: str, *, follow_on: bool, local: bool) -> int:
    """Print the log; with `follow_on` until the job has ended. Exit code 0 if there was one to print."""
    try:
        rayjob = await client.get(RAYJOB, namespace, name)
    except NotFound:
        raise UserError(f"no RayJob {name} in namespace {namespace}", "`raybus get rayjobs` lists them") from None
    view, _ = await follow.read_job(client, namespace, name, rayjob["metadata"]["uid"])
    if rayjob["spec"].get("submissionMode", "K8sJobMode") == "HTTPMode":
        return await _from_ray(client, view, local=local)
    if not view.submitter:
        raise UserError(
            f"RayJob {name} has no output yet: its submitter has not started",
            f"`raybus get rayjob/{name}` shows its state",
            EXIT_ENVIRONMENT,
        )
    query = {"follow": "true"} if follow_on and not story.ended(view) else {}
    try:
        async for line in client.stream_lines(POD.path(namespace, view.submitter, "log"), query):
            show(line.decode(errors="replace"))
    except NotFound as error:
        raise UserError(
            f"the log is gone: {error.message}", "logs live as long as their pod", EXIT_ENVIRONMENT
        ) from None
    except KubeError as error:
        raise UserError(f"cannot read the log: {error.message}", "try again", EXIT_ENVIRONMENT) from None
    return 0


async def _from_ray(client: KubeClient, view: story.View, *, local: bool) -> int:
    lines = 0

    def write(line: str) -> None:
        nonlocal lines
        lines += 1
        show(line)

    log = RayLog(write, None if local else lambda: access_of(client))
    log.see(view)
    await log.drain(DRAIN_S)
    await log.stop()
    if not lines:
        raise UserError("Ray does not answer for this job's log", "it goes with its cluster", EXIT_ENVIRONMENT)
    return 0
