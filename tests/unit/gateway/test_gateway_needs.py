"""Which watches serve the declared routes, for how long routes are served, and what goes to history."""

from __future__ import annotations

import orjson

from raybus.bus.envelope import Op
from raybus.decide.routes import FULL, POD_STATUS, Route, Via
from raybus.domain import kinds, labels
from raybus_gateway.needs import RouteBook, Scope, readable, routes_by_kind, watches
from raybus_gateway.records import object_record

ROOT = Route(root_kind="RayJob", kind=kinds.RAYJOB, via=Via.ROOT, projection=FULL)


def pods(selector: str = "", via: Via = Via.LABEL, label: str = labels.CLUSTER) -> Route:
    return Route(root_kind="RayCluster", kind=kinds.POD, via=via, projection=POD_STATUS, selector=selector, label=label)


class TestWatches:
    def selector(self, *routes: Route) -> str:
        (watch,) = watches({"a": routes[:1], "b": routes[1:]})
        return watch.selector

    def test_a_kind_is_watched_once_for_all_routes(self) -> None:
        found = watches({"a": (ROOT, pods()), "b": (ROOT,)})
        assert {watch.scope for watch in found} == {Scope("RayJob", ""), Scope("Pod", "")}

    def test_the_label_that_names_the_root_narrows_the_watch(self) -> None:
        assert self.selector(pods()) == labels.CLUSTER

    def test_only_terms_on_which_all_routes_agree(self) -> None:
        own = "app.kubernetes.io/created-by=kuberay-operator"
        same = "app.kubernetes.io/created-by == kuberay-operator,x!=y"
        assert (
            self.selector(pods(own), pods(same, label="other")) == "app.kubernetes.io/created-by in (kuberay-operator)"
        )
        assert self.selector(pods(), pods(label="other")) == ""
        assert self.selector(pods("x!=y"), pods("x!=y", via=Via.CLUSTER)) == "ray.io/cluster,x notin (y)"

    def test_one_watch_per_namespace_that_is_looked_after(self) -> None:
        assert {watch.namespace for watch in watches({"a": (ROOT,)}, ("x", "y"))} == {"x", "y"}

    def test_a_route_that_cannot_be_read_does_not_stop_the_others(self) -> None:
        good, complaints = readable({"a": (ROOT, pods("in in in"))})
        assert good == {"a": (ROOT,)}
        assert "a, Pod" in complaints[0]

    def test_which_kinds_must_be_listed_again(self) -> None:
        before, after = routes_by_kind({"a": (ROOT, pods())}), routes_by_kind({"a": (pods(), ROOT), "b": (pods(),)})
        assert before["RayJob"] == after["RayJob"]
        assert before["Pod"] != after["Pod"]


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
