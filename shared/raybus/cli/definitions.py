"""Installing the ray.io definitions where they are missing. KubeRay's own are accepted as they are."""

from __future__ import annotations

import asyncio
from typing import Any

from raybus.api import crds, installed
from raybus.cli.errors import EXIT_ENVIRONMENT, UserError
from raybus.domain.kinds import CRD
from raybus.kube.client import KubeClient
from raybus.kube.errors import AlreadyExists, Forbidden, NotFound

ESTABLISHED_S = 30.0


async def install_missing(client: KubeClient) -> list[str]:
    """The names of the definitions that were installed; returns when all are served."""
    installed = []
    definitions = crds.build()
    for definition in definitions:
        if await _found(client, definition["metadata"]["name"]) is None:
            await _create(client, definition)
            installed.append(definition["metadata"]["name"])
    for definition in definitions:
        await _until_established(client, definition["metadata"]["name"])
    return installed


async def _found(client: KubeClient, name: str) -> dict[str, Any] | None:
    try:
        return await client.get(CRD, None, name)
    except NotFound:
        return None


async def _create(client: KubeClient, definition: dict[str, Any]) -> None:
    try:
        await client.create(CRD, definition)
    except AlreadyExists:
        return
    except Forbidden as error:
        raise UserError(
            f"no right to install {definition['metadata']['name']}: {error.message}",
            "have somebody with the right run: raybus crds | kubectl apply --server-side -f -",
            EXIT_ENVIRONMENT,
        ) from None


async def _until_established(client: KubeClient, name: str) -> None:
    try:
        async with asyncio.timeout(ESTABLISHED_S):
            while not installed.established(await _found(client, name)):
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise UserError(
            f"the definition {name} is not served after {ESTABLISHED_S:.0f} s",
            f"see kubectl describe crd {name}",
            EXIT_ENVIRONMENT,
        ) from None
