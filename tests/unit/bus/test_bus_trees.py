"""What news and own writes do to the trees of a mirror."""

from __future__ import annotations

from typing import Any

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from raybus.bus.entry import newer
from raybus.bus.envelope import ObjectMessage, Op
from raybus.bus.projection import project
from raybus.bus.subjects import ObjectAddress
from raybus.bus.trees import OWN_WRITE_DOUBT_S, Change, Trees
from raybus.decide.routes import FULL, POD_STATUS, Route, Via
from raybus.decide.tree import RootKey
from raybus.domain import kinds, labels
from support.objects import pod, raycluster

KEY = RootKey("RayCluster", "ns", "c1")
ROUTES = (
    Route(root_kind="RayCluster", kind=kinds.RAYCLUSTER, via=Via.ROOT, projection=FULL),
    Route(root_kind="RayCluster", kind=kinds.POD, via=Via.LABEL, projection=POD_STATUS, label=labels.CLUSTER),
)


def news(
    obj: dict[str, Any], op: Op = Op.PUT, *, projection: str = "full", ref: bool = False, key: RootKey = KEY
) -> ObjectMessage:
    route = POD_STATUS if obj["kind"] == "Pod" else FULL
    return ObjectMessage(
        address=ObjectAddress("raycluster", 1, 0, key, obj["kind"], obj["metadata"]["name"]),
        op=op,
        uid=obj["metadata"]["uid"],
        resource_version=obj["metadata"]["resourceVersion"],
        projection=projection,
        ref=ref,
        cluster="k1",
        term="gw",
        traceparent="",
        body=orjson.dumps(project(obj, route)) if op is Op.PUT else b"",
        seq=0,
        time=0.0,
    )


def anywhere(_key: RootKey) -> bool:
    return True


def held(trees: Trees) -> dict[str, tuple[str, str]]:
    view = trees.view(KEY)
    objects = view[1] if view else ()
    return {obj["metadata"]["name"]: (obj["metadata"]["uid"], obj["metadata"]["resourceVersion"]) for obj in objects}


def tree_with(*objects: dict[str, Any]) -> Trees:
    trees = Trees(ROUTES)
    trees.begin_turn()
    for obj in objects:
        trees.apply(news(obj), 0.0)
    trees.end_turn()
    return trees


class TestNews:
    def test_why_a_tree_is_due(self) -> None:
        trees = Trees(ROUTES)
        assert trees.apply(news(raycluster("c1")), 0.0) == Change(KEY, "RayCluster seen")
        assert trees.apply(news(raycluster("c1", rv=2)), 0.0) == Change(KEY, "RayCluster changed")
        assert trees.apply(news(raycluster("c1", rv=3, generation=2)), 0.0) == Change(KEY, "RayCluster spec changed")
        assert trees.apply(news(pod("a", rv=4, phase="Failed")), 0.0) == Change(KEY, "Pod failed")
        assert trees.apply(news(pod("a", rv=5, phase="Failed")), 0.0) == Change(KEY, "Pod changed")
        deleting = pod("a", rv=6, phase="Failed")
        deleting["metadata"]["deletionTimestamp"] = "2026-11-29T11:00:00Z"
        assert trees.apply(news(deleting), 0.0) == Change(KEY, "Pod being deleted")
        assert trees.apply(news(pod("a", rv=7), Op.DELETED), 0.0) == Change(KEY, "Pod deleted")

    def test_the_same_version_twice_wakes_nobody(self) -> None:
        trees = tree_with(pod("a", rv=2))
        assert trees.apply(news(pod("a", rv=2)), 0.0) is None

    def test_the_stream_decides_what_is_newer_also_after_a_restore(self) -> None:
        trees = tree_with(pod("a", rv=9))
        assert trees.apply(news(pod("a", rv=3)), 0.0) is not None
        assert held(trees) == {"a": ("uid-a", "3")}
        trees.apply(news(pod("a", rv=4), Op.DELETED), 0.0)
        assert trees.apply(news(pod("a", rv=3)), 1.0) is not None
        assert held(trees) == {"a": ("uid-a", "3")}

    def test_a_tombstone_leaves_an_own_write_of_another_uid_alone(self) -> None:
        trees = tree_with(pod("a", uid="old", rv=5))
        trees.upsert(pod("a", uid="new", rv=9), 0.0, anywhere)
        assert trees.apply(news(pod("a", uid="old", rv=7), Op.DELETED), 0.0) is None
        assert held(trees) == {"a": ("new", "9")}

    def test_a_tombstone_ends_all_that_the_stream_said_before_it(self) -> None:
        # The tombstone of "first" and the first word of "second" were replaced in the stream before they were read.
        trees = tree_with(pod("a", uid="first", rv=5))
        assert trees.apply(news(pod("a", uid="second", rv=9), Op.DELETED), 0.0) == Change(KEY, "Pod deleted")
        assert held(trees) == {}

    def test_a_tree_is_forgotten_with_its_last_object(self) -> None:
        trees = tree_with(pod("a"))
        trees.apply(news(pod("a", rv=2), Op.DELETED), 0.0)
        assert trees.view(KEY) is None
        assert list(trees.known()) == []

    def test_versions_nobody_looks_at_are_not_decoded(self) -> None:
        trees = Trees(ROUTES)
        broken = news(pod("a", rv=2))._replace(body=b"not json")
        assert trees.apply(broken, 0.0) is not None
        trees.apply(news(pod("a", rv=3)), 0.0)
        assert held(trees) == {"a": ("uid-a", "3")}

    def test_a_view_is_shared_until_something_changes(self) -> None:
        trees = tree_with(raycluster("c1"), pod("a"))
        assert trees.view(KEY) is trees.view(KEY)

    def test_to_show_the_root_is_not_to_look_at_the_tree(self) -> None:
        """A scrape between a fresh read and its answer must not make what arrived meanwhile count as seen before."""
        trees = tree_with(raycluster("c1"), pod("a"))
        trees.view(KEY)
        trees.apply(news(pod("b", rv=7)), 0.0)
        assert trees.root(KEY) is not None
        assert trees.root(KEY._replace(name="unknown")) is None
        trees.replace(KEY, [raycluster("c1"), pod("a")], 0.0)
        assert set(held(trees)) == {"a", "b"}


