"""Definitions on a real API server: under names of this test alone, because those of ray.io are shared with other tests."""

from __future__ import annotations

import copy
import secrets
from collections.abc import AsyncIterator
from importlib import metadata
from typing import Any

import pytest

from raybus.api import crds, installed
from raybus.api.installed import Mode
from raybus.domain.kinds import CRD
from raybus.kube.client import KubeClient
from raybus.kube.config import load
from raybus.runtime import definitions
from support.kube import RealKube

pytestmark = [pytest.mark.realkube]
VERSION = metadata.version("raybus")


@pytest.fixture
async def client(realkube: RealKube) -> AsyncIterator[KubeClient]:
    async with KubeClient(load(realkube.kubeconfig), user_agent="raybus-tests") as client:
        yield client


@pytest.fixture
async def wanted(client: KubeClient) -> AsyncIterator[list[dict[str, Any]]]:
    group = f"test-{secrets.token_hex(4)}.ray.io"
    made = copy.deepcopy(crds.build()[:2])
    for definition in made:
        definition["spec"]["group"] = group
        for version in definition["spec"]["versions"]:  # the real schemas cost the API server seconds each
            version["schema"] = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
        definition["metadata"]["name"] = f"{definition['spec']['names']['plural']}.{group}"
    yield made
    for definition in made:
        await client.delete(CRD, None, definition["metadata"]["name"])


async def found(client: KubeClient, definition: dict[str, Any]) -> dict[str, Any]:
    return await client.get(CRD, None, definition["metadata"]["name"])


def columns(definition: dict[str, Any]) -> list[dict[str, Any]]:
    columns = definition["spec"]["versions"][0].get("additionalPrinterColumns") or []
    return [{key: column[key] for key in ("name", "jsonPath")} for column in columns]


async def test_missing_ones_are_made_and_a_second_time_nothing_changes(
    client: KubeClient, wanted: list[dict[str, Any]]
) -> None:
    wrote = await definitions.apply(client, wanted, Mode.INSTALL)
    assert wrote == [definition["metadata"]["name"] for definition in wanted]
    first = await found(client, wanted[0])
    assert first["metadata"]["annotations"][installed.VERSION] == VERSION
    await definitions.apply(client, wanted, Mode.INSTALL)
    assert (await found(client, wanted[0]))["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


async def test_one_of_somebody_else_stays_as_it_is_unless_it_is_to_be_replaced(
    client: KubeClient, wanted: list[dict[str, Any]]
) -> None:
    foreign = copy.deepcopy(wanted[0])
    foreign["spec"]["versions"][0]["additionalPrinterColumns"] = []
    await client.create(CRD, foreign)
    wrote = await definitions.apply(client, wanted, Mode.INSTALL)
    assert wanted[0]["metadata"]["name"] not in wrote
    assert columns(await found(client, foreign)) == []
    await definitions.apply(client, wanted, Mode.REPLACE)
    assert columns(await found(client, foreign)) == columns(wanted[0])


async def test_an_older_one_of_ours_is_updated_but_for_what_somebody_changed_in_it(
    client: KubeClient, wanted: list[dict[str, Any]]
) -> None:
    for definition in wanted:
        older = copy.deepcopy(definition)
        older["spec"]["versions"][0]["additionalPrinterColumns"] = []
        await client.apply(CRD, installed.signed(older, "0.0.1"), manager=definitions.WRITER)
    changed = copy.deepcopy(wanted[1]["spec"]["versions"])
    changed[0]["additionalPrinterColumns"] = changed[0]["additionalPrinterColumns"][:1]
    await client.merge_patch(CRD, None, wanted[1]["metadata"]["name"], {"spec": {"versions": changed}})
    assert await definitions.apply(client, wanted, Mode.INSTALL) == [wanted[0]["metadata"]["name"]]
    assert columns(await found(client, wanted[0])) == columns(wanted[0])
    assert len(columns(await found(client, wanted[1]))) == 1


async def test_with_skip_a_missing_one_is_an_error_that_names_it_and_the_remedy(
    client: KubeClient, wanted: list[dict[str, Any]]
) -> None:
    for definition in wanted[1:]:
        await client.create(CRD, definition)
    with pytest.raises(definitions.DefinitionError, match=f"{wanted[0]['metadata']['name']} .*raybus crds"):
        await definitions.apply(client, wanted, Mode.SKIP)
    await client.create(CRD, wanted[0])  # for the fixture
