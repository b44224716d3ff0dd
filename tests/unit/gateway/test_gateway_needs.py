"""Which watches serve the declared routes, for how long routes are served, and what goes to history."""

from __future__ import annotations

import orjson
from hypothesis import given
from hypothesis import strategies as st

from raybus.bus.envelope import Op
from raybus.bus.routing import matches, trees_of
from raybus.decide.routes import FULL, POD_STATUS, Route, Via
from raybus.domain import kinds, labels
from raybus_cluster_ctrl import triggers as cluster_ctrl
from raybus_gateway.needs import RouteBook, Scope, readable, watches
from raybus_gateway.records import object_record
from raybus_job_ctrl import triggers as job_ctrl

ROOT = Route(root_kind="RayJob", kind=kinds.RAYJOB, via=Via.ROOT, projection=FULL)


def pods(selector: str = "", via: Via = Via.LABEL, label: str = labels.CLUSTER) -> Route:
    return Route(root_kind="RayCluster", kind=kinds.POD, via=via, projection=POD_STATUS, selector=selector, label=label)


class TestWatches:
    def selectors(self, *routes: Route) -> dict[str, int]:
        """How many routes each selector serves."""
        found = watches({"a": routes[:1], "b": routes[1:]})
        return {watch.selector: sum(map(len, served.values())) for watch, served in found.items()}

    def test_a_root_is_watched_once_and_entirely(self) -> None:
        found = watches({"a": (ROOT, pods()), "b": (ROOT,)})
        assert {watch.scope for watch in found} == {Scope("RayJob", ""), Scope("Pod", "", labels.CLUSTER)}
        (root,) = [served for watch, served in found.items() if watch.kind == kinds.RAYJOB]
        assert root == {"a": (ROOT,), "b": (ROOT,)}

    def test_what_a_route_implies(self) -> None:
        assert self.selectors(pods()) == {labels.CLUSTER: 1}
        assert self.selectors(pods(via=Via.CLUSTER, label="")) == {labels.CLUSTER: 1}
        assert self.selectors(pods("app=ray", via=Via.OWNER, label="")) == {"app=ray": 1}
        assert self.selectors(pods("x!=y,!z,e in (b,a)")) == {f"!z,e in (a,b),{labels.CLUSTER},x!=y": 1}
        made_for = Route(
            root_kind="RayJob", kind=kinds.POD, via=Via.LABEL, projection=FULL, label="n", label_equals=(("crd", "RayJob"),)
        )  # fmt: skip
        assert self.selectors(made_for) == {"crd=RayJob,n": 1}

    def test_selectors_that_have_nothing_to_do_with_each_other_are_watched_apart(self) -> None:
        assert self.selectors(pods(), pods(label="other")) == {labels.CLUSTER: 1, "other": 1}

    def test_what_a_wider_one_shows_too_has_no_watch_of_its_own(self) -> None:
        assert self.selectors(pods("a=b"), pods()) == {labels.CLUSTER: 2}
        assert self.selectors(pods("a=b"), pods("a in (b,c)"), pods("a")) == {f"a,{labels.CLUSTER}": 3}
        assert self.selectors(pods(), pods(via=Via.OWNER)) == {"": 2}
        assert self.selectors(pods("a=b"), pods("a!=c"), pods("a notin (c,d)")) == {f"a!=c,{labels.CLUSTER}": 3}
        assert self.selectors(pods("!a"), pods("a!=c")) == {f"a!=c,{labels.CLUSTER}": 2}

    def test_written_differently_they_are_one(self) -> None:
        assert self.selectors(pods("a==b"), pods("a in (b)")) == {f"a=b,{labels.CLUSTER}": 2}

    def test_one_watch_per_namespace_that_is_looked_after(self) -> None:
        assert {watch.namespace for watch in watches({"a": (ROOT,)}, ("x", "y"))} == {"x", "y"}

    def test_a_route_that_cannot_be_read_does_not_stop_the_others(self) -> None:
        good, complaints = readable({"a": (ROOT, pods("in in in"))})
        assert good == {"a": (ROOT,)}
        assert "a, Pod" in complaints[0]

    def test_the_controllers_never_ask_for_the_pods_jobs_and_services_of_others(self) -> None:
        found = watches({"raycluster": cluster_ctrl.ROUTES, "rayjob": job_ctrl.ROUTES})
        unselected = {watch.kind.kind for watch in found if not watch.selector}
        assert unselected == {"RayCluster", "RayJob", "RayService", "RayCronJob"}
        assert {watch.selector for watch in found if watch.kind == kinds.POD} == {
            "ray.io/cluster",
            "ray.io/originated-from-cr-name,ray.io/originated-from-crd=RayJob",
        }


