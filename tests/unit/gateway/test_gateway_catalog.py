"""What the gateway decides to write: single cases, and random histories against a model of stream and cluster.

One module, although long: cases and histories are played against the same model, which stands first.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from raybus.bus.envelope import Op
from raybus.bus.publisher import Held
from raybus.bus.routing import matches, route_id, trees_of
from raybus.bus.streams import StreamSettings
from raybus.bus.subjects import parse_object
from raybus.decide.routes import FULL, Projection, Route, Via
from raybus.decide.tree import RootKey
from raybus.domain import kinds, labels
from raybus_gateway.catalog import Catalog
from raybus_gateway.holdings import Write
from raybus_gateway.needs import Routes, Scope, watches
from support.routes import (
    CLUSTER_ROUTES,
    CLUSTERS_OF_JOB,
    JOB,
    PODS_BY_CLUSTER,
    PODS_OF_JOB,
    SUBMITTERS_OF_JOB,
)

JOB_ROUTES = (JOB, CLUSTERS_OF_JOB, PODS_BY_CLUSTER, SUBMITTERS_OF_JOB)
ROUTES = {"raycluster": CLUSTER_ROUTES, "rayjob": JOB_ROUTES}
SETTINGS = {
    name: StreamSettings(partitions=8, generation=1, cluster_uid="k") for name in ("raycluster", "rayjob", "rayservice")
}
ALL = ("RayCluster", "Pod", "RayJob", "Job")


def make(
    kind: kinds.Kind, name: str, version: int, *, uid: str = "", cluster: str = "", job: str = "", owner: str = ""
) -> dict[str, Any]:
    own: dict[str, str] = {}
    if cluster:
        own[labels.CLUSTER] = cluster
    if job:
        own |= {labels.ORIGINATED_FROM_NAME: job, labels.ORIGINATED_FROM_CRD: "RayJob"}
    meta: dict[str, Any] = {
        "name": name,
        "namespace": "n",
        "uid": uid or f"uid-{name}",
        "resourceVersion": str(version),
        "labels": own,
    }
    if owner:
        meta["ownerReferences"] = [{"kind": "RayJob", "name": owner, "uid": "u", "controller": True}]
    body = {"spec": {"nodeName": "x", "containers": [{"name": "c", "env": [{"name": "PASSWORD", "value": "secret"}]}]}}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, "status": {"v": version}, **body}


class Stream:
    """What the streams hold after these writes."""

    def __init__(self) -> None:
        self.held: dict[str, dict[str, Held]] = defaultdict(dict)
        self.seq = 0

    def apply(self, writes: list[Write]) -> None:
        for write in writes:
            self.seq += 1
            meta = write.obj["metadata"]
            item = Held(write.subject, self.seq, write.op, meta["uid"], meta["resourceVersion"], write.projection)
            self.held[write.controller][write.subject] = item

    def objects(self, controller: str) -> dict[tuple[RootKey, str, str], tuple[str, str]]:
        out = {}
        for subject, item in self.held[controller].items():
            if item.op is Op.PUT:
                address = parse_object(subject)
                out[address.key, address.kind, address.name] = (item.uid, item.resource_version)
        return out


def serving(routes: Any = ROUTES, *namespaces: str) -> dict[Scope, Routes]:
    return {watch.scope: served for watch, served in watches(routes, namespaces).items()}


def catalog(stream: Stream | None = None, routes: Any = ROUTES) -> Catalog:
    made = Catalog(SETTINGS, stream.held if stream else {})
    made.declare(serving(routes))
    return made


SCOPES = {scope.kind: scope for scope in serving()}


def scope(kind: str) -> Scope:
    """The one watch of these routes for a kind."""
    return SCOPES[kind]


def list_all(cat: Catalog, kind: str, *objects: dict[str, Any], version: str = "100") -> list[Write]:
    cat.begin(scope(kind))
    writes = [write for obj in objects for write in cat.listed(scope(kind), obj)]
    return writes + cat.completed(scope(kind), version)


def listed(*objects: dict[str, Any]) -> tuple[Catalog, Stream]:
    """A catalog that has listed these, all kinds, and the stream that came of it."""
    cat, stream = catalog(), Stream()
    for kind in ALL:
        stream.apply(list_all(cat, kind, *(obj for obj in objects if obj["kind"] == kind)))
    return cat, stream


class TestPlacing:
    def test_an_object_goes_once_to_each_tree_it_belongs_to(self) -> None:
        _, stream = listed(make(kinds.RAYCLUSTER, "c1", 5, job="j1"), make(kinds.POD, "p", 6, cluster="c1"))
        assert set(stream.objects("raycluster")) == {
            (RootKey("RayCluster", "n", "c1"), "RayCluster", "c1"),
            (RootKey("RayCluster", "n", "c1"), "Pod", "p"),
        }
        assert set(stream.objects("rayjob")) == {
            (RootKey("RayJob", "n", "j1"), "RayCluster", "c1"),
            (RootKey("RayJob", "n", "j1"), "Pod", "p"),
        }

    def test_what_no_route_wants_is_not_published(self) -> None:
        cat, stream = listed(make(kinds.POD, "other", 5))
        assert not stream.objects("raycluster")
        assert cat.objects == 0
        assert cat.changed(scope("Pod"), make(kinds.POD, "other", 7)) == []
        assert cat.deleted(scope("Pod"), make(kinds.POD, "other", 8)) == []

    def test_values_of_env_do_not_leave(self) -> None:
        cat, _ = listed()
        (write,) = cat.changed(scope("Pod"), make(kinds.POD, "p", 200, cluster="c1"))
        assert "secret" not in str(write.obj)
        assert write.projection == "pod.status"
        assert write.obj["status"] == {"v": 200}

    def test_owner_route(self) -> None:
        cat, stream = listed()
        stream.apply(cat.changed(scope("Job"), make(kinds.JOB, "j1", 200, owner="j1")))
        assert set(stream.objects("rayjob")) == {(RootKey("RayJob", "n", "j1"), "Job", "j1")}

    def test_two_projections_for_one_tree_join(self) -> None:
        names = Projection("names", ("spec.containers[].name",))
        more = (
            *CLUSTER_ROUTES,
            Route(root_kind="RayCluster", kind=kinds.POD, via=Via.LABEL, projection=names, label=labels.CLUSTER),
        )
        cat = catalog(routes={"raycluster": more})
        list_all(cat, "Pod")
        (write,) = cat.changed(scope("Pod"), make(kinds.POD, "p", 200, cluster="c1"))
        assert write.projection == "names+pod.status"


class TestParents:
    def test_pods_move_when_their_parent_becomes_known_later(self) -> None:
        cat, stream = listed(make(kinds.POD, "p", 6, cluster="c1"))
        assert not stream.objects("rayjob")
        stream.apply(cat.changed(scope("RayCluster"), make(kinds.RAYCLUSTER, "c1", 200, job="j1")))
        assert stream.objects("rayjob")[RootKey("RayJob", "n", "j1"), "Pod", "p"] == ("uid-p", "6")

    def test_another_parent_takes_them_over(self) -> None:
        cat, stream = listed(make(kinds.RAYCLUSTER, "c1", 5, job="j1"), make(kinds.POD, "p", 6, cluster="c1"))
        stream.apply(cat.changed(scope("RayCluster"), make(kinds.RAYCLUSTER, "c1", 200, job="j2")))
        assert {key.name for key, _, _ in stream.objects("rayjob")} == {"j2"}

    def test_a_marker_speaks_for_the_routes_that_are_served(self) -> None:
        cat, _ = listed()
        assert cat.vouched("rayjob", "Pod") == {route_id(PODS_BY_CLUSTER)}
        assert cat.vouched("raycluster", "Pod") == {route_id(r) for r in CLUSTER_ROUTES if r.kind == kinds.POD}
        assert cat.vouched("rayjob", "Service") == frozenset()

    def test_pods_listed_before_the_clusters_do_not_leave_their_tree(self) -> None:
        """After a take-over the lists come in any order; a pod must not go and come back."""
        _, stream = listed(make(kinds.RAYCLUSTER, "c1", 5, job="j1"), make(kinds.POD, "p", 6, cluster="c1"))
        cat = catalog(stream)
        assert list_all(cat, "Pod", make(kinds.POD, "p", 6, cluster="c1")) == []
        assert ("rayjob", "Pod", "100") not in cat.marks([scope(kind) for kind in ALL])
        assert ("raycluster", "Pod", "100") in cat.marks([scope(kind) for kind in ALL])
        assert list_all(cat, "RayCluster", make(kinds.RAYCLUSTER, "c1", 5, job="j1")) == []
        assert ("rayjob", "Pod", "100") in cat.marks([scope(kind) for kind in ALL])


class TestVersions:
    def test_never_older_over_newer_within_one_uid(self) -> None:
        cat, _ = listed(make(kinds.RAYCLUSTER, "c1", 50))
        assert cat.changed(scope("RayCluster"), make(kinds.RAYCLUSTER, "c1", 40)) == []
        assert cat.changed(scope("RayCluster"), make(kinds.RAYCLUSTER, "c1", 50)) == []
        assert len(cat.changed(scope("RayCluster"), make(kinds.RAYCLUSTER, "c1", 60))) == 1

    def test_a_new_uid_counts_whatever_its_version(self) -> None:
        cat, _ = listed(make(kinds.RAYCLUSTER, "c1", 50))
        assert len(cat.changed(scope("RayCluster"), make(kinds.RAYCLUSTER, "c1", 10, uid="new"))) == 1

    def test_the_deletion_of_a_predecessor_leaves_the_successor(self) -> None:
        cat, _ = listed(make(kinds.RAYCLUSTER, "c1", 50, uid="new"))
        assert cat.deleted(scope("RayCluster"), make(kinds.RAYCLUSTER, "c1", 60, uid="old")) == []

    def test_a_list_overrules_newer_versions(self) -> None:
        """A restored store goes back in time."""
        _, stream = listed(make(kinds.RAYCLUSTER, "c1", 50))
        writes = list_all(catalog(stream), "RayCluster", make(kinds.RAYCLUSTER, "c1", 40))
        assert [write.obj["metadata"]["resourceVersion"] for write in writes] == ["40"]

    def test_a_relist_of_what_is_there_writes_nothing(self) -> None:
        objects = (make(kinds.RAYCLUSTER, "c1", 5, job="j1"), make(kinds.POD, "p", 6, cluster="c1"))
        cat, stream = listed(*objects)
        for again in (cat, catalog(stream)):
            for kind in ALL:
                assert list_all(again, kind, *(obj for obj in objects if obj["kind"] == kind)) == []

    def test_a_body_with_less_than_is_declared_is_published_again(self) -> None:
        _, stream = listed(make(kinds.POD, "p", 6, cluster="c1"))
        wider = (
            CLUSTER_ROUTES[0],
            Route(root_kind="RayCluster", kind=kinds.POD, via=Via.LABEL, projection=FULL, label=labels.CLUSTER),
        )
        cat = catalog(stream, routes={"raycluster": wider})
        (write,) = list_all(cat, "Pod", make(kinds.POD, "p", 6, cluster="c1"))
        assert write.projection == "full"


class TestDeletions:
    def test_a_tombstone_for_each_tree_with_uid_and_version(self) -> None:
        cat, stream = listed(make(kinds.RAYCLUSTER, "c1", 5, job="j1"), make(kinds.POD, "p", 6, cluster="c1"))
        writes = cat.deleted(scope("Pod"), make(kinds.POD, "p", 200, cluster="c1"))
        assert {
            (w.controller, w.op, w.obj["metadata"]["uid"], w.obj["metadata"]["resourceVersion"]) for w in writes
        } == {
            ("raycluster", Op.DELETED, "uid-p", "200"),
            ("rayjob", Op.DELETED, "uid-p", "200"),
        }
        stream.apply(writes)
        assert not [key for key in stream.objects("rayjob") if key[1] == "Pod"]

    def test_deletions_missed_while_away(self) -> None:
        _, stream = listed(make(kinds.RAYCLUSTER, "c1", 5), make(kinds.POD, "p", 6, cluster="c1"))
        cat = catalog(stream)
        writes = list_all(cat, "Pod")
        assert [(w.op, w.obj["metadata"]["uid"], w.obj["metadata"]["resourceVersion"]) for w in writes] == [
            (Op.DELETED, "uid-p", "6")
        ]
        assert cat.marks([scope("Pod")]) == [("raycluster", "Pod", "100")]

    def test_deletions_missed_between_two_lists_of_one_term(self) -> None:
        cat, stream = listed(make(kinds.POD, "p", 6, cluster="c1"))
        stream.apply(list_all(cat, "Pod", version="300"))
        assert not stream.objects("raycluster")

    def test_a_page_alone_deletes_nothing(self) -> None:
        _, stream = listed(make(kinds.POD, "p", 6, cluster="c1"), make(kinds.POD, "q", 7, cluster="c1"))
        cat = catalog(stream)
        cat.begin(scope("Pod"))
        assert cat.listed(scope("Pod"), make(kinds.POD, "q", 7, cluster="c1")) == []
        cat.begin(scope("Pod"))
        assert cat.marks([scope("Pod")]) == []

    def test_an_object_that_loses_its_label_leaves_the_tree(self) -> None:
        cat, stream = listed(make(kinds.POD, "p", 6, cluster="c1"))
        stream.apply(cat.changed(scope("Pod"), make(kinds.POD, "p", 200)))
        assert not stream.objects("raycluster")


class TestMarks:
    def test_only_complete_and_living_kinds(self) -> None:
        cat = catalog()
        list_all(cat, "RayJob", version="7")
        assert cat.marks([scope("RayJob")]) == [("rayjob", "RayJob", "7")]
        assert cat.marks([]) == []
        assert cat.incomplete() == ["Job", "Pod", "RayCluster"]

    def test_the_version_follows_changes_and_bookmarks(self) -> None:
        cat, _ = listed()
        cat.changed(scope("RayJob"), make(kinds.RAYJOB, "j", 170))
        assert ("rayjob", "RayJob", "170") in cat.marks([scope("RayJob")])
        cat.bookmark(scope("RayJob"), "180")
        assert ("rayjob", "RayJob", "180") in cat.marks([scope("RayJob")])

    def test_forgotten_kinds_are_marked_again_only_after_their_list(self) -> None:
        cat, _ = listed()
        everything = [scope(kind) for kind in ALL]
        cat.declare({of: served for of, served in serving().items() if of.kind != "RayCluster"})
        cat.declare(serving())
        assert [(c, k) for c, k, _ in cat.marks(everything)] == [
            ("raycluster", "Pod"),
            ("rayjob", "Job"),
            ("rayjob", "RayJob"),
        ]
        list_all(cat, "RayCluster", version="400")
        assert len(cat.marks(everything)) == 6

    def test_every_namespace_must_be_complete(self) -> None:
        cat = Catalog(SETTINGS, {})
        cat.declare(serving(ROUTES, "a", "b"))
        cat.begin(Scope("RayJob", "a"))
        cat.completed(Scope("RayJob", "a"), "9")
        assert cat.marks([Scope("RayJob", "a"), Scope("RayJob", "b")]) == []
        cat.begin(Scope("RayJob", "b"))
        cat.completed(Scope("RayJob", "b"), "8")
        assert cat.marks([Scope("RayJob", "a"), Scope("RayJob", "b")]) == [("rayjob", "RayJob", "8")]


class TestUnservedKinds:
    def test_a_kind_without_definition_is_complete_and_empty(self) -> None:
        cat = catalog()
        for _ in range(2):
            cat.begin(scope("RayJob"))
            assert cat.unserved(scope("RayJob")) == []
            assert cat.marks([scope("RayJob")]) == [("rayjob", "RayJob", "0")]
        assert list_all(cat, "RayJob", make(kinds.RAYJOB, "j", 5), version="9") != []
        assert cat.marks([scope("RayJob")]) == [("rayjob", "RayJob", "9")]

    def test_it_is_not_believed_where_there_were_some(self) -> None:
        """A server that starts, or a proxy before it, must not make us forget everything."""
        cat, stream = listed(make(kinds.RAYJOB, "j", 5))
        assert cat.unserved(scope("RayJob")) is None
        later = catalog(stream)
        later.begin(scope("RayJob"))
        assert later.unserved(scope("RayJob")) is None
        assert later.marks([scope("RayJob")]) == []


TWO_WATCHES = {"raycluster": CLUSTER_ROUTES, "rayjob": (*JOB_ROUTES, PODS_OF_JOB)}
OF_CLUSTERS = Scope("Pod", "", labels.CLUSTER)
OF_JOBS = Scope("Pod", "", f"{labels.ORIGINATED_FROM_NAME},{labels.ORIGINATED_FROM_CRD}=RayJob")
J1 = RootKey("RayJob", "n", "j1")


class TestTwoWatchesOfAKind:
    """Pods of clusters are seen through one watch, pods of submitters through another, some through both."""

    def begin(
        self, of_clusters: tuple[Any, ...] = (), of_jobs: tuple[Any, ...] = (), stream: Stream | None = None
    ) -> tuple[Catalog, Stream]:
        cat, out = catalog(stream, TWO_WATCHES), stream or Stream()
        for kind in ("RayCluster", "RayJob", "Job"):
            found = [make(kinds.RAYCLUSTER, "c1", 3, job="j1")] if kind == "RayCluster" else []
            out.apply(list_all(cat, kind, *found))
        for of, objects in ((OF_CLUSTERS, of_clusters), (OF_JOBS, of_jobs)):
            cat.begin(of)
            for obj in objects:
                out.apply(cat.listed(of, obj))
            out.apply(cat.completed(of, "100"))
        return cat, out

    def test_what_both_show_is_written_once(self) -> None:
        both = make(kinds.POD, "p", 5, cluster="c1", job="j1")
        cat, stream = self.begin((both,), (both,))
        assert stream.objects("rayjob")[J1, "Pod", "p"] == ("uid-p", "5")
        newer = make(kinds.POD, "p", 200, cluster="c1", job="j1")
        assert {write.controller for write in cat.changed(OF_JOBS, newer)} == {"rayjob"}
        assert {write.controller for write in cat.changed(OF_CLUSTERS, newer)} == {"raycluster"}

    def test_an_object_that_leaves_one_stays_where_the_other_shows_it(self) -> None:
        both = make(kinds.POD, "p", 5, cluster="c1", job="j1")
        cat, stream = self.begin((both,), (both,))
        stream.apply(cat.changed(OF_JOBS, make(kinds.POD, "p", 200, job="j1")))
        stream.apply(cat.deleted(OF_CLUSTERS, make(kinds.POD, "p", 200, cluster="c1", job="j1")))
        assert (RootKey("RayCluster", "n", "c1"), "Pod", "p") not in stream.objects("raycluster")
        assert stream.objects("rayjob")[J1, "Pod", "p"] == ("uid-p", "200")

    def test_a_stream_does_not_wait_for_a_watch_that_does_not_serve_it(self) -> None:
        both = make(kinds.POD, "p", 5, cluster="c1", job="j1")
        cat, _ = self.begin((both,), (both,))
        writes = cat.deleted(OF_CLUSTERS, make(kinds.POD, "p", 200, cluster="c1", job="j1"))
        assert [(write.controller, write.op) for write in writes] == [("raycluster", Op.DELETED)]
        last = cat.deleted(OF_JOBS, make(kinds.POD, "p", 200, cluster="c1", job="j1"))
        assert [(write.controller, write.op) for write in last] == [("rayjob", Op.DELETED)]

    def test_a_watch_that_lags_brings_back_no_predecessor(self) -> None:
        old = make(kinds.POD, "p", 5, uid="old", cluster="c1", job="j1")
        cat, stream = self.begin((old,), (old,))
        stream.apply(cat.deleted(OF_JOBS, make(kinds.POD, "p", 200, uid="old", cluster="c1", job="j1")))
        stream.apply(cat.changed(OF_JOBS, make(kinds.POD, "p", 210, uid="new", cluster="", job="j1")))
        for lagging in (190, 195):
            stream.apply(cat.changed(OF_CLUSTERS, make(kinds.POD, "p", lagging, uid="old", cluster="c1", job="j1")))
            assert stream.objects("rayjob")[J1, "Pod", "p"] == ("new", "210")
        stream.apply(cat.deleted(OF_CLUSTERS, make(kinds.POD, "p", 200, uid="old", cluster="c1", job="j1")))
        assert stream.objects("rayjob")[J1, "Pod", "p"] == ("new", "210")

    def test_what_one_told_as_gone_is_not_published_from_the_older_view_of_another(self) -> None:
        cat, stream = catalog(routes=TWO_WATCHES), Stream()
        list_all(cat, "RayCluster")
        both = make(kinds.POD, "p", 5, cluster="c1", job="j1")
        for of in (OF_CLUSTERS, OF_JOBS):
            cat.begin(of)
            stream.apply(cat.listed(of, both) + cat.completed(of, "100"))
        stream.apply(cat.deleted(OF_JOBS, make(kinds.POD, "p", 200, cluster="c1", job="j1")))
        stream.apply(cat.changed(scope("RayCluster"), make(kinds.RAYCLUSTER, "c1", 190, job="j1")))
        assert (J1, "Pod", "p") not in stream.objects("rayjob")
        stream.apply(cat.changed(OF_CLUSTERS, make(kinds.POD, "p", 200, cluster="c1")))
        assert stream.objects("rayjob")[J1, "Pod", "p"] == ("uid-p", "200"), "only its label was gone"

    def test_what_one_told_as_gone_stays_gone_when_another_tells_later_that_it_was_there(self) -> None:
        cat, stream = self.begin()
        stream.apply(cat.changed(OF_JOBS, make(kinds.POD, "p", 200, cluster="c1", job="j1")))
        stream.apply(cat.deleted(OF_JOBS, make(kinds.POD, "p", 210, cluster="c1", job="j1")))
        stream.apply(cat.changed(OF_CLUSTERS, make(kinds.POD, "p", 200, cluster="c1", job="j1")))
        assert (J1, "Pod", "p") not in stream.objects("rayjob")
        stream.apply(cat.deleted(OF_CLUSTERS, make(kinds.POD, "p", 210, cluster="c1", job="j1")))
        cat.bookmark(OF_CLUSTERS, "220")
        cat.bookmark(OF_JOBS, "220")
        stream.apply(cat.changed(OF_CLUSTERS, make(kinds.POD, "p", 230, uid="again", cluster="c1", job="j1")))
        assert stream.objects("rayjob")[J1, "Pod", "p"] == ("again", "230")

    def test_a_list_of_one_does_not_go_behind_what_the_other_shows(self) -> None:
        newest = make(kinds.POD, "p", 50, cluster="c1", job="j1")
        cat, stream = self.begin((newest,), (newest,))
        cat.begin(OF_JOBS)
        assert cat.listed(OF_JOBS, make(kinds.POD, "p", 40, cluster="c1", job="j1")) == []
        stream.apply(cat.completed(OF_JOBS, "300"))
        assert stream.objects("rayjob")[J1, "Pod", "p"] == ("uid-p", "50")

    def test_a_marker_needs_the_watches_that_serve_its_stream(self) -> None:
        _, stream = self.begin()
        cat = catalog(stream, TWO_WATCHES)
        list_all(cat, "RayCluster")
        cat.begin(OF_CLUSTERS)
        cat.completed(OF_CLUSTERS, "7")
        everything = [scope("RayCluster"), OF_CLUSTERS, OF_JOBS]
        assert [mark for mark in cat.marks(everything) if mark[1] == "Pod"] == [("raycluster", "Pod", "7")]
        cat.begin(OF_JOBS)
        cat.completed(OF_JOBS, "6")
        assert ("rayjob", "Pod", "6") in cat.marks(everything)
        assert [mark for mark in cat.marks([OF_CLUSTERS]) if mark[1] == "Pod"] == [("raycluster", "Pod", "7")]

    def test_after_a_take_over_nothing_is_dropped_before_all_of_them_are_listed(self) -> None:
        submitter, worker = make(kinds.POD, "s", 5, job="j1"), make(kinds.POD, "w", 6, cluster="c1")
        _, stream = self.begin((worker,), (submitter,))
        cat = catalog(stream, TWO_WATCHES)
        list_all(cat, "RayCluster", make(kinds.RAYCLUSTER, "c1", 3, job="j1"))
        cat.begin(OF_CLUSTERS)
        assert cat.completed(OF_CLUSTERS, "300") != [], "the worker is gone, for the stream that only this watch serves"
        cat.begin(OF_JOBS)
        assert cat.listed(OF_JOBS, submitter) == []
        stream.apply(cat.completed(OF_JOBS, "300"))
        assert {name for key, kind, name in stream.objects("rayjob") if kind == "Pod"} == {"s"}

    def test_after_a_take_over_one_watch_alone_does_not_know_where_an_object_no_longer_belongs(self) -> None:
        both = make(kinds.POD, "p", 5, cluster="of nobody", job="j1")
        _, stream = self.begin((both,), (both,))
        cat = catalog(stream, TWO_WATCHES)
        list_all(cat, "RayCluster", make(kinds.RAYCLUSTER, "c1", 3, job="j1"))
        cat.begin(OF_CLUSTERS)
        assert cat.listed(OF_CLUSTERS, both) == []
        assert (
            cat.deleted(OF_CLUSTERS, make(kinds.POD, "p", 9, cluster="of nobody", job="j1"))[0].controller
            == "raycluster"
        )
        assert stream.objects("rayjob")[J1, "Pod", "p"] == ("uid-p", "5")

    def test_streams_that_nobody_serves_are_left_alone(self) -> None:
        both = make(kinds.POD, "p", 5, cluster="c1", job="j1")
        _, stream = self.begin((both,), (both,))
        cat = catalog(stream, {"raycluster": CLUSTER_ROUTES})
        writes = list_all(cat, "Pod") + cat.deleted(scope("Pod"), make(kinds.POD, "p", 9, cluster="c1"))
        assert {write.controller for write in writes} == {"raycluster"}

    def test_new_routes_disturb_no_watch_that_serves_others(self) -> None:
        cat, _ = self.begin((make(kinds.POD, "w", 6, cluster="c1"),))
        more = {
            **TWO_WATCHES,
            "rayservice": (Route(root_kind="X", kind=kinds.POD, via=Via.OWNER, projection=FULL, selector="x=y"),),
        }
        assert cat.affected(serving(more)) == {Scope("Pod", "", "x=y")}
        cat.declare(serving(more))
        assert {("raycluster", "Pod", "100"), ("rayjob", "Pod", "100")} <= set(cat.marks([*serving(more)]))


class Histories(RuleBasedStateMachine):
    """A cluster changes, watches lag, gateways come and go; when all has been delivered the streams say what is true."""

    scopes = tuple(of for of in serving(TWO_WATCHES) if of.kind in ("RayCluster", "Pod"))

    @initialize()
    def begin(self) -> None:
        self.version = 10
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.events: dict[Scope, list[tuple[str, dict[str, Any]]]] = {of: [] for of in self.scopes}
        self.stream = Stream()
        self.newest: dict[str, tuple[str, int]] = {}
        self.take_over()

    def take(self, writes: list[Write]) -> None:
        for write in writes:
            meta = write.obj["metadata"]
            uid, version = self.newest.get(f"{write.controller} {write.subject}", ("", 0))
            now = int(meta["resourceVersion"])
            if uid == meta["uid"]:
                assert now >= version, f"{write.subject}: {now} over {version}"
            self.newest[f"{write.controller} {write.subject}"] = (meta["uid"], now)
        self.stream.apply(writes)

    @rule()
    def take_over(self) -> None:
        self.catalog = catalog(self.stream, TWO_WATCHES)
        self.relisted: set[Scope] = set()
        for kind in ("RayJob", "Job"):
            self.take(list_all(self.catalog, kind, version=str(self.version)))

    @rule(of=st.sampled_from(scopes))
    def relist(self, of: Scope) -> None:
        self.events[of].clear()
        self.catalog.begin(of)
        for obj in [obj for obj in self.objects.values() if self.shows(of, obj)]:
            self.take(self.catalog.listed(of, obj))
        self.take(self.catalog.completed(of, str(self.version)))
        self.relisted.add(of)

    @staticmethod
    def shows(of: Scope, obj: dict[str, Any] | None) -> bool:
        return obj is not None and obj["kind"] == of.kind and matches(of.selector, obj["metadata"]["labels"])

    @rule(name=st.sampled_from(["c1", "c2"]), job=st.sampled_from(["", "j1", "j2"]))
    def write_cluster(self, name: str, job: str) -> None:
        self.write(kinds.RAYCLUSTER, name, job=job)

    @rule(
        name=st.sampled_from(["p1", "p2", "p3"]),
        cluster=st.sampled_from(["", "c1", "c2"]),
        job=st.sampled_from(["", "j1"]),
    )
    def write_pod(self, name: str, cluster: str, job: str) -> None:
        self.write(kinds.POD, name, cluster=cluster, job=job)

    def write(self, kind: kinds.Kind, name: str, **where: str) -> None:
        self.version += 1
        before = self.objects.get((kind.kind, name))
        uid = before["metadata"]["uid"] if before else f"uid-{self.version}"
        obj = make(kind, name, self.version, uid=uid, **where)
        self.objects[kind.kind, name] = obj
        self.tell(before, obj)

    def tell(self, before: dict[str, Any] | None, after: dict[str, Any] | None) -> None:
        """As an API server does: what leaves a selector is told as deleted, in its last state at the new version."""
        for of in self.scopes:
            if self.shows(of, after):
                self.events[of].append(("MODIFIED" if self.shows(of, before) else "ADDED", after or {}))
            elif before is not None and self.shows(of, before):
                meta = {**before["metadata"], "resourceVersion": str(self.version)}
                self.events[of].append(("DELETED", {**before, "metadata": meta}))

    @rule(data=st.data())
    @precondition(lambda self: self.objects)
    def delete(self, data: st.DataObject) -> None:
        self.version += 1
        self.tell(self.objects.pop(data.draw(st.sampled_from(sorted(self.objects)))), None)

    @rule(of=st.sampled_from(scopes), many=st.booleans())
    @precondition(lambda self: self.relisted)
    def deliver(self, of: Scope, many: bool) -> None:
        while of in self.relisted and self.events[of]:
            type_, obj = self.events[of].pop(0)
            handle = self.catalog.deleted if type_ == "DELETED" else self.catalog.changed
            self.take(handle(of, obj))
            if not many:
                return

    @invariant()
    def streams_tell_the_truth_when_all_is_delivered(self) -> None:
        if not hasattr(self, "catalog") or self.relisted != set(self.scopes) or any(self.events.values()):
            return

        def parents(root_kind: str, _namespace: str, cluster: str) -> list[RootKey]:
            obj = self.objects.get(("RayCluster", cluster))
            job = obj["metadata"]["labels"].get(labels.ORIGINATED_FROM_NAME) if obj else None
            return [RootKey("RayJob", "n", job)] if job and root_kind == "RayJob" else []

        for controller, routes in TWO_WATCHES.items():
            expected = {
                (key, obj["kind"], obj["metadata"]["name"]): (
                    obj["metadata"]["uid"],
                    obj["metadata"]["resourceVersion"],
                )
                for obj in self.objects.values()
                for key in trees_of(routes, obj, parents)
            }
            assert self.stream.objects(controller) == expected


TestHistories = Histories.TestCase
TestHistories.settings = hypothesis_settings(max_examples=150, stateful_step_count=40, deadline=None)
