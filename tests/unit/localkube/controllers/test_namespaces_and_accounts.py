"""Namespace lifecycle and service accounts as pure machines."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from raybus.domain.kinds import CONFIG_MAP, NAMESPACE, POD, SERVICE_ACCOUNT
from raybus.kube.errors import KubeError, NotFound
from raybus_localkube.controllers.accounts import Accounts
from raybus_localkube.controllers.controller import Ref, Served
from raybus_localkube.controllers.namespaces import LOOK_AGAIN_S, Namespaces
from raybus_localkube.controllers.work import Call, Work

NOW = datetime(2026, 1, 1, tzinfo=UTC)
VERBS = frozenset({"list", "watch", "delete", "deletecollection"})
Object = dict[str, Any]


def namespace(*, ending: bool = True, **more: Any) -> Object:
    meta: Object = {"name": "ns", "uid": "u", "resourceVersion": "1"}
    if ending:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return {"metadata": meta, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Terminating"}, **more}


def config_map(*finalizers: str, ending: bool = False) -> Object:
    meta: Object = {"name": "a", "namespace": "ns"} | ({"finalizers": list(finalizers)} if finalizers else {})
    return {"metadata": meta | ({"deletionTimestamp": "t"} if ending else {})}


class World:
    """The namespace controller with what the server would list."""

    def __init__(self) -> None:
        self.now = NOW
        self.namespaces = Namespaces()
        self.namespaces.serve((Served(POD, VERBS), Served(CONFIG_MAP, VERBS), Served(NAMESPACE, VERBS)))
        self.content: dict[str, list[Object] | KubeError] = {}
        self.namespaces.changed(NAMESPACE, namespace())
        self.key = self.namespaces.key("ns", "")

    def decide(self) -> Work:
        return self.namespaces.decide(self.key, self.now)

    def listed(self) -> World:
        """Answer lists until something else is asked for."""
        for call in self.calls():
            if call.method == "GET":
                found = self.content.get(call.kind.plural, [])
                self.namespaces.answered(self.key, call, found if isinstance(found, KubeError) else {"items": found})
        return self

    def calls(self) -> list[Call]:
        return [call for step in self.decide().steps for call in step]

    def gone(self) -> None:
        self.namespaces.gone(CONFIG_MAP, Ref("x", "ns", "a"))


def test_living_namespace_is_left_alone() -> None:
    namespaces = Namespaces()
    assert list(namespaces.changed(NAMESPACE, namespace(ending=False))) == []
    assert namespaces.decide(namespaces.key("ns", ""), NOW).steps == ()


def test_every_namespaced_kind_is_listed_first() -> None:
    calls = World().calls()
    assert [(call.method, call.path) for call in calls] == [
        ("GET", "/api/v1/namespaces/ns/pods"),
        ("GET", "/api/v1/namespaces/ns/configmaps"),
    ]


def test_empty_namespace_is_let_go() -> None:
    (call,) = World().listed().calls()
    assert (call.method, call.path) == ("PUT", "/api/v1/namespaces/ns/finalize")
    assert call.body is not None
    assert call.body["spec"]["finalizers"] == []


def test_kind_that_is_not_served_any_more_counts_as_empty() -> None:
    world = World()
    world.content["pods"] = NotFound(404, "NotFound", "no such resource")
    assert [call.method for call in world.listed().calls()] == ["PUT"]


def test_unreadable_kind_is_asked_for_again() -> None:
    world = World()
    world.content["pods"] = KubeError(503, "ServiceUnavailable", "later")
    assert [call.path for call in world.listed().calls()] == ["/api/v1/namespaces/ns/pods"]


def test_what_is_there_is_deleted_and_looked_at_again() -> None:
    world = World()
    world.content["configmaps"] = [config_map()]
    calls = world.listed().calls()
    assert [(call.method, call.path) for call in calls] == [
        ("DELETE", "/api/v1/namespaces/ns/configmaps"),
        ("GET", "/api/v1/namespaces/ns/configmaps"),
    ]


def test_what_remains_is_told_once_and_waited_for() -> None:
    world = World()
    world.content["configmaps"] = [config_map("example.com/hold", ending=True), config_map(ending=True)]
    (call,) = world.listed().calls()
    assert call.path == "/api/v1/namespaces/ns/status"
    assert call.body is not None
    told = call.body["status"]["conditions"]
    assert [(each["type"], each["status"], each["reason"]) for each in told] == [
        ("NamespaceDeletionDiscoveryFailure", "False", "ResourcesDiscovered"),
        ("NamespaceDeletionGroupVersionParsingFailure", "False", "ParsedGroupVersions"),
        ("NamespaceDeletionContentFailure", "False", "ContentDeleted"),
        ("NamespaceContentRemaining", "True", "SomeResourcesRemain"),
        ("NamespaceFinalizersRemaining", "True", "SomeFinalizersRemain"),
    ]
    assert told[3]["message"] == "Some resources are remaining: configmaps. has 2 resource instances"
    assert told[4]["message"].endswith("finalizers remaining: example.com/hold in 1 resource instances")
    world.namespaces.changed(NAMESPACE, namespace(status={"phase": "Terminating", "conditions": told}))
    work = world.decide()
    assert work.steps == ()
    assert work.wake_at == NOW + timedelta(seconds=LOOK_AGAIN_S)


def test_next_round_comes_when_something_is_gone_but_not_at_once() -> None:
    world = World()
    world.content["configmaps"] = [config_map("example.com/hold", ending=True)]
    world.listed()
    world.gone()
    assert world.decide().steps == ()
    assert world.decide().wake_at == NOW + timedelta(seconds=0.5)
    world.now += timedelta(seconds=0.5)
    world.content = {}
    assert [call.method for call in world.listed().calls()] == ["PUT"]


def test_next_round_comes_in_the_end_even_if_nothing_was_heard() -> None:
    world = World()
    world.content["configmaps"] = [config_map("example.com/hold", ending=True)]
    world.listed()
    world.now += timedelta(seconds=LOOK_AGAIN_S)
    assert {call.method for call in world.calls()} == {"GET"}


def test_finalized_namespace_is_not_finalized_again() -> None:
    world = World().listed()
    world.namespaces.changed(NAMESPACE, namespace(spec={"finalizers": []}))
    assert world.calls() == []


# --- accounts


def account(*names: str) -> Accounts:
    accounts = Accounts("PEM")
    accounts.changed(NAMESPACE, namespace(ending=False))
    if "account" in names:
        meta = {"name": "default", "namespace": "ns", "uid": "s", "resourceVersion": "1"}
        accounts.changed(SERVICE_ACCOUNT, {"metadata": meta})
    if "bundle" in names:
        meta = {"name": "kube-root-ca.crt", "namespace": "ns", "uid": "c", "resourceVersion": "7"}
        accounts.changed(CONFIG_MAP, {"metadata": meta, "data": {"ca.crt": "PEM"}})
    return accounts


def wanted(accounts: Accounts) -> list[tuple[str, str]]:
    steps = accounts.decide(accounts.key("ns", ""), NOW).steps
    return [(call.method, call.path) for step in steps for call in step]


def test_new_namespace_gets_account_and_certificate() -> None:
    assert wanted(account()) == [
        ("POST", "/api/v1/namespaces/ns/serviceaccounts"),
        ("POST", "/api/v1/namespaces/ns/configmaps"),
    ]


def test_both_are_made_again_when_deleted() -> None:
    accounts = account("account", "bundle")
    assert wanted(accounts) == []
    assert list(accounts.gone(SERVICE_ACCOUNT, Ref("s", "ns", "default"))) == [accounts.key("ns", "")]
    assert list(accounts.gone(CONFIG_MAP, Ref("c", "ns", "kube-root-ca.crt"))) == [accounts.key("ns", "")]
    assert len(wanted(accounts)) == 2


def test_other_accounts_and_maps_do_not_matter() -> None:
    accounts = account("account", "bundle")
    assert list(accounts.gone(SERVICE_ACCOUNT, Ref("x", "ns", "robot"))) == []
    assert list(accounts.gone(CONFIG_MAP, Ref("x", "ns", "mine"))) == []


def test_certificate_that_was_changed_is_put_back() -> None:
    accounts = account("account")
    meta = {"name": "kube-root-ca.crt", "namespace": "ns", "uid": "c", "resourceVersion": "7"}
    accounts.changed(CONFIG_MAP, {"metadata": meta, "data": {"ca.crt": "forged"}})
    assert wanted(accounts) == [("PATCH", "/api/v1/namespaces/ns/configmaps/kube-root-ca.crt")]


def test_namespace_under_deletion_gets_nothing() -> None:
    accounts = account()
    accounts.changed(NAMESPACE, namespace())
    assert wanted(accounts) == []


def test_without_a_certificate_there_is_no_config_map() -> None:
    accounts = Accounts()
    accounts.changed(NAMESPACE, namespace(ending=False))
    assert wanted(accounts) == [("POST", "/api/v1/namespaces/ns/serviceaccounts")]