class TestOwnWrites:
    def test_are_projected_as_the_gateway_does(self) -> None:
        trees = tree_with(raycluster("c1"))
        assert trees.upsert(pod("a", rv=5), 0.0, anywhere) == [KEY]
        view = trees.view(KEY)
        assert view is not None
        assert view[1][0] == project(pod("a", rv=5), POD_STATUS)

    def test_wake_nobody_when_they_come_back(self) -> None:
        trees = tree_with(pod("a", rv=2))
        trees.upsert(pod("a", rv=5), 0.0, anywhere)
        assert trees.apply(news(pod("a", rv=3)), 0.0) is None  # on its way when we wrote
        assert held(trees) == {"a": ("uid-a", "5")}
        assert trees.apply(news(pod("a", rv=5)), 0.0) is None
        assert trees.apply(news(pod("a", rv=6)), 0.0) is not None

    def test_that_are_older_than_what_is_held_change_nothing(self) -> None:
        trees = tree_with(pod("a", rv=6))
        assert trees.upsert(pod("a", rv=5), 0.0, anywhere) == []

    def test_that_belong_to_no_owned_tree_are_ignored(self) -> None:
        trees = Trees(ROUTES)
        assert trees.upsert(pod("a"), 0.0, lambda _key: False) == []
        assert trees.upsert({**pod("a"), "kind": "Other"}, 0.0, anywhere) == []

    def test_late_answers_do_not_raise_the_dead(self) -> None:
        trees = tree_with(pod("a", rv=2))
        trees.apply(news(pod("a", rv=9), Op.DELETED), 0.0)
        assert trees.upsert(pod("a", rv=8), 599.0, anywhere) == []
        assert trees.upsert(pod("a", rv=8), 601.0, anywhere) == [KEY]

    def test_an_own_deletion_outlives_late_news(self) -> None:
        trees = tree_with(pod("a", rv=2))
        assert trees.remove("Pod", "ns", "a", "uid-a", 0.0) == [KEY]
        assert trees.apply(news(pod("a", rv=3)), 1.0) is None
        assert held(trees) == {}
        assert trees.apply(news(pod("a", uid="second", rv=7)), 2.0) is not None
        assert trees.remove("Pod", "ns", "a", "uid-a", 3.0) == []
        assert held(trees) == {"a": ("second", "7")}

    def test_a_second_object_of_the_name_is_not_displaced_by_news_of_the_first(self) -> None:
        trees = tree_with(pod("a", uid="first", rv=2))
        trees.upsert(pod("a", uid="second", rv=8, created="2026-11-29T10:00:05Z"), 0.0, anywhere)
        assert trees.apply(news(pod("a", uid="first", rv=4)), 0.0) is None
        assert trees.apply(news(pod("a", uid="first", rv=6), Op.DELETED), 0.0) is None
        assert held(trees) == {"a": ("second", "8")}

    def test_survive_a_re_read_that_cannot_know_them(self) -> None:
        trees = tree_with(pod("a", rv=2), pod("b", rv=2), pod("gone", rv=2))
        trees.upsert(pod("a", rv=5), 0.0, anywhere)
        trees.upsert(pod("new", rv=6), 0.0, anywhere)
        trees.begin_turn()
        trees.apply(news(pod("a", rv=2)), 0.0)
        trees.apply(news(pod("b", rv=2)), 0.0)
        assert trees.end_turn() == [Change(KEY, "Pod deleted while nobody looked")]
        assert held(trees) == {"a": ("uid-a", "5"), "b": ("uid-b", "2"), "new": ("uid-new", "6")}

    def test_but_not_for_ever(self) -> None:
        trees = tree_with(pod("a", rv=2))
        trees.upsert(pod("a", rv=5), 0.0, anywhere)
        trees.upsert(pod("new", rv=6), 0.0, anywhere)
        assert not trees.doubt("Pod", OWN_WRITE_DOUBT_S)
        assert trees.doubt("Pod", OWN_WRITE_DOUBT_S + 1)
        assert not trees.doubt("Pod", OWN_WRITE_DOUBT_S + 2)  # once is enough
        trees.begin_turn()
        trees.apply(news(pod("a", rv=2)), 0.0)
        trees.end_turn()
        assert held(trees) == {"a": ("uid-a", "2")}

    def test_of_a_cluster_bring_its_pods_into_the_jobs_tree(self) -> None:
        cluster = Route(
            root_kind="RayJob", kind=kinds.RAYCLUSTER, via=Via.LABEL, projection=FULL, label=labels.ORIGINATED_FROM_NAME
        )
        pods = Route(root_kind="RayJob", kind=kinds.POD, via=Via.CLUSTER, projection=POD_STATUS)
        trees = Trees((cluster, pods))
        assert trees.upsert(pod("a"), 0.0, anywhere) == []
        job = RootKey("RayJob", "ns", "j")
        assert trees.upsert(raycluster("c1", **{labels.ORIGINATED_FROM_NAME: "j"}), 0.0, anywhere) == [job]
        assert trees.upsert(pod("a"), 0.0, anywhere) == [job]


