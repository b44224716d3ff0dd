"""Objects whose bodies did not fit into a message are read by name and handed to the mirror."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from raybus.bus.entry import Ref
from raybus.kube import errors
from raybus.runtime.references import ReferenceReader
from support.scripted import Kube, Mirror, cluster, key_of

REF = Ref("RayCluster", "ns", "c1", "uid-ns-c1", "7")


class Bench:
    def __init__(self) -> None:
        self.kube, self.mirror = Kube(), Mirror()
        self.reader = ReferenceReader(self.kube, self.mirror, self.mirror.upsert)

    async def want(self, *refs: Ref) -> None:
        for ref in refs:
            self.reader.want(key_of(ref.name), ref)
        await asyncio.sleep(0.02)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench()
    bench.reader.start()
    yield bench
    await bench.reader.close()


async def test_a_large_object_is_read_and_handed_over(bench: Bench) -> None:
    bench.kube.add(cluster("c1"))

    await bench.want(REF)

    assert set(bench.mirror.objects) == {"uid-ns-c1"}


async def test_several_versions_of_one_object_are_read_once(bench: Bench) -> None:
    bench.kube.add(cluster("c1"))

    await bench.want(REF, REF._replace(resource_version="8"), REF._replace(resource_version="9"))

    assert bench.kube.calls == [("get", "RayCluster/c1")]


async def test_one_that_is_gone_meanwhile_is_gone_from_the_mirror(bench: Bench) -> None:
    bench.mirror.upsert(cluster("c1"))

    await bench.want(REF)

    assert bench.mirror.objects == {}


async def test_a_read_that_fails_is_tried_again(bench: Bench) -> None:
    bench.kube.add(cluster("c1"))
    bench.kube.fail["get"] = [errors.KubeError(500, "InternalError", "boom"), errors.NoAnswer("down")]

    await bench.want(REF)
    await asyncio.sleep(0.3)

    assert set(bench.mirror.objects) == {"uid-ns-c1"}