KEYS, VALUES = ("a", "b"), ("x", "y")
TERMS = st.one_of(
    st.sampled_from([f"{sign}{key}" for sign in ("", "!") for key in KEYS]),
    st.builds("{}{}{}".format, st.sampled_from(KEYS), st.sampled_from(("=", "!=")), st.sampled_from(VALUES)),
    st.builds("{} {} (x,y)".format, st.sampled_from(KEYS), st.sampled_from(("in", "notin"))),
)
ROUTES = st.builds(
    pods,
    st.lists(TERMS, max_size=3).map(",".join),
    via=st.sampled_from((Via.OWNER, Via.LABEL)),
    label=st.sampled_from(KEYS),
)
LABELS = st.dictionaries(st.sampled_from(KEYS), st.sampled_from((*VALUES, "z")))


class TestWatchesOfAnyRoutes:
    @given(routes=st.lists(ROUTES, min_size=1, max_size=5, unique=True))
    def test_each_route_is_served_once_and_no_watch_makes_another_superfluous(self, routes: list[Route]) -> None:
        found = watches({"a": tuple(routes)})
        served = [route for by_controller in found.values() for route in by_controller["a"]]
        assert sorted(map(repr, served)) == sorted(map(repr, routes))
        assert len({watch.selector for watch in found}) == len(found)
        assert "" not in {watch.selector for watch in found} or len(found) == 1

    @given(routes=st.lists(ROUTES, min_size=1, max_size=5, unique=True), own=LABELS)
    def test_a_watch_shows_whatever_its_routes_want(self, routes: list[Route], own: dict[str, str]) -> None:
        owner = {"kind": "RayCluster", "name": "c", "uid": "u", "controller": True}
        meta = {"name": "p", "namespace": "n", "labels": own, "ownerReferences": [owner]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta}
        for watch, served in watches({"a": tuple(routes)}).items():
            if trees_of(served["a"], pod):
                assert matches(watch.selector, own)

    @given(routes=st.lists(ROUTES, min_size=1, max_size=5, unique=True))
    def test_the_order_of_the_routes_does_not_matter(self, routes: list[Route]) -> None:
        """Else a restart of a controller would end and begin watches."""
        assert watches({"a": tuple(routes)}).keys() == watches({"a": tuple(reversed(routes))}).keys()


class TestRouteBook:
    def test_new_routes_count_at_once_old_ones_linger(self) -> None:
        book = RouteBook(linger_s=100)
        book.declare({"a": (ROOT,)}, now=0)
        assert book.served(0) == {"a": (ROOT,)}
        assert book.next_change(0) is None
        book.declare({"a": ()}, now=50)
        assert book.served(149) == {"a": (ROOT,)}
        assert book.next_change(149) == 150
        assert book.served(150) == {}
        assert book.next_change(150) is None

    def test_a_restart_changes_nothing(self) -> None:
        book = RouteBook(linger_s=100)
        book.declare({"a": (ROOT,)}, now=0)
        book.declare({"a": ()}, now=50)
        book.declare({"a": (ROOT,)}, now=60)
        assert book.next_change(60) is None
        assert book.served(1000) == {"a": (ROOT,)}

    def test_two_releases_side_by_side_are_both_served(self) -> None:
        book = RouteBook(linger_s=100)
        book.declare({"a": (ROOT, pods())}, now=0)
        book.declare({"a": (ROOT,)}, now=10)
        assert set(book.served(20)["a"]) == {ROOT, pods()}


class TestRecords:
    def test_small_form_says_what_happened(self) -> None:
        obj = {
            "metadata": {"name": "j", "uid": "u", "resourceVersion": "5", "generation": 2, "labels": {"a": "b"}},
            "spec": {"entrypoint": "python secret.py", "runtimeEnvYAML": "env_vars: {PASSWORD: secret}"},
            "status": {
                "jobStatus": "RUNNING",
                "message": "secret in a message",
                "conditions": [{"type": "Ready", "status": "True", "reason": "Fine", "message": "secret"}],
            },
        }
        record = object_record(obj, Op.PUT)
        assert record == {
            "what": "object",
            "operation": "PUT",
            "uid": "u",
            "resourceVersion": "5",
            "generation": 2,
            "jobStatus": "RUNNING",
            "conditions": {"Ready": "True (Fine)"},
        }
        assert b"secret" not in orjson.dumps(record)

    def test_objects_without_status(self) -> None:
        obj = {"metadata": {"name": "s", "uid": "u", "resourceVersion": "5", "deletionTimestamp": "t"}}
        assert object_record(obj, Op.DELETED)["deletionTimestamp"] == "t"
