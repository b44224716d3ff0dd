"""Looks for KubeRay's operator before a controller begins, and refuses to work beside it on the same namespaces.

What it means is decided in raybus.runtime.coexistence; here it is fetched. Nothing is written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TypeVar

from raybus.decide.actions import Json
from raybus.decide.rights import REFERENCE_LEASE
from raybus.domain import kinds
from raybus.domain.kinds import Kind
from raybus.kube.client import KubeClient
from raybus.kube.errors import Forbidden, KubeError, NotFound
from raybus.observe.logging import get_logger
from raybus.runtime import coexistence
from raybus.runtime.coexistence import Leader, Watched
from raybus.runtime.connections import KUBE_RETRY_S, KUBE_WAIT_S, StartError

T = TypeVar("T")
_FIELD = f"metadata.name={REFERENCE_LEASE}"


async def refuse_beside_another(
    kube: KubeClient, namespaces: tuple[str, ...], *, take_over: bool, now: Callable[[], datetime]
) -> None:
    """Raises StartError if a live operator looks after a namespace of ours; with `take_over` that is only said in the log."""
    log = get_logger()
    for lease in await _leases(kube, namespaces):
        found = coexistence.leader(lease, now())
        if found is None:
            continue
        watch = await watched(kube, found)
        both = coexistence.overlap(frozenset(namespaces), watch.namespaces)
        facts = {"namespace": found.namespace, "holder": found.holder, "watches": sorted(watch.namespaces) or "all"}
        if both is None:
            log.info("a KubeRay operator looks after other namespaces", known_by=watch.why, **facts)
        elif take_over:
            log.warning("working beside a KubeRay operator, as told by --take-over", known_by=watch.why, **facts)
        else:
            raise StartError(coexistence.refusal(found, watch, both, now()))


async def _leases(kube: KubeClient, namespaces: tuple[str, ...]) -> list[Json]:
    """The operator's Leases, of which each namespace may have one: all of the cluster, or those that may be seen."""
    try:
        return await _listed(kube, None)
    except Forbidden:
        places = sorted({*namespaces, kube.config.namespace})
        get_logger().info("no right to list Leases in all namespaces: looking for KubeRay's in some", namespaces=places)
    found: list[Json] = []
    for place in places:
        try:
            found += await _listed(kube, place)
        except Forbidden:
            get_logger().info("no right to list Leases: a KubeRay operator here would not be noticed", namespace=place)
    return found


async def _listed(kube: KubeClient, namespace: str | None) -> list[Json]:
    return list(await _patiently(lambda: kube.list_all(kinds.LEASE, namespace, field_selector=_FIELD)))


async def watched(kube: KubeClient, found: Leader) -> Watched:
    """What this operator looks after, as far as it may be seen. Raises StartError if the server is silent."""
    pod = await _seen(kube, kinds.POD, found.namespace, found.pod)
    place = coexistence.config_file(pod) if pod else None
    held = await _seen(kube, kinds.CONFIG_MAP, found.namespace, place.config_map) if place else None
    text = (held.get("data") or {}).get(place.key) if held and place else None
    return coexistence.watched(pod, text)


async def _seen(kube: KubeClient, kind: Kind, namespace: str, name: str) -> Json | None:
    """None if there is none, or no right to see it."""
    try:
        return await _patiently(lambda: kube.get(kind, namespace, name))
    except (Forbidden, NotFound):
        return None


async def _patiently(ask: Callable[[], Awaitable[T]]) -> T:
    """The answer, of a server that may be away for a while. Raises Forbidden and NotFound; StartError after a minute."""
    loop = asyncio.get_running_loop()
    until = loop.time() + KUBE_WAIT_S
    while True:
        try:
            return await ask()
        except (Forbidden, NotFound):
            raise
        except KubeError as error:
            if loop.time() > until:
                raise StartError(f"cannot see whether a KubeRay operator is at work: {error.message}") from None
        await asyncio.sleep(KUBE_RETRY_S)
