"""Provisioning of streams and the gateway's fenced publishing, on memory and on a real server."""

from __future__ import annotations

import asyncio

import pytest

from raybus.bus import streams
from raybus.bus.envelope import Op, decode_marker, decode_object
from raybus.bus.nats import NatsBus
from raybus.bus.publisher import Fenced, ObjectPublisher
from raybus.bus.subjects import marker_subject, object_subject
from raybus.bus.transport import Bus, BusTimeout, StreamConfig, StreamMissing
from raybus.decide.tree import RootKey
from support.buses import BusBackend, BusContract, MemoryBackend, OnMemory, OnNats
from support.nats import NatsServer
from support.objects import pod
from support.waiting import eventually

KEY = RootKey("RayCluster", "ns", "c1")
SUBJECT = object_subject("raycluster", 1, 3, KEY, "Pod", "p1")
OTHER = object_subject("raycluster", 1, 3, KEY, "Pod", "p2")


class PublisherContract(BusContract):
    @pytest.fixture
    async def bus(self, backend: BusBackend) -> Bus:
        bus = await backend.connect()
        await streams.provision(bus, "raycluster", cluster_uid="k1")
        return bus

    async def publisher(self, bus: Bus, term: str = "gw-1", *, deadline_s: float = 10.0) -> ObjectPublisher:
        settings = await streams.read_settings(bus, "raycluster")
        publisher = ObjectPublisher(bus, "raycluster", settings, term=term, deadline_s=deadline_s)
        await publisher.load_term()
        return publisher

    async def test_a_name_used_again_after_its_tombstone_expired(self, bus: Bus) -> None:
        publisher = await self.publisher(bus)
        await publisher.put(SUBJECT, pod("p1"), projection="pod.status")
        await publisher.tombstone(SUBJECT, pod("p1"))
        await bus.purge("RAYCLUSTER", SUBJECT)  # what the tombstone's time to live does
        seq = await publisher.put(SUBJECT, pod("p1"), projection="pod.status")
        last = await bus.last("RAYCLUSTER", SUBJECT)
        assert last is not None
        assert last.seq == seq

    async def test_a_lost_object_is_no_expired_tombstone(self, bus: Bus) -> None:
        publisher = await self.publisher(bus)
        await publisher.put(SUBJECT, pod("p1"), projection="pod.status")
        await bus.purge("RAYCLUSTER", SUBJECT)
        with pytest.raises(Fenced):
            await publisher.put(SUBJECT, pod("p1"), projection="pod.status")

    # --- streams ---

    async def test_settings_are_read_from_the_stream(self, bus: Bus) -> None:
        settings = await streams.read_settings(bus, "raycluster")
        assert settings == streams.StreamSettings(partitions=8, generation=1, cluster_uid="k1")
        with pytest.raises(StreamMissing):
            await streams.read_settings(bus, "rayjob")

    async def test_waiting_for_a_gateway_that_starts_later(self, bus: Bus) -> None:
        waiting = asyncio.create_task(streams.wait_for_settings(bus, "rayjob", timeout_s=20))
        await asyncio.sleep(0.1)
        made = await streams.provision(bus, "rayjob", cluster_uid="k1", partitions=4)
        assert await waiting == made

    async def test_provisioning_again_changes_nothing(self, bus: Bus) -> None:
        await (await self.publisher(bus)).put(SUBJECT, pod("p1"), projection="pod.status")
        await streams.provision(bus, "raycluster", cluster_uid="k1")
        assert (await bus.stream_info("RAYCLUSTER")).messages == 1

    async def test_another_number_of_partitions_is_refused_by_name(self, bus: Bus) -> None:
        with pytest.raises(streams.SettingsMismatch, match=r"RAYCLUSTER says partitions = 8, this process was told 16"):
            await streams.provision(bus, "raycluster", cluster_uid="k1", partitions=16)
        with pytest.raises(streams.SettingsMismatch, match="generation"):
            await streams.provision(bus, "raycluster", cluster_uid="k1", generation=2)

    async def test_a_stream_that_is_not_ours_is_refused(self, bus: Bus) -> None:
        await bus.ensure_stream(StreamConfig(name="RAYJOB", subjects=("ray.rayjob.>",)))
        with pytest.raises(streams.SettingsMismatch, match="not made by a Raybus gateway"):
            await streams.read_settings(bus, "rayjob")

    async def test_another_clusters_stream_is_emptied_and_signed(self, bus: Bus) -> None:
        publisher = await self.publisher(bus)
        await publisher.put(SUBJECT, pod("p1"), projection="pod.status")
        settings = await streams.provision(bus, "raycluster", cluster_uid="k2")
        assert settings.cluster_uid == "k2"
        assert (await streams.read_settings(bus, "raycluster")).cluster_uid == "k2"
        assert (await bus.stream_info("RAYCLUSTER")).messages == 0
        with pytest.raises(Fenced):  # the gateway of the other cluster
            await publisher.put(SUBJECT, pod("p1", rv=2), projection="pod.status")

    async def test_history_and_leases_are_provisioned_again_and_again(self, bus: Bus) -> None:
        for _ in range(2):
            await streams.provision_history(bus)
            await streams.provision_leases(bus, streams.GATEWAY)
        assert (await bus.stream_info(streams.HISTORY_STREAM)).messages == 0
        assert (await bus.stream_info("KV_lease-gateway")).messages == 0

    # --- publishing ---

    async def test_a_version_arrives_as_it_was_put(self, bus: Bus) -> None:
        publisher = await self.publisher(bus)
        seq = await publisher.put(SUBJECT, pod("p1", rv=7), projection="pod.status", traceparent="00-a-b-01")
        message = await bus.last("RAYCLUSTER", SUBJECT)
        assert message is not None
        news = decode_object(message)
        assert news is not None
        assert (news.op, news.uid, news.resource_version, news.seq) == (Op.PUT, "uid-p1", "7", seq)
        assert (news.projection, news.cluster, news.term, news.ref) == ("pod.status", "k1", "gw-1", False)
        assert (news.address.key, news.address.partition, news.traceparent) == (KEY, 3, "00-a-b-01")

    async def test_a_deletion_is_a_tombstone_that_expires(self, bus: Bus) -> None:
        publisher = await self.publisher(bus)
        await publisher.put(SUBJECT, pod("p1"), projection="pod.status")
        await publisher.tombstone(SUBJECT, pod("p1", rv=9))
        message = await bus.last("RAYCLUSTER", SUBJECT)
        assert message is not None
        news = decode_object(message)
        assert news is not None
        assert (news.op, news.uid, news.resource_version, news.body) == (Op.DELETED, "uid-p1", "9", b"")

    async def test_a_marker_tells_kind_version_and_term(self, bus: Bus) -> None:
        publisher = await self.publisher(bus)
        await publisher.mark("Pod", "100")
        await publisher.mark("Pod", "100")
        message = await bus.last("RAYCLUSTER", marker_subject("raycluster", 1, "Pod"))
        assert message is not None
        marker = decode_marker(message)
        assert marker is not None
        assert (marker.kind, marker.complete, marker.resource_version, marker.term) == ("Pod", True, "100", "gw-1")
        assert marker.cluster == "k1"

    async def test_a_new_term_sees_what_is_held(self, bus: Bus) -> None:
        first = await self.publisher(bus)
        await first.put(SUBJECT, pod("p1", rv=7), projection="pod.status")
        await first.tombstone(OTHER, pod("p2", rv=8))
        await first.mark("Pod", "8")
        settings = await streams.read_settings(bus, "raycluster")
        held = await ObjectPublisher(bus, "raycluster", settings, term="gw-2").load_term()
        assert {
            subject: (item.op, item.uid, item.resource_version, item.projection) for subject, item in held.items()
        } == {
            SUBJECT: (Op.PUT, "uid-p1", "7", "pod.status"),
            OTHER: (Op.DELETED, "uid-p2", "8", ""),
        }

    async def test_before_the_term_is_loaded_nothing_is_published(self, bus: Bus) -> None:
        settings = await streams.read_settings(bus, "raycluster")
        with pytest.raises(Fenced):
            await ObjectPublisher(bus, "raycluster", settings, term="gw-1").put(SUBJECT, pod("p1"), projection="full")

    async def test_a_gateway_that_lost_its_lease_is_refused(self, bus: Bus) -> None:
        old = await self.publisher(bus, "gw-1")
        await old.put(SUBJECT, pod("p1", rv=1), projection="pod.status")
        new = await self.publisher(bus, "gw-2")
        await new.put(SUBJECT, pod("p1", rv=3), projection="pod.status")
        with pytest.raises(Fenced, match="gw-2"):
            await old.put(SUBJECT, pod("p1", rv=2), projection="pod.status")
        message = await bus.last("RAYCLUSTER", SUBJECT)
        assert message is not None
        assert message.headers["ray-rv"] == "3"

    async def test_also_if_the_other_wrote_the_same_version(self, bus: Bus) -> None:
        old, new = await self.publisher(bus, "gw-1"), await self.publisher(bus, "gw-2")
        await new.put(SUBJECT, pod("p1"), projection="pod.status")
        with pytest.raises(Fenced):
            await old.put(SUBJECT, pod("p1"), projection="pod.status")

    async def test_also_its_markers(self, bus: Bus) -> None:
        old, new = await self.publisher(bus, "gw-1"), await self.publisher(bus, "gw-2")
        await new.mark("Pod", "10")
        with pytest.raises(Fenced):
            await old.mark("Pod", "9")

    async def test_versions_of_one_subject_keep_their_order(self, bus: Bus) -> None:
        publisher = await self.publisher(bus)
        puts = [publisher.put(SUBJECT, pod("p1", rv=version), projection="pod.status") for version in range(1, 21)]
        sequences = await asyncio.gather(*puts)
        assert sequences == sorted(sequences)
        message = await bus.last("RAYCLUSTER", SUBJECT)
        assert message is not None
        assert message.headers["ray-rv"] == "20"

    async def test_a_publish_waits_for_the_server_to_come_back(self, bus: Bus, backend: BusBackend) -> None:
        publisher = await self.publisher(bus, deadline_s=30)
        await publisher.put(SUBJECT, pod("p1", rv=1), projection="pod.status")
        await backend.stop_server()
        await eventually(lambda: not bus.connected)
        waiting = asyncio.create_task(publisher.put(SUBJECT, pod("p1", rv=2), projection="pod.status"))
        await asyncio.sleep(0.2)
        assert not waiting.done()
        await backend.start_server()
        await waiting
        assert not await publisher.lost_data()

    async def test_but_not_for_ever(self, bus: Bus, backend: BusBackend) -> None:
        publisher = await self.publisher(bus, deadline_s=0.2)
        await backend.stop_server()
        await eventually(lambda: not bus.connected)
        with pytest.raises(BusTimeout):
            await publisher.put(SUBJECT, pod("p1"), projection="pod.status")

    async def test_a_stream_that_lost_data_is_noticed(self, bus: Bus, backend: BusBackend) -> None:
        publisher = await self.publisher(bus)
        await publisher.put(SUBJECT, pod("p1", rv=1), projection="pod.status")
        assert not await publisher.lost_data()
        await backend.lose_stream("RAYCLUSTER")
        await streams.provision(bus, "raycluster", cluster_uid="k1")
        assert await publisher.lost_data()
        with pytest.raises(Fenced, match="lost"):
            await publisher.put(SUBJECT, pod("p1", rv=2), projection="pod.status")
        await publisher.load_term()
        await publisher.put(SUBJECT, pod("p1", rv=2), projection="pod.status")


