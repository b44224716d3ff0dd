"""`raybus provision` against an API server and a nats-server with the chart's accounts."""

from __future__ import annotations

import asyncio
import datetime as dt
from typing import Any

import pytest

from raybus.bus import permissions
from raybus.domain import kinds
from raybus.kube.client import KubeClient
from raybus.runtime.provision import pki, plan
from raybus.runtime.provision.secrets import Keeper, Place, ProvisionError
from support import waiting
from support.installed import PREFIX, secret

pytestmark = [pytest.mark.kube, pytest.mark.timeout(120)]

NOW = dt.datetime(2026, 11, 30, tzinfo=dt.UTC)
NAMES = ("localhost", "127.0.0.1", "*.nats.example")
ALL = (plan.ca_name(PREFIX), plan.server_name(PREFIX), *(plan.user_name(PREFIX, u.name) for u in permissions.users()))


def place(namespace: str, **more: Any) -> Place:
    return Place(namespace=namespace, prefix=PREFIX, server_names=NAMES, **more)


async def keep(kube: KubeClient, where: Place, now: dt.datetime = NOW) -> list[str]:
    told: list[str] = []
    await Keeper(kube, where, now, told.append).keep()
    return told


async def everything(kube: KubeClient, namespace: str) -> dict[str, dict[str, bytes]]:
    return {name: await secret(kube, namespace, name) for name in ALL}


async def versions(kube: KubeClient, namespace: str) -> dict[str, str]:
    found = await kube.list_all(kinds.SECRET, namespace)
    return {one["metadata"]["name"]: one["metadata"]["resourceVersion"] for one in found}


async def test_secrets_are_made_once_and_kept(kube: KubeClient, namespace: str) -> None:
    assert [line.split()[1] for line in await keep(kube, place(namespace))] == [ALL[0], *ALL[2:], ALL[1]]
    made, written = await everything(kube, namespace), await versions(kube, namespace)

    assert await keep(kube, place(namespace)) == []

    assert await everything(kube, namespace) == made
    assert await versions(kube, namespace) == written, "what is as it should be is not written again"
    assert plan.CA_KEY not in {key for name, data in made.items() if name != ALL[0] for key in data}
    server = made[plan.server_name(PREFIX)]
    for user in permissions.users():
        own = made[plan.user_name(PREFIX, user.name)]
        assert set(own) == {plan.SEED, plan.CA_CERTIFICATE}
        assert server[user.variable] == pki.public_of_seed(own[plan.SEED])


async def test_what_was_removed_comes_back_and_the_rest_stays(kube: KubeClient, namespace: str) -> None:
    await keep(kube, place(namespace))
    before = await everything(kube, namespace)
    await kube.delete(kinds.SECRET, namespace, plan.user_name(PREFIX, "rayjob"))
    await kube.merge_patch(kinds.SECRET, namespace, plan.server_name(PREFIX), {"data": {"GATEWAY_NKEY": None}})

    told = await keep(kube, place(namespace))

    after = await everything(kube, namespace)
    assert f"Secret {PREFIX}-rayjob made" in told
    job, server = plan.user_name(PREFIX, "rayjob"), plan.server_name(PREFIX)
    assert after[server]["RAYJOB_NKEY"] == pki.public_of_seed(after[job][plan.SEED])
    assert {n: d for n, d in after.items() if n not in {job, server}} == {
        n: d for n, d in before.items() if n not in {job, server}
    }
    assert after[server] == before[server] | {"RAYJOB_NKEY": after[server]["RAYJOB_NKEY"]}


async def test_the_servers_certificate_is_renewed_before_its_end_by_the_same_ca(
    kube: KubeClient, namespace: str
) -> None:
    await keep(kube, place(namespace))
    before = await everything(kube, namespace)
    server = plan.server_name(PREFIX)
    assert await keep(kube, place(namespace), NOW + pki.SERVER_LIFE * 0.6) == []

    told = await keep(kube, place(namespace), NOW + pki.SERVER_LIFE * 0.7)

    after = await everything(kube, namespace)
    assert len(told) == 1
    assert "a new certificate: it ends on 2028-11-29; restart the NATS pods" in told[0]
    changed = {key for key in before[server] if before[server][key] != after[server][key]}
    assert changed == {plan.CERTIFICATE, plan.KEY}
    assert {n: d for n, d in after.items() if n != server} == {n: d for n, d in before.items() if n != server}


