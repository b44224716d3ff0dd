"""Brings the ray.io definitions of an API server to where an installation needs them. What is done with each, installed.py decides."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from importlib import metadata
from typing import Any

from raybus.api import installed
from raybus.api.installed import Mode
from raybus.domain.kinds import CRD
from raybus.kube.client import KubeClient
from raybus.kube.errors import Conflict, NotFound
from raybus.observe.logging import get_logger

ESTABLISHED_S = 30.0
WRITER = "raybus"
_LOOK_EVERY_S = 0.2


class DefinitionError(Exception):
    """The definitions are not as they must be; the text says which one and what to do."""


async def apply(client: KubeClient, definitions: Sequence[dict[str, Any]], mode: Mode) -> list[str]:
    """The names of those that were written; returns when all are served. Raises DefinitionError, KubeError.

    Written by server-side apply, so that it can be repeated and a field that somebody else has set meanwhile is noticed.
    """
    version = metadata.version("raybus")
    wrote = []
    for definition in definitions:
        name = definition["metadata"]["name"]
        said = installed.verdict(await _found(client, name), version, mode)
        get_logger().info("definition", name=name, write=said.write, why=said.why)
        if said.unusable:
            raise DefinitionError(f"the definition {name} cannot be used: {said.why}; {_REMEDY}")
        if said.write and await _write(client, installed.signed(definition, version), force=said.force):
            wrote.append(name)
    for definition in definitions:
        await _until_established(client, definition["metadata"]["name"])
    return wrote


_REMEDY = "install them with `raybus crds | kubectl apply --server-side -f -`"


async def _write(client: KubeClient, definition: dict[str, Any], *, force: bool) -> bool:
    try:
        await client.apply(CRD, definition, manager=WRITER, force=force)
    except Conflict as error:
        get_logger().warning(
            "a definition was changed by somebody else and is left as it is",
            name=definition["metadata"]["name"],
            error=error.message,
        )
        return False
    return True


async def _found(client: KubeClient, name: str) -> dict[str, Any] | None:
    try:
        return await client.get(CRD, None, name)
    except NotFound:
        return None


async def _until_established(client: KubeClient, name: str) -> None:
    try:
        async with asyncio.timeout(ESTABLISHED_S):
            while not installed.established(await _found(client, name)):  # noqa: ASYNC110 - the server has no event for it
                await asyncio.sleep(_LOOK_EVERY_S)
    except TimeoutError:
        raise DefinitionError(
            f"the definition {name} is not served after {ESTABLISHED_S:.0f} s; see kubectl describe crd {name}"
        ) from None