class TestMemoryPublisher(OnMemory, PublisherContract):
    async def test_an_answer_that_was_lost_is_found_in_the_stream(
        self, memory_backend: MemoryBackend, bus: Bus
    ) -> None:
        publisher = await self.publisher(bus)
        memory_backend.server.lose_next_answers(1)
        seq = await publisher.put(SUBJECT, pod("p1", rv=1), projection="pod.status")
        assert seq == (await bus.stream_info("RAYCLUSTER")).last_seq == 1
        assert await publisher.put(SUBJECT, pod("p1", rv=2), projection="pod.status") == 2

    async def test_a_publish_that_was_lost_is_sent_again(self, memory_backend: MemoryBackend, bus: Bus) -> None:
        publisher = await self.publisher(bus)
        memory_backend.server.lose_next_publishes(2)
        assert await publisher.put(SUBJECT, pod("p1", rv=1), projection="pod.status") == 1

    async def test_rolled_back_data_is_noticed(self, memory_backend: MemoryBackend, bus: Bus) -> None:
        publisher = await self.publisher(bus)
        await publisher.put(SUBJECT, pod("p1", rv=1), projection="pod.status")
        await publisher.put(SUBJECT, pod("p1", rv=2), projection="pod.status")
        memory_backend.server.roll_back("RAYCLUSTER", 1)
        assert await publisher.lost_data()


