"""`raybus run FILE`: start what is missing, apply the file, follow the Ray object, and end with its verdict."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raybus.cli import apply, follow, manifest, story
from raybus.cli.console import show, tell
from raybus.cli.errors import EXIT_ENVIRONMENT, EXIT_INTERRUPTED, UserError
from raybus.cli.job_log import JobLog
from raybus.cli.manifest import Manifest
from raybus.cli.ray_log import RayLog, access_of
from raybus.cli.submitter_log import SubmitterLog
from raybus.domain.kinds import RAYCLUSTER, RAYJOB
from raybus.kube.client import KubeClient

Ask = Callable[[str], Awaitable[bool]]
# What a deletion may take beyond the TTL: grace of the pods, and a controller that is being restarted.
CLEAN_SLACK_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    replace: bool = False
    until_clean: bool = False
    local: bool = True  # Ray's Services are reached by HTTP_PROXY, else through the API server


async def run(client: KubeClient, path: Path, namespace: str | None, options: RunOptions, ask: Ask) -> int:
    """Apply and follow; the exit code. Ctrl-C asks whether to stop and delete; a second one leaves everything."""
    found = manifest.load(path, namespace)
    subject = await _apply_all(client, found, replace=options.replace)
    if subject["kind"] not in (RAYJOB.kind, RAYCLUSTER.kind):
        return await _until_refused(client, subject)
    following = asyncio.create_task(_follow(client, subject, options), name="follow")
    interrupted = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, interrupted.set)
    waiting = asyncio.create_task(interrupted.wait(), name="ctrl-c")
    try:
        await asyncio.wait({following, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if following.done():
            return following.result()
        loop.remove_signal_handler(signal.SIGINT)
        return await _interrupted(client, subject, ask)
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        for task in (following, waiting):
            task.cancel()
        await asyncio.gather(following, waiting, return_exceptions=True)


async def _apply_all(client: KubeClient, found: Manifest, *, replace: bool) -> Mapping[str, Any]:
    """The subject as it stands on the server. What it refers to is applied before it."""
    others = [obj for obj in found.objects if obj is not found.subject]
    subject: Mapping[str, Any] = {}
    for obj in (*others, found.subject):
        subject, word = await apply.apply(client, obj, replace=replace)
        tell(f"{obj['kind'].lower()}/{subject['metadata']['name']} {word}")
    return subject


async def _follow(client: KubeClient, subject: Mapping[str, Any], options: RunOptions) -> int:
    try:
        if subject["kind"] == RAYCLUSTER.kind:
            return _cluster_verdict(await follow.follow_cluster(client, subject, tell))
        logs = _log_of(client, subject, options)
        view = await follow.follow_job(client, subject, tell, logs)
    except follow.GoneError:
        raise UserError(
            f"{subject['kind']} {subject['metadata']['name']} was deleted meanwhile",
            "run it again if that was not you",
            EXIT_ENVIRONMENT,
        ) from None
    if cause := story.refused(view):
        raise _refusal(subject, view, cause)
    code, line = story.verdict(view)
    tell(line)
    if options.until_clean:
        await _wait_until_clean(client, subject)
    return code


def _refusal(subject: Mapping[str, Any], view: story.View, cause: str) -> UserError:
    meta = subject["metadata"]
    named = cause if cause.startswith(f"{meta['namespace']}/") else f"{meta['namespace']}/{meta['name']}: {cause}"
    # Its cluster was made from the spec as it was, so a mended one needs another.
    again = "run again with --replace" if view.deployment == "Initializing" else "run again"
    return UserError(named, f"mend what it names and {again}")


async def _wait_until_clean(client: KubeClient, subject: Mapping[str, Any]) -> None:
    spec = subject["spec"]
    if not spec.get("shutdownAfterJobFinishes"):
        tell("the cluster stays: spec.shutdownAfterJobFinishes is not set")
        return
    meta = subject["metadata"]
    _, rayjob = await follow.read_job(client, meta["namespace"], meta["name"], meta["uid"])
    ttl = float(spec.get("ttlSecondsAfterFinished", 0))
    tell(f"cluster {rayjob['status']['rayClusterName']}: will be deleted {ttl:.0f} s after the end")
    if not await follow.until_clean(client, rayjob, tell, ttl + CLEAN_SLACK_S):
        raise UserError(
            "the cluster is still there", "`raybus status` shows whether the controllers are ready", EXIT_ENVIRONMENT
        )


def _cluster_verdict(view: story.View) -> int:
    if cause := story.refused(view):
        raise UserError(cause, "mend what it names and run again")
    tell(f"cluster {view.cluster} runs; delete it with kubectl when you are done")
    return 0


def _log_of(client: KubeClient, subject: Mapping[str, Any], options: RunOptions) -> JobLog:
    if (subject.get("spec") or {}).get("submissionMode") == "HTTPMode":
        return RayLog(show, None if options.local else lambda: access_of(client))
    return SubmitterLog(client, subject["metadata"]["namespace"], show)


async def _until_refused(client: KubeClient, subject: Mapping[str, Any]) -> int:
    """A kind that is not followed yet: show what its controller says about it."""
    kind = subject["kind"]
    for _ in range(20):
        for reason, note in await follow.warnings(client, subject):
            raise UserError(f"{kind} {subject['metadata']['name']}: {reason}: {note}", "see docs/differences.md")
        await asyncio.sleep(follow.LOOK_S)
    tell(f"{kind} is applied; `raybus run` follows RayJob and RayCluster")
    return 0


async def _interrupted(client: KubeClient, subject: Mapping[str, Any], ask: Ask) -> int:
    kind = RAYJOB if subject["kind"] == RAYJOB.kind else RAYCLUSTER
    what = f"{subject['kind'].lower()}/{subject['metadata']['name']}"
    if await ask(f"Stop and delete {what} with all it owns?"):
        await apply.delete_and_wait(client, kind, subject)
        tell(f"{what}: deleted")
    else:
        tell(f"{what} goes on; follow it with: raybus logs {what} --follow")
    return EXIT_INTERRUPTED
