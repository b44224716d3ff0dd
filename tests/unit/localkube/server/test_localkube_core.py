"""The core: writes, preconditions, deletion, lists and watches, without a transport."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from raybus_localkube.server.messages import Response, User
from raybus_localkube.store import history
from raybus_localkube.store.journal import SqliteJournal
from support.localcore import CONFIG_MAPS, PODS, Api, config_map, pod, with_default_namespace

MERGE = "application/merge-patch+json"


@pytest.fixture
async def api() -> Api:
    return await with_default_namespace(Api())


async def test_an_update_that_changes_nothing_has_no_version_and_no_event(api: Api) -> None:
    made = await api.create(CONFIG_MAPS, config_map("a", k="v"))
    watch = await api.watch(CONFIG_MAPS, resourceVersion=made["metadata"]["resourceVersion"])

    _, same = await api.ask("PUT", f"{CONFIG_MAPS}/a", config_map("a", k="v"))
    _, other = await api.ask("PUT", f"{CONFIG_MAPS}/a", config_map("a", k="w"))

    assert same["metadata"] == made["metadata"]
    kind, obj = await watch.next()
    assert (kind, obj) == ("MODIFIED", other)
    await watch.close()


async def test_optimistic_concurrency(api: Api) -> None:
    made = await api.create(CONFIG_MAPS, config_map("a", k="v"))
    await api.ask("PUT", f"{CONFIG_MAPS}/a", config_map("a", k="w"))

    stale = config_map("a", k="x")
    stale["metadata"]["resourceVersion"] = made["metadata"]["resourceVersion"]
    patch = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "data": {"k": "y"}}

    assert (await api.ask("PUT", f"{CONFIG_MAPS}/a", stale))[0] == 409
    assert (await api.ask("PATCH", f"{CONFIG_MAPS}/a", patch, content_type=MERGE))[0] == 409
    assert (await api.ask("GET", f"{CONFIG_MAPS}/a"))[1]["data"] == {"k": "w"}


async def test_delete_preconditions(api: Api) -> None:
    made = await api.create(CONFIG_MAPS, config_map("a"))
    wrong = {"preconditions": {"uid": "11111111-2222-3333-4444-555555555555"}}
    right = {"preconditions": {"uid": made["metadata"]["uid"], "resourceVersion": made["metadata"]["resourceVersion"]}}

    assert (await api.ask("DELETE", f"{CONFIG_MAPS}/a", wrong))[0] == 409
    status, answer = await api.ask("DELETE", f"{CONFIG_MAPS}/a", right)

    assert (status, answer["status"], answer["details"]["uid"]) == (200, "Success", made["metadata"]["uid"])


async def test_a_dry_run_answers_and_stores_nothing(api: Api) -> None:
    before = api.store.rv
    status, made = await api.ask("POST", CONFIG_MAPS, config_map("a"), query={"dryRun": "All"})
    assert (status, "resourceVersion" in made["metadata"]) == (201, False)
    assert (await api.ask("GET", f"{CONFIG_MAPS}/a"))[0] == 404
    assert api.store.rv == before


async def test_finalizers_hold_an_object_until_the_last_one_goes(api: Api) -> None:
    held = config_map("a")
    held["metadata"]["finalizers"] = ["a.b/one"]
    await api.create(CONFIG_MAPS, held)
    _, deleting = await api.ask("DELETE", f"{CONFIG_MAPS}/a")
    assert deleting["metadata"]["deletionTimestamp"] == "2030-01-02T03:04:05Z"
    watch = await api.watch(CONFIG_MAPS, resourceVersion=deleting["metadata"]["resourceVersion"])

    assert (await api.ask("POST", CONFIG_MAPS, config_map("a")))[0] == 409
    patch = {"metadata": {"finalizers": ["a.b/one", "a.b/two"]}}
    assert (await api.ask("PATCH", f"{CONFIG_MAPS}/a", patch, content_type=MERGE))[0] == 422
    await api.ask("PATCH", f"{CONFIG_MAPS}/a", {"metadata": {"finalizers": None}}, content_type=MERGE)

    assert (await watch.next())[0] == "DELETED"
    assert (await api.ask("GET", f"{CONFIG_MAPS}/a"))[0] == 404
    await watch.close()


async def test_a_pod_on_a_node_ends_with_grace_that_can_only_shrink(api: Api) -> None:
    await api.create(PODS, pod("p", nodeName="n"))
    _, first = await api.ask("DELETE", f"{PODS}/p")
    assert (first["metadata"]["deletionGracePeriodSeconds"], first["metadata"]["deletionTimestamp"]) == (
        30,
        "2030-01-02T03:04:35Z",
    )
    _, longer = await api.ask("DELETE", f"{PODS}/p", {"gracePeriodSeconds": 90})
    assert longer["metadata"] == first["metadata"]
    _, shorter = await api.ask("DELETE", f"{PODS}/p", {"gracePeriodSeconds": 5})
    assert shorter["metadata"]["deletionTimestamp"] == "2030-01-02T03:04:10Z"
    uid = first["metadata"]["uid"]
    status, _ = await api.ask("DELETE", f"{PODS}/p", {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}})
    assert (status, (await api.ask("GET", f"{PODS}/p"))[0]) == (200, 404)


async def test_an_unscheduled_pod_is_gone_at_once(api: Api) -> None:
    await api.create(PODS, pod("p"))
    await api.ask("DELETE", f"{PODS}/p")
    assert (await api.ask("GET", f"{PODS}/p"))[0] == 404


async def test_pages_are_a_snapshot(api: Api) -> None:
    for name in "abcd":
        await api.create(CONFIG_MAPS, config_map(name))
    _, first = await api.ask("GET", CONFIG_MAPS, query={"limit": "2"})
    await api.ask("DELETE", f"{CONFIG_MAPS}/c")
    await api.create(CONFIG_MAPS, config_map("cc"))

    _, second = await api.ask("GET", CONFIG_MAPS, query={"limit": "2", "continue": first["metadata"]["continue"]})

    assert [i["metadata"]["name"] for i in first["items"]] == ["a", "b"]
    assert first["metadata"]["remainingItemCount"] == 2
    assert [i["metadata"]["name"] for i in second["items"]] == ["c", "d"]
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    assert "continue" not in second["metadata"]


async def test_a_page_of_a_forgotten_snapshot_is_410(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "KEEP_CHANGES", 4)
    for name in "abcd":
        await api.create(CONFIG_MAPS, config_map(name))
    _, first = await api.ask("GET", CONFIG_MAPS, query={"limit": "2"})
    for number in range(20):
        await api.create(CONFIG_MAPS, config_map(f"x{number}"))
    status, answer = await api.ask("GET", CONFIG_MAPS, query={"limit": "2", "continue": first["metadata"]["continue"]})
    assert (status, answer["reason"]) == (410, "Expired")


async def test_watch_from_a_forgotten_version_ends_with_410(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "KEEP_CHANGES", 4)
    made = await api.create(CONFIG_MAPS, config_map("a"))
    for number in range(20):
        await api.create(CONFIG_MAPS, config_map(f"x{number}"))
    watch = await api.watch(CONFIG_MAPS, resourceVersion=made["metadata"]["resourceVersion"])
    kind, status = await watch.next()
    assert (kind, status["code"], status["reason"]) == ("ERROR", 410, "Expired")
    with pytest.raises(StopAsyncIteration):
        await watch.next()


async def test_selectors_turn_changes_into_added_and_deleted(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("a", {"app": "x"}))
    watch = await api.watch(CONFIG_MAPS, labelSelector="app=x")
    assert (await watch.next())[0] == "ADDED"
    await api.ask("PATCH", f"{CONFIG_MAPS}/a", {"metadata": {"labels": {"app": "y"}}}, content_type=MERGE)
    kind, obj = await watch.next()
    assert (kind, obj["metadata"]["labels"], int(obj["metadata"]["resourceVersion"])) == (
        "DELETED",
        {"app": "x"},
        api.store.rv,
    )
    await api.ask("PATCH", f"{CONFIG_MAPS}/a", {"metadata": {"labels": {"app": "x"}}}, content_type=MERGE)
    assert (await watch.next())[0] == "ADDED"
    await watch.close()


async def test_watch_list_ends_its_beginning_with_a_bookmark(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("a"))
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    watch = await api.watch(CONFIG_MAPS, **query)
    assert (await watch.next())[0] == "ADDED"
    kind, obj = await watch.next()
    assert (kind, obj["metadata"]["annotations"]) == ("BOOKMARK", {"k8s.io/initial-events-end": "true"})
    await api.create(CONFIG_MAPS, config_map("b"))
    assert (await watch.next())[1]["metadata"]["name"] == "b"
    await watch.close()


async def test_a_version_of_the_future_is_refused(api: Api) -> None:
    status, answer = await api.ask("GET", CONFIG_MAPS, query={"resourceVersion": str(api.store.rv + 5)})
    assert (status, answer["details"]["causes"][0]["reason"]) == (504, "ResourceVersionTooLarge")


async def test_both_event_groups_are_one_store(api: Api) -> None:
    event = {
        "metadata": {"name": "e"}, "regarding": {"kind": "Pod", "name": "p", "namespace": "default"}, "reason": "Made", "note": "words",
        "type": "Normal", "action": "Create", "reportingController": "c", "reportingInstance": "c-1",
        "eventTime": "2030-01-02T03:04:05.000001Z",
    }  # fmt: skip
    await api.create("/apis/events.k8s.io/v1/namespaces/default/events", event)
    query = {"fieldSelector": "involvedObject.name=p"}
    _, found = await api.ask("GET", "/api/v1/namespaces/default/events", query=query)
    core = found["items"][0]
    assert (core["message"], core["involvedObject"]["name"], core["reportingComponent"]) == ("words", "p", "c")
    _, new = await api.ask("GET", "/apis/events.k8s.io/v1/namespaces/default/events/e")
    assert (new["note"], new["regarding"]["name"], "message" in new) == ("words", "p", False)


async def test_a_namespace_that_ends_takes_nothing_new(api: Api) -> None:
    await api.ask("DELETE", "/api/v1/namespaces/default")
    status, answer = await api.ask("POST", CONFIG_MAPS, config_map("late"))
    assert (status, answer["details"]["causes"][0]["reason"]) == (403, "NamespaceTerminating")
    _, namespace = await api.ask("GET", "/api/v1/namespaces/default")
    namespace["spec"]["finalizers"] = []
    await api.ask("PUT", "/api/v1/namespaces/default/finalize", namespace)
    assert (await api.ask("GET", "/api/v1/namespaces/default"))[0] == 404


async def test_service_addresses_are_given_once_and_kept(api: Api) -> None:
    services = "/api/v1/namespaces/default/services"
    one = await api.create(services, {"metadata": {"name": "one"}, "spec": {"ports": [{"port": 80}]}})
    two = await api.create(services, {"metadata": {"name": "two"}, "spec": {"ports": [{"port": 80}]}})
    none = await api.create(
        services, {"metadata": {"name": "none"}, "spec": {"clusterIP": "None", "selector": {"a": "b"}}}
    )
    addresses = [s["spec"]["clusterIP"] for s in (one, two, none)]
    assert addresses[0].startswith("10.96.")
    assert len({*addresses}) == 3
    assert addresses[2] == "None"
    taken = {"metadata": {"name": "three"}, "spec": {"clusterIP": addresses[0], "ports": [{"port": 80}]}}
    assert (await api.ask("POST", services, taken))[0] == 422


async def test_users_without_rights_are_refused(api: Api) -> None:
    nobody = User("nobody", ("system:authenticated",))
    status, answer = await api.ask("GET", CONFIG_MAPS, user=nobody)
    assert status == 403
    assert answer["message"] == (
        'configmaps is forbidden: User "nobody" cannot list resource "configmaps" in API group "" in the namespace "default"'
    )
    assert (await api.ask("GET", "/api", user=nobody))[0] == 200
    account = User("system:serviceaccount:default:ray", ("system:serviceaccounts", "system:serviceaccounts:default"))
    assert (await api.ask("GET", CONFIG_MAPS, user=account))[0] == 200


async def test_server_side_apply_is_clearly_refused(api: Api) -> None:
    body = config_map("a")
    status, answer = await api.ask("PATCH", f"{CONFIG_MAPS}/a", body, content_type="application/apply-patch+yaml")
    assert status == 415
    assert "server-side apply is not served" in answer["message"]


async def test_an_unforeseen_error_is_a_500_and_no_trace(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Any) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr(api.core, "dispatch", broken)
    answer = await api.send("GET", CONFIG_MAPS)
    assert isinstance(answer, Response)
    assert answer.status == 500
    assert b"secret" not in answer.body


async def test_definitions_and_objects_are_served_again_after_a_restart(tmp_path: Path) -> None:
    api = await with_default_namespace(Api(SqliteJournal(tmp_path / "db")))
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    names = {"plural": "things", "kind": "Thing"}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    spec = {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]}
    await api.create(
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        {"metadata": {"name": "things.example.com"}, "spec": spec},
    )
    things = "/apis/example.com/v1/namespaces/default/things"
    made = await api.create(things, {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a"}})
    api.store.close()

    again = Api(SqliteJournal(tmp_path / "db"))

    assert await again.ask("GET", f"{things}/a") == (200, made)
    watch = await again.watch(things, resourceVersion=made["metadata"]["resourceVersion"])
    later = await again.create(things, {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "b"}})
    assert await watch.next() == ("ADDED", later)
    await watch.close()
    again.store.close()