async def test_another_name_of_the_servers_asks_for_another_certificate(kube: KubeClient, namespace: str) -> None:
    await keep(kube, place(namespace))
    wider = Place(namespace=namespace, prefix=PREFIX, server_names=(*NAMES, "other.example"))

    assert "it does not hold other.example" in (await keep(kube, wider))[0]
    assert await keep(kube, place(namespace)) == [], "a name more does no harm"


async def test_two_at_once_make_one_of_each(kube: KubeClient, namespace: str) -> None:
    told = await asyncio.gather(*(keep(kube, place(namespace)) for _ in range(4)))

    made = [line for lines in told for line in lines if line.endswith("made")]
    assert sorted(made) == sorted(f"Secret {name} made" for name in ALL)
    assert await keep(kube, place(namespace)) == []


class Killed(Exception):
    """Stands for kill -9: nothing of what was to come is done."""


@pytest.mark.parametrize("writes", range(len(ALL)))
async def test_killed_after_any_write_the_next_run_finishes(
    kube: KubeClient, namespace: str, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    done = 0
    create = kube.create

    async def until_killed(*arguments: Any, **more: Any) -> dict[str, Any]:
        nonlocal done
        if done == writes:
            raise Killed
        done += 1
        return await create(*arguments, **more)

    with monkeypatch.context() as patched:
        patched.setattr(kube, "create", until_killed)
        with pytest.raises(Killed):
            await keep(kube, place(namespace))
    there = {name: await secret(kube, namespace, name) for name in await versions(kube, namespace) if name in ALL}

    await keep(kube, place(namespace))

    assert len(there) == writes
    after = await everything(kube, namespace)
    assert {name: after[name] for name in there} == there
    assert await keep(kube, place(namespace)) == []


async def test_they_go_with_their_owner(kube: KubeClient, namespace: str) -> None:
    where = place(namespace, owner="ConfigMap/mine")
    with pytest.raises(ProvisionError, match="no ConfigMap mine"):
        await keep(kube, where)
    owner = await kube.create(kinds.CONFIG_MAP, {"metadata": {"name": "mine", "namespace": namespace}})
    await keep(kube, where)
    assert await _owners(kube, namespace) == {owner["metadata"]["uid"]}

    await kube.delete(kinds.CONFIG_MAP, namespace, "mine")

    async def gone() -> bool:
        return not set(await versions(kube, namespace)) & set(ALL)

    await waiting.found(gone, "the Secrets are collected")


async def _owners(kube: KubeClient, namespace: str) -> set[str]:
    found = [secret for secret in await kube.list_all(kinds.SECRET, namespace) if secret["metadata"]["name"] in ALL]
    assert len(found) == len(ALL)
    return {owner["uid"] for secret in found for owner in secret["metadata"]["ownerReferences"]}


async def test_a_ca_without_its_key_is_not_replaced_in_silence(kube: KubeClient, namespace: str) -> None:
    await keep(kube, place(namespace))
    await kube.merge_patch(kinds.SECRET, namespace, plan.ca_name(PREFIX), {"data": {plan.CA_KEY: None}})

    with pytest.raises(ProvisionError, match=r"has no ca\.crt or no ca\.key") as refused:
        await keep(kube, place(namespace))

    assert "put it back" in refused.value.remedy


@pytest.mark.parametrize(("names", "told"), [(("a b",), "'a b' is no DNS name"), ((), "no name")])
async def test_bad_names_are_told_before_anything_is_made(
    kube: KubeClient, namespace: str, names: tuple[str, ...], told: str
) -> None:
    with pytest.raises(ProvisionError, match=told):
        await keep(kube, Place(namespace=namespace, prefix=PREFIX, server_names=names))

    assert not [name for name in await versions(kube, namespace) if name in ALL]
