"""Following a Ray object: read what belongs to it every half second, tell what is new, and pass its log on."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from raybus.cli import story
from raybus.cli.job_log import JobLog
from raybus.cli.story import View
from raybus.domain import labels
from raybus.domain.kinds import EVENT, POD, RAYCLUSTER, RAYJOB, Kind
from raybus.kube.client import KubeClient
from raybus.kube.errors import KubeError, NotFound

Tell = Callable[[str], None]
LOOK_S = 0.5
# An API server that restarts answers again within seconds; longer silence is told to the user.
SILENCE_LIMIT_S = 60.0
LOG_DRAIN_S = 10.0


class GoneError(Exception):
    """The object that was followed does not exist any more."""


async def read_job(client: KubeClient, namespace: str, name: str, uid: str) -> tuple[View, Mapping[str, Any]]:
    """The view of a RayJob and the object itself. GoneError if it, this uid of it, is not there."""
    rayjob = await _get(client, RAYJOB, namespace, name)
    if rayjob is None or rayjob["metadata"]["uid"] != uid:
        raise GoneError
    cluster_name = (rayjob.get("status") or {}).get("rayClusterName", "")
    cluster = await _get(client, RAYCLUSTER, namespace, cluster_name) if cluster_name else None
    pods = await _list(client, POD, namespace, {"labelSelector": f"{labels.JOB_NAME}={name}"})
    owned = [pod for pod in pods if pod["metadata"].get("labels", {}).get(labels.ORIGINATED_FROM_NAME) == name]
    events = await _warnings(client, namespace)
    own = {uid} | ({cluster["metadata"]["uid"]} if cluster else set())
    view = story.view_of_job(rayjob, cluster, owned, _about(own, events))
    return await _with_pods(client, namespace, view, owned, events), rayjob


async def read_cluster(client: KubeClient, namespace: str, name: str, uid: str) -> tuple[View, Mapping[str, Any]]:
    """The view of a RayCluster and the object itself. GoneError if it is not there."""
    cluster = await _get(client, RAYCLUSTER, namespace, name)
    if cluster is None or cluster["metadata"]["uid"] != uid:
        raise GoneError
    events = await _warnings(client, namespace)
    view = story.view_of_cluster(cluster, _about({uid}, events))
    return await _with_pods(client, namespace, view, [], events), cluster


async def follow_job(client: KubeClient, rayjob: Mapping[str, Any], tell: Tell, logs: JobLog) -> View:
    """Tell the RayJob's story until it ends or is refused; the last view. Its log is passed on meanwhile."""
    meta = rayjob["metadata"]

    async def read() -> View:
        view, _ = await read_job(client, meta["namespace"], meta["name"], meta["uid"])
        logs.see(view)
        return view

    try:
        view = await _until(read, tell, lambda view: story.ended(view) or bool(story.refused(view)))
        await logs.drain(LOG_DRAIN_S)
        return view
    finally:
        await logs.stop()


async def follow_cluster(client: KubeClient, cluster: Mapping[str, Any], tell: Tell) -> View:
    """Tell the RayCluster's story until it is ready or refused; the last view."""
    meta = cluster["metadata"]

    async def read() -> View:
        return (await read_cluster(client, meta["namespace"], meta["name"], meta["uid"]))[0]

    return await _until(read, tell, lambda view: view.cluster_state == "ready" or bool(story.refused(view)))


async def until_clean(client: KubeClient, rayjob: Mapping[str, Any], tell: Tell, limit_s: float) -> bool:
    """Wait until the RayJob's cluster and its pods are gone; False if they are still there after `limit_s`."""
    namespace = rayjob["metadata"]["namespace"]
    name = rayjob["status"]["rayClusterName"]
    try:
        async with asyncio.timeout(limit_s):
            while await _remains(client, namespace, name):
                await asyncio.sleep(LOOK_S)
    except TimeoutError:
        return False
    tell(f"cluster {name}: gone, with all its pods")
    return True


async def _remains(client: KubeClient, namespace: str, cluster: str) -> bool:
    if await _get(client, RAYCLUSTER, namespace, cluster) is not None:
        return True
    return bool(await _list(client, POD, namespace, {"labelSelector": f"{labels.CLUSTER}={cluster}"}))


async def _until(read: Callable[[], Any], tell: Tell, done: Callable[[View], bool]) -> View:
    before, silent_since = View(), None
    loop = asyncio.get_running_loop()
    while True:
        try:
            view: View = await read()
            silent_since = None
        except KubeError:
            silent_since = silent_since or loop.time()
            if loop.time() - silent_since > SILENCE_LIMIT_S:
                raise
            await asyncio.sleep(LOOK_S)
            continue
        for line in story.news(before, view):
            tell(line)
        if done(view):
            return view
        before = view
        await asyncio.sleep(LOOK_S)


async def _get(client: KubeClient, kind: Kind, namespace: str, name: str) -> dict[str, Any] | None:
    try:
        return await client.request("GET", kind.path(namespace, name))
    except NotFound:
        return None


async def _list(client: KubeClient, kind: Kind, namespace: str, query: Mapping[str, str]) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = (await client.request("GET", kind.path(namespace), query=dict(query)))["items"]
    return items


async def _with_pods(
    client: KubeClient, namespace: str, view: View, submitters: list[dict[str, Any]], events: list[dict[str, Any]]
) -> View:
    """The view with what keeps the cluster's or the submitter's pods from running."""
    pods = list(submitters)
    if view.cluster and events:
        pods += await _list(client, POD, namespace, {"labelSelector": f"{labels.CLUSTER}={view.cluster}"})
    uids = {pod["metadata"]["uid"] for pod in pods}
    return dataclasses.replace(view, pod_warnings=story.pod_warnings_of(_about(uids, events)))


async def _warnings(client: KubeClient, namespace: str) -> list[dict[str, Any]]:
    return await _list(client, EVENT, namespace, {"fieldSelector": "type=Warning", "limit": "500"})


def _about(uids: set[str], events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event for event in events if (event.get("regarding") or {}).get("uid") in uids]


async def warnings(client: KubeClient, obj: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Reason and note of the Warning events on one object."""
    meta = obj["metadata"]
    return story.warnings_of(_about({meta["uid"]}, await _warnings(client, meta["namespace"])))