class TestLiveReads:
    def test_replace_what_is_held(self) -> None:
        trees = tree_with(raycluster("c1"), pod("a", rv=2), pod("gone", rv=2))
        trees.view(KEY)
        trees.replace(KEY, [raycluster("c1", rv=3), pod("a", rv=4), pod("new", rv=5)], 0.0)
        assert held(trees) == {"a": ("uid-a", "4"), "new": ("uid-new", "5")}

    def test_do_not_undo_what_came_after_the_last_look(self) -> None:
        trees = tree_with(raycluster("c1"), pod("a", rv=2))
        trees.view(KEY)
        trees.apply(news(pod("during", rv=3)), 0.0)
        trees.apply(news(pod("a", rv=9)), 0.0)
        trees.replace(KEY, [raycluster("c1"), pod("a", rv=2)], 0.0)
        assert held(trees) == {"a": ("uid-a", "9"), "during": ("uid-during", "3")}


class TestLacking:
    def test_a_body_not_seen_is_neither_held_nor_absent(self) -> None:
        trees = Trees(ROUTES)
        assert trees.apply(news(pod("a", rv=2), ref=True), 0.0) is None
        assert trees.view(KEY) == (None, ())
        assert trees.lacking_kinds(KEY) == {"Pod"}
        assert [ref.name for ref in trees.lacking(KEY)] == ["a"]
        trees.upsert(pod("a", rv=2), 0.0, anywhere)
        assert trees.lacking_kinds(KEY) == frozenset()
        trees.begin_turn()
        trees.apply(news(pod("a", rv=2), ref=True), 0.0)
        trees.end_turn()
        assert (held(trees), trees.lacking_kinds(KEY)) == ({"a": ("uid-a", "2")}, frozenset())

    def test_an_older_answer_does_not_fill_the_gap(self) -> None:
        trees = tree_with(pod("a", rv=2))
        trees.apply(news(pod("a", rv=5), ref=True), 0.0)
        trees.upsert(pod("a", rv=4), 0.0, anywhere)
        assert (held(trees), trees.lacking_kinds(KEY)) == ({"a": ("uid-a", "4")}, {"Pod"})

    def test_too_little_of_a_body_counts_as_not_seen(self) -> None:
        trees = tree_with(pod("a", rv=2))
        assert trees.apply(news(pod("a", rv=3), projection="pod.names"), 0.0) is None
        assert (held(trees), trees.lacking_kinds(KEY)) == ({"a": ("uid-a", "2")}, {"Pod"})
        trees.apply(news(pod("a", rv=4), projection="pod.names+pod.status"), 0.0)
        assert trees.lacking_kinds(KEY) == frozenset()

    def test_it_ends_with_the_object_or_with_a_re_read_without_it(self) -> None:
        trees = Trees(ROUTES)
        trees.apply(news(pod("a", rv=2), ref=True), 0.0)
        trees.apply(news(pod("a", rv=3), Op.DELETED), 0.0)
        assert trees.view(KEY) is None
        trees.apply(news(pod("b", rv=2), ref=True), 0.0)
        trees.begin_turn()
        trees.end_turn()
        assert trees.view(KEY) is None


