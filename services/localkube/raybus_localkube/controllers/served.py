"""Which kinds a server has: its discovery documents, read and understood."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from raybus.domain.kinds import Kind
from raybus.kube import errors
from raybus.kube.client import KubeClient
from raybus_localkube.controllers.controller import Served


async def discover(client: KubeClient) -> tuple[Served, ...]:
    """All resources in the preferred version of their group. Raises KubeError."""
    groups = await client.request("GET", "/apis")
    paths = ["/api/v1", *(f"/apis/{version}" for version in preferred(groups))]
    documents = await asyncio.gather(*(_document(client, path) for path in paths))
    return tuple(served for document in documents for served in understood(document))


async def _document(client: KubeClient, path: str) -> Mapping[str, Any]:
    try:
        return await client.request("GET", path)
    except errors.NotFound:  # the group went between the two requests
        return {"groupVersion": "", "resources": []}


def preferred(groups: Mapping[str, Any]) -> list[str]:
    """The preferred group versions, such as "batch/v1", out of an APIGroupList."""
    return [group["preferredVersion"]["groupVersion"] for group in groups.get("groups") or ()]


def understood(document: Mapping[str, Any]) -> Iterable[Served]:
    """The resources of an APIResourceList, without subresources."""
    group, _, version = document["groupVersion"].rpartition("/")
    for resource in document.get("resources") or ():
        if "/" not in resource["name"]:
            kind = Kind(group, version, resource["kind"], resource["name"], resource["namespaced"])
            yield Served(kind, frozenset(resource.get("verbs") or ()))
