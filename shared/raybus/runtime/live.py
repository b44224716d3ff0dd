"""Reads a tree afresh from the API server, through the same routes as the news: what a destructive plan is confirmed by."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from raybus.bus.routing import roots_of
from raybus.decide.actions import Json
from raybus.decide.routes import Route, Via
from raybus.decide.tree import RootKey, Tree
from raybus.domain import kinds, labels
from raybus.kube.errors import NotFound
from raybus.runtime.ports import Kube

READ_TIMEOUT_S = 30.0


async def read(kube: Kube, routes: tuple[Route, ...], seen: Tree) -> list[Json]:
    """All objects of the tree, the root included, as the API server has them now. Raises KubeError, TimeoutError.

    `seen` is the tree as the mirror shows it. Jobs are read one by one, under the names seen and the root's own: a namespace may
    hold thousands of others.
    """
    key = seen.key
    routes = tuple(route for route in routes if route.root_kind == key.kind)
    direct = [route for route in routes if route.via is not Via.CLUSTER]
    async with asyncio.timeout(READ_TIMEOUT_S):
        found = await asyncio.gather(*(_direct(kube, route, key, seen) for route in direct))
        objects = [obj for objs in found for obj in objs]
        clusters = sorted(obj["metadata"]["name"] for obj in objects if obj.get("kind") == kinds.RAYCLUSTER.kind)
        for route in routes:
            if route.via is Via.CLUSTER and clusters:
                selector = f"{labels.CLUSTER} in ({','.join(clusters)})"
                objects += await kube.list_all(
                    route.kind, key.namespace, label_selector=_joined(selector, route.selector)
                )
    return list({obj["metadata"]["uid"]: obj for obj in objects}.values())


async def _direct(kube: Kube, route: Route, key: RootKey, seen: Tree) -> list[Json]:
    if route.via is Via.ROOT:
        return await _named(kube, route, key, (key.name,))
    if route.via is Via.OWNER and route.kind == kinds.JOB:
        names = {obj["metadata"]["name"] for obj in seen.of(route.kind.kind)}
        return await _named(kube, route, key, sorted({key.name, *names}))
    terms = [f"{name}={value}" for name, value in route.label_equals]
    if route.via is Via.LABEL:
        terms.append(f"{route.label}={key.name}")
    listed = await kube.list_all(route.kind, key.namespace, label_selector=_joined(*terms, route.selector))
    return [obj for obj in listed if key in roots_of(route, obj)]


async def _named(kube: Kube, route: Route, key: RootKey, names: Iterable[str]) -> list[Json]:
    found: list[Json] = []
    for name in names:
        try:
            obj = await kube.get(route.kind, key.namespace, name)
        except NotFound:
            continue
        if key in roots_of(route, obj):
            found.append(obj)
    return found


def _joined(*terms: str) -> str:
    return ",".join(filter(None, terms))