def test_versions_are_numbers_where_they_can_be() -> None:
    assert newer("10", "9")
    assert not newer("9", "10")
    assert newer("b", "a")
    assert not newer("a", "a")


class World:
    """An API server, the stream that a gateway fills from it with a delay, and the trees of a replica that writes too."""

    def __init__(self) -> None:
        self.trees = Trees(ROUTES)
        self.objects: dict[str, dict[str, Any]] = {}
        self.events: list[ObjectMessage] = []
        self.published = 0
        self.delivered = 0
        self.version = 0
        self.uids = 0
        self.seconds = 0

    def change(self, name: str, how: str) -> dict[str, Any] | None:
        self.version += 1
        before = self.objects.get(name)
        if how == "delete" or (before is None and how == "update"):
            gone = self.objects.pop(name, None)
            if gone is not None:
                last = {**gone, "metadata": {**gone["metadata"], "resourceVersion": str(self.version)}}
                self.events.append(news(last, Op.DELETED))
            return gone
        if before is not None and how == "create":
            return None
        if before is None:
            self.uids += 1
            created = f"2026-11-29T10:{self.seconds // 60:02d}:{self.seconds % 60:02d}Z"
            after = pod(name, uid=f"u{self.uids}", rv=self.version, created=created)
        else:
            after = {**before, "metadata": {**before["metadata"], "resourceVersion": str(self.version)}}
        self.objects[name] = after
        self.events.append(news(after))
        return after

    def own(self, name: str, how: str) -> None:
        answer = self.change(name, how)
        if answer is None:
            return
        if how == "delete":
            self.trees.remove("Pod", "ns", name, answer["metadata"]["uid"], self.seconds)
            assert held(self.trees).get(name, ("",))[0] != answer["metadata"]["uid"]
        elif name in self.objects:
            self.trees.upsert(answer, self.seconds, anywhere)
            metadata = answer["metadata"]
            assert held(self.trees)[name] == (metadata["uid"], metadata["resourceVersion"])

    def publish(self) -> None:
        self.published = min(self.published + 1, len(self.events))

    def deliver(self) -> None:
        """The next message, unless a newer one of its subject has replaced it in the stream already."""
        while self.delivered < self.published:
            event = self.events[self.delivered]
            self.delivered += 1
            later = self.events[self.delivered : self.published]
            if all(other.address != event.address for other in later):
                self.trees.apply(event, self.seconds)
                return

    def re_read(self) -> None:
        last: dict[ObjectAddress, ObjectMessage] = {}
        for event in self.events[: self.published]:
            last.pop(event.address, None)
            last[event.address] = event
        self.trees.begin_turn()
        for event in last.values():
            self.trees.apply(event, self.seconds)
        self.trees.end_turn()
        self.delivered = self.published


STEPS = st.one_of(
    st.tuples(
        st.sampled_from(["own", "change"]), st.sampled_from("ab"), st.sampled_from(["create", "update", "delete"])
    ),
    st.sampled_from([("publish",), ("deliver",), ("re_read",), ("second",)]),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(STEPS, max_size=40))
def test_whatever_the_order_the_trees_end_as_the_api_server(steps: list[tuple[str, ...]]) -> None:
    world = World()
    for step in steps:
        match step:
            case ("own", name, how):
                world.own(name, how)
            case ("change", name, how):
                world.change(name, how)
            case ("publish",):
                world.publish()
            case ("deliver",):
                world.deliver()
            case ("re_read",):
                world.re_read()
            case _:
                world.seconds += 1
    world.published = len(world.events)
    while world.delivered < world.published:
        world.deliver()
    world.seconds += int(OWN_WRITE_DOUBT_S) + 1
    if world.trees.doubt("Pod", world.seconds):
        world.re_read()
    truth = {name: (obj["metadata"]["uid"], obj["metadata"]["resourceVersion"]) for name, obj in world.objects.items()}
    assert held(world.trees) == truth
