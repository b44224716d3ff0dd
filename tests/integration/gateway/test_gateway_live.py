"""Gateway processes between an API server and a nats-server, and what happens when one of the three dies.

One module, although long: all tests are played in the same scene.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Self

import orjson
import pytest

from raybus.bus.nats import NatsBus
from raybus.bus.streams import provision
from raybus.bus.transport import Message
from raybus.decide.routes import FULL, Route, Via
from raybus.domain import kinds, labels
from raybus.kube.client import KubeClient
from raybus.kube.config import load
from support.gateways import JOB_ROUTES, LEASE_TTL_S, GatewayProcess, Reader, no_owner_yet
from support.kube import RealKube, fresh_namespace, install_crds
from support.nats import NatsServer
from support.recording import Recording
from support.routes import CLUSTER_ROUTES
from support.waiting import eventually

pytestmark = pytest.mark.kube

CLUSTER_PODS = "ray.io/cluster"
SUBMITTER_PODS = "ray.io/originated-from-cr-name,ray.io/originated-from-crd=RayJob"

TEMPLATE = {
    "spec": {"containers": [{"name": "ray", "image": "ray:1", "env": [{"name": "PASSWORD", "value": "s3cret"}]}]}
}


class Scene:
    """An API server, a nats-server, readers for two controllers, and gateways."""

    def __init__(self, folder: Path, nats: NatsServer, kubeconfig: str, kube: KubeClient, namespace: str) -> None:
        self.folder, self.nats, self.kubeconfig, self.kube, self.namespace = folder, nats, kubeconfig, kube, namespace
        self.bus = NatsBus(nats.url)
        self.clusters = Reader(self.bus, "raycluster", CLUSTER_ROUTES)
        self.jobs = Reader(self.bus, "rayjob", JOB_ROUTES)
        self._gateways: list[GatewayProcess] = []

    async def __aenter__(self) -> Self:
        await self.bus.connect()
        await no_owner_yet(self.bus)
        await self.clusters.start()
        await self.jobs.start()
        return self

    async def __aexit__(self, *_error: object) -> None:
        for gateway in self._gateways:
            gateway.end()
        await self.clusters.close()
        await self.jobs.close()
        await self.bus.close()

    def gateway(self, replica: str, *flags: str) -> GatewayProcess:
        started = GatewayProcess(self.folder, self.nats.url, self.kubeconfig, replica, *flags)
        self._gateways.append(started)
        return started

    async def pair(self, *flags: str) -> tuple[GatewayProcess, GatewayProcess]:
        """Two gateways: the active one and the one that stands by. Which is which, their ids decide."""
        pair = self.gateway("one", *flags), self.gateway("two", *flags)
        await eventually_roles(*pair)
        return pair if await pair[0].role() == "active" else (pair[1], pair[0])

    async def cluster(self, name: str, job: str = "") -> dict[str, Any]:
        own = {labels.ORIGINATED_FROM_NAME: job, labels.ORIGINATED_FROM_CRD: "RayJob"} if job else {}
        body = {
            "apiVersion": "ray.io/v1",
            "kind": "RayCluster",
            "metadata": {"name": name, "namespace": self.namespace, "labels": own},
            "spec": {"headGroupSpec": {"rayStartParams": {}, "template": TEMPLATE}},
        }
        return await self.kube.create(kinds.RAYCLUSTER, body)

    async def pod(self, name: str, cluster: str = "", job: str = "") -> dict[str, Any]:
        own = {labels.CLUSTER: cluster} if cluster else {}
        own |= {labels.ORIGINATED_FROM_NAME: job, labels.ORIGINATED_FROM_CRD: "RayJob"} if job else {}
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": self.namespace, "labels": own},
            **TEMPLATE,
        }
        return await self.kube.create(kinds.POD, body)

    async def annotate(self, kind: kinds.Kind, name: str, value: str) -> dict[str, Any]:
        patch = {"metadata": {"annotations": {"test": value}}}
        return await self.kube.merge_patch(kind, self.namespace, name, patch)

    async def label(self, kind: kinds.Kind, name: str, **values: str | None) -> dict[str, Any]:
        """Set labels; None removes one."""
        return await self.kube.merge_patch(kind, self.namespace, name, {"metadata": {"labels": values}})

    def cluster_tree(self, name: str) -> set[tuple[str, str]]:
        return set(self.clusters.tree(name, self.namespace))

    def job_tree(self, name: str) -> set[tuple[str, str]]:
        return set(self.jobs.tree(name, self.namespace))

    def version(self, cluster: str, kind: str, name: str) -> str:
        found = self.clusters.tree(cluster, self.namespace).get((kind, name))
        return found.resource_version if found else ""

    async def arrives(self, obj: dict[str, Any], cluster: str, within_s: float = 20.0) -> None:
        meta = obj["metadata"]
        kind = obj.get("kind", "Pod")
        expected = meta["resourceVersion"]
        await eventually(
            lambda: self.version(cluster, kind, meta["name"]) == expected, f"{kind} {meta['name']}", within_s=within_s
        )


async def eventually_roles(*gateways: GatewayProcess) -> None:
    async with asyncio.timeout(60):
        while True:
            if sorted([await gateway.role() for gateway in gateways]) == ["active", "standby"]:
                return
            await asyncio.sleep(0.05)


@pytest.fixture
async def scene(tmp_path: Path, nats_server: NatsServer, kubeconfig: str) -> AsyncIterator[Scene]:
    async with KubeClient(load(kubeconfig)) as kube:
        await install_crds(kube)
        async with (
            fresh_namespace(kube) as namespace,
            Scene(tmp_path, nats_server, kubeconfig, kube, namespace) as made,
        ):
            yield made


class TestWhatArrives:
    async def test_objects_in_their_trees_markers_and_history(self, scene: Scene) -> None:
        history: list[Message] = []
        gateway = scene.gateway("one")
        await gateway.ready()
        follower = await scene.bus.follow("RAYHIST", ("ray.hist.gateway.>",), on_message=history.append)
        await scene.cluster("c1", job="j1")
        await scene.pod("p1", cluster="c1")
        await scene.pod("unrelated")
        await eventually(lambda: ("Pod", "p1") in scene.cluster_tree("c1"))
        await eventually(lambda: scene.job_tree("j1") == {("RayCluster", "c1"), ("Pod", "p1")})
        assert scene.cluster_tree("c1") == {("RayCluster", "c1"), ("Pod", "p1")}

        pod = scene.clusters.tree("c1", scene.namespace)["Pod", "p1"]
        assert b"s3cret" not in pod.body
        assert orjson.loads(pod.body)["spec"]["containers"] == [{"name": "ray"}]
        assert pod.cluster == await scene.kube.cluster_uid()
        assert not [m for m in scene.clusters.log if m.address.name == "unrelated"]
        for reader, marked in ((scene.clusters, ("RayCluster", "Pod")), (scene.jobs, ("RayJob", "RayCluster", "Pod"))):
            await eventually(lambda reader=reader, marked=marked: all(reader.marked(kind) for kind in marked))
        own = f"ray.hist.gateway.{scene.namespace}."
        await eventually(lambda: {m.subject for m in history} >= {f"{own}RayCluster.c1", f"{own}Pod.p1"})
        assert not [m for m in history if b"s3cret" in m.body]
        await follower.close()

    async def test_pods_follow_when_their_parent_becomes_known_later(self, scene: Scene) -> None:
        await scene.pod("p1", cluster="c1")
        await scene.gateway("one").ready()
        await eventually(lambda: ("Pod", "p1") in scene.cluster_tree("c1"))
        assert scene.job_tree("j1") == set()
        await scene.cluster("c1", job="j1")
        await eventually(lambda: scene.job_tree("j1") == {("RayCluster", "c1"), ("Pod", "p1")})
        patch = {"metadata": {"labels": {labels.ORIGINATED_FROM_NAME: "j2"}}}
        await scene.kube.merge_patch(kinds.RAYCLUSTER, scene.namespace, "c1", patch)
        await eventually(lambda: scene.job_tree("j2") == {("RayCluster", "c1"), ("Pod", "p1")})
        assert scene.job_tree("j1") == set()

    async def test_only_the_namespaces_it_is_told(self, scene: Scene) -> None:
        await scene.pod("p1", cluster="c1")
        await scene.gateway("one", "--namespaces", f"default,{scene.namespace}").ready()
        async with fresh_namespace(scene.kube) as other:
            elsewhere = Scene(scene.folder, scene.nats, scene.kubeconfig, scene.kube, other)
            await elsewhere.pod("p2", cluster="c1")
            await scene.arrives(await scene.annotate(kinds.POD, "p1", "1"), "c1")
        assert not [message for message in scene.clusters.log if message.address.name == "p2"]
        assert scene.clusters.marked("Pod")

    async def test_pods_of_others_are_not_even_asked_for(self, scene: Scene, tmp_path: Path) -> None:
        await scene.pod("foreign")
        async with Recording(load(scene.kubeconfig), tmp_path).running() as recording:
            scene.kubeconfig = recording.kubeconfig
            await scene.gateway("one").ready()
            await scene.pod("p1", cluster="c1")
            await scene.pod("s1", job="j1")
            await eventually(lambda: scene.cluster_tree("c1") == {("Pod", "p1")})
            await eventually(lambda: scene.job_tree("j1") == {("Pod", "s1")})
            assert recording.selectors("pods") == {CLUSTER_PODS, SUBMITTER_PODS}
            assert recording.selectors("rayclusters") == {""}
        assert not [m for m in scene.clusters.log + scene.jobs.log if m.address.name == "foreign"]

    async def test_a_controller_that_comes_later_is_served(self, scene: Scene) -> None:
        await scene.clusters.close()
        await scene.gateway("one").ready()
        await scene.cluster("c1")
        scene.clusters = Reader(scene.bus, "raycluster", CLUSTER_ROUTES)
        await scene.clusters.start()
        await eventually(lambda: scene.cluster_tree("c1") == {("RayCluster", "c1")})
        await eventually(lambda: scene.clusters.marked("RayCluster"))

    async def test_a_kind_whose_definition_is_missing_holds_up_nobody(self, scene: Scene) -> None:
        unknown = kinds.Kind("nobody.example", "v1", "Thing", "things")
        await scene.jobs.close()
        scene.jobs = Reader(
            scene.bus,
            "rayjob",
            (*JOB_ROUTES, Route(root_kind="RayJob", kind=unknown, via=Via.OWNER, projection=FULL)),
        )
        await scene.jobs.start()
        await scene.gateway("one").ready()
        await eventually(lambda: scene.jobs.marked("Thing") and scene.jobs.marked("RayJob"))


class TestDeletions:
    async def test_seen_and_missed_ones_leave_tombstones(self, scene: Scene) -> None:
        gateway = scene.gateway("one")
        await gateway.ready()
        await scene.cluster("c1", job="j1")
        uids = {}
        for name in ("p1", "p2"):
            uids[name] = (await scene.pod(name, cluster="c1"))["metadata"]["uid"]
        await eventually(lambda: len(scene.job_tree("j1")) == 3)
        await scene.kube.delete(kinds.POD, scene.namespace, "p1", grace_seconds=0)
        await eventually(lambda: scene.clusters.tombstone("Pod", "p1", scene.namespace))
        gateway.end(signal.SIGKILL)
        await scene.kube.delete(kinds.POD, scene.namespace, "p2", grace_seconds=0)
        await scene.gateway("two").ready()
        await eventually(lambda: scene.jobs.tombstone("Pod", "p2", scene.namespace))
        await eventually(lambda: scene.clusters.tombstone("Pod", "p2", scene.namespace))
        for name, uid in uids.items():
            tombstone = scene.clusters.tombstone("Pod", name, scene.namespace)
            assert tombstone is not None
            assert (tombstone.uid, tombstone.body) == (uid, b"")
        assert scene.cluster_tree("c1") == {("RayCluster", "c1")}


class TestLabels:
    async def test_an_object_that_loses_its_label_gets_a_tombstone(self, scene: Scene) -> None:
        await scene.gateway("one").ready()
        await scene.cluster("c1", job="j1")
        pod = await scene.pod("p1", cluster="c1")
        await eventually(lambda: ("Pod", "p1") in scene.cluster_tree("c1") and ("Pod", "p1") in scene.job_tree("j1"))
        await scene.label(kinds.POD, "p1", **{labels.CLUSTER: None})
        for reader in (scene.clusters, scene.jobs):
            await eventually(lambda reader=reader: reader.tombstone("Pod", "p1", scene.namespace))
            tombstone = reader.tombstone("Pod", "p1", scene.namespace)
            assert tombstone is not None
            assert tombstone.uid == pod["metadata"]["uid"]
        await scene.label(kinds.POD, "p1", **{labels.CLUSTER: "c1"})
        await eventually(lambda: ("Pod", "p1") in scene.cluster_tree("c1") and ("Pod", "p1") in scene.job_tree("j1"))

    async def test_an_object_that_two_watches_show_stays_where_one_still_does(self, scene: Scene) -> None:
        await scene.gateway("one").ready()
        await scene.pod("p1", cluster="c1", job="j1")
        await eventually(lambda: ("Pod", "p1") in scene.cluster_tree("c1") and ("Pod", "p1") in scene.job_tree("j1"))
        await scene.label(kinds.POD, "p1", **{labels.CLUSTER: None})
        await eventually(lambda: scene.clusters.tombstone("Pod", "p1", scene.namespace))
        changed = await scene.annotate(kinds.POD, "p1", "1")
        expected = changed["metadata"]["resourceVersion"]
        await eventually(lambda: scene.jobs.tree("j1", scene.namespace)["Pod", "p1"].resource_version == expected)
        await scene.kube.delete(kinds.POD, scene.namespace, "p1", grace_seconds=0)
        await eventually(lambda: scene.jobs.tombstone("Pod", "p1", scene.namespace))


class TestHandOver:
    async def test_a_restart_writes_nothing_anew(self, scene: Scene) -> None:
        gateway = scene.gateway("one")
        await gateway.ready()
        await scene.cluster("c1", job="j1")
        await scene.pod("p1", cluster="c1")
        await eventually(lambda: len(scene.job_tree("j1")) == 2)
        gateway.end(signal.SIGTERM)
        assert gateway.process.returncode == 0
        second = scene.gateway("two")
        await second.ready(detail="active")
        await eventually(lambda: scene.jobs.marked("Pod", "two"))
        own = [m for m in scene.clusters.log + scene.jobs.log if m.address.key.namespace == scene.namespace]
        assert len(own) == sum(len(x) for x in (scene.cluster_tree("c1"), scene.job_tree("j1")))

    async def test_a_graceful_stop_hands_over_at_once(self, scene: Scene) -> None:
        first, second = await scene.pair("--lease-ttl-s", "30")
        await scene.cluster("c1")
        first.send(signal.SIGTERM)
        await second.ready(within_s=25, detail="active")
        await scene.arrives(await scene.annotate(kinds.RAYCLUSTER, "c1", "1"), "c1")

    async def test_a_standby_takes_over_after_kill_9(self, scene: Scene) -> None:
        first, second = await scene.pair()
        await scene.cluster("c1")
        await scene.pod("p1", cluster="c1")
        await eventually(lambda: len(scene.cluster_tree("c1")) == 2)
        first.end(signal.SIGKILL)
        changed = await scene.annotate(kinds.POD, "p1", "while nobody looks")
        await second.ready(within_s=LEASE_TTL_S + 28, detail="active")
        await scene.arrives(changed, "c1")
        await eventually(lambda: scene.clusters.marked("Pod", second.replica))

    async def test_a_stale_gateway_is_refused(self, scene: Scene) -> None:
        first, second = await scene.pair()
        await scene.cluster("c1")
        await scene.pod("p1", cluster="c1")
        await eventually(lambda: len(scene.cluster_tree("c1")) == 2)
        first.send(signal.SIGSTOP)
        for number in range(5):
            changed = await scene.annotate(kinds.POD, "p1", str(number))
        await second.ready(within_s=LEASE_TTL_S + 28, detail="active")
        await scene.arrives(changed, "c1")
        first.send(signal.SIGCONT)
        await eventually_roles(first, second)
        last = await scene.annotate(kinds.POD, "p1", "last")
        await scene.arrives(last, "c1")
        own = [m for m in scene.clusters.log if m.address.key.namespace == scene.namespace]
        versions = [int(m.resource_version) for m in own if m.address.name == "p1"]
        assert versions == sorted(versions), "never older over newer"


class TestOutages:
    async def test_nats_killed_and_restarted(self, scene: Scene) -> None:
        gateway = scene.gateway("one", "--lease-ttl-s", "12")
        await gateway.ready()
        await scene.cluster("c1")
        await scene.pod("p1", cluster="c1")
        await eventually(lambda: len(scene.cluster_tree("c1")) == 2)
        for number in range(3):
            scene.nats.kill()
            changed = await scene.annotate(kinds.POD, "p1", str(number))
            scene.nats.start()
            await scene.arrives(changed, "c1")
        await gateway.ready()
        assert gateway.log().count("term_begins") == 1, "an outage alone must not lead to new lists"

    async def test_nats_lost_everything(self, scene: Scene) -> None:
        gateway = scene.gateway("one")
        await gateway.ready()
        await scene.cluster("c1", job="j1")
        await scene.pod("p1", cluster="c1")
        await eventually(lambda: len(scene.job_tree("j1")) == 2)
        scene.nats.kill()
        shutil.rmtree(scene.nats.folder / "store")
        scene.clusters.by_subject.clear()
        scene.jobs.by_subject.clear()
        scene.nats.start()
        await eventually(lambda: ("Pod", "p1") in scene.cluster_tree("c1"), within_s=60)
        await gateway.ready()

    async def test_another_cluster_empties_the_streams(self, scene: Scene) -> None:
        await provision(scene.bus, "raycluster", cluster_uid="another")
        await scene.bus.publish(
            "ray.raycluster.1.obj.0.n.RayCluster.x.Pod.y", b"{}", {"ce-type": "io.raybus.object.v1"}
        )
        await scene.gateway("one").ready()
        assert await scene.bus.last("RAYCLUSTER", "ray.raycluster.1.obj.0.n.RayCluster.x.Pod.y") is None
        info = await scene.bus.stream_info("RAYCLUSTER")
        assert info.metadata["raybus.cluster"] == await scene.kube.cluster_uid()

    @pytest.mark.realkube
    async def test_api_server_restarted(self, tmp_path: Path, nats_server: NatsServer, realkube: RealKube) -> None:
        async with KubeClient(load(realkube.kubeconfig)) as kube:
            await install_crds(kube)
            async with (
                fresh_namespace(kube) as namespace,
                Scene(tmp_path, nats_server, realkube.kubeconfig, kube, namespace) as scene,
            ):
                gateway = scene.gateway("one")
                await gateway.ready()
                await scene.cluster("c1")
                await scene.pod("p1", cluster="c1")
                await eventually(lambda: len(scene.cluster_tree("c1")) == 2)
                await asyncio.to_thread(realkube.restart_apiserver, 2.0)
                await scene.kube.delete(kinds.POD, namespace, "p1", grace_seconds=0)
                changed = await scene.annotate(kinds.RAYCLUSTER, "c1", "after")
                await scene.arrives(changed, "c1", within_s=30)
                await eventually(lambda: scene.clusters.tombstone("Pod", "p1", namespace))
                await gateway.ready()
                assert gateway.log().count("term_begins") == 1


class TestBadStart:
    @pytest.mark.parametrize(
        ("flags", "expected"),
        [
            (("--kubeconfig", "/no/such/file"), "no such file"),
            (("--nats-url", "nats://127.0.0.1:1", "--nats-wait-s", "1"), "is nats-server running?"),
            (("--partitions", "4"), "partitions"),
            (("--partitions", "many"), "--partitions"),
        ],
    )
    async def test_one_clear_line(self, scene: Scene, flags: tuple[str, ...], expected: str) -> None:
        await provision(scene.bus, "raycluster", cluster_uid=await scene.kube.cluster_uid())
        gateway = scene.gateway("one", *flags)
        with contextlib.suppress(TimeoutError):
            await asyncio.to_thread(gateway.process.wait, 20)
        assert gateway.process.returncode not in (0, None)
        line = gateway.log().strip().splitlines()[-1]
        assert line.startswith("raybus-gateway: ")
        assert expected in line
        assert "Traceback" not in gateway.log()