class TestNatsPublisher(OnNats, PublisherContract):
    pass


async def test_an_object_that_does_not_fit_goes_as_metadata(tmp_path: object, nats_server: NatsServer) -> None:
    small = NatsServer(nats_server.folder / "small", max_payload=64 << 10)
    small.start()
    bus = NatsBus(small.url)
    try:
        await bus.connect()
        settings = await streams.provision(bus, "raycluster", cluster_uid="k1")
        publisher = ObjectPublisher(bus, "raycluster", settings, term="gw")
        await publisher.load_term()
        large = pod("p1", rv=5)
        large["status"]["message"] = "x" * (70 << 10)
        await publisher.put(SUBJECT, large, projection="pod.status")
        message = await bus.last("RAYCLUSTER", SUBJECT)
        assert message is not None
        news = decode_object(message)
        assert news is not None
        assert (news.ref, news.resource_version) == (True, "5")
        assert b'"name":"p1"' in news.body
        assert b"status" not in news.body.replace(b"pod.status", b"")
        large["metadata"] |= {"resourceVersion": "6", "annotations": {"large": "x" * (70 << 10)}}
        await publisher.put(SUBJECT, large, projection="pod.status")
        message = await bus.last("RAYCLUSTER", SUBJECT)
        assert message is not None
        news = decode_object(message)
        assert news is not None
        assert (news.ref, news.resource_version, len(news.body) < 1000) == (True, "6", True)
    finally:
        await bus.close()
        small.kill()
