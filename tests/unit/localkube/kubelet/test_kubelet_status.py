"""The status that is written, what a new kubelet reads back from it, and what the node learns of Services."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybus_localkube.kubelet import adoption, endpoints, lifecycle, logread, status
from raybus_localkube.kubelet.lifecycle import ContainerView, PodView, Run
from raybus_localkube.kubelet.logread import BadQuery, Query
from raybus_localkube.kubelet.services import api_address
from raybus_localkube.node.protocol import ContainerRecord

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
POD: dict[str, Any] = {
    "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
    "spec": {"containers": [{"name": "a", "image": "img"}, {"name": "b"}], "restartPolicy": "Always"},
}


def running(attempt: int = 0, *, ready: bool = True) -> ContainerView:
    return ContainerView(run=Run(attempt, NOW), started=True, ready=ready)


def crashed(attempt: int, code: int = 1) -> ContainerView:
    view = ContainerView()
    for number in range(attempt + 1):
        begun = replace(view, last=view.run, run=Run(number, NOW))
        view = lifecycle.ended(begun, Run(number, NOW, running=False, finished=NOW, exit_code=code))
    return view


def build(pod: dict[str, Any] = POD, **containers: ContainerView) -> dict[str, Any]:
    view = PodView(containers=containers, ip="10.244.0.2", prepared=True, started_at=NOW)
    return status.build(pod, view, "127.0.0.1", NOW)


def condition(built: dict[str, Any], kind: str) -> dict[str, Any]:
    return next(c for c in built["conditions"] if c["type"] == kind)


def test_a_pod_on_its_way() -> None:
    built = build(a=running())
    assert built["phase"] == "Pending"
    assert built["containerStatuses"][1]["state"] == {"waiting": {"reason": "ContainerCreating"}}
    assert condition(built, "Ready")["message"] == "containers with unready status: [b]"


def test_a_ready_pod() -> None:
    built = build(a=running(), b=running())
    assert built["phase"] == "Running"
    assert [c["type"] for c in built["conditions"]] == list(status.OWN_CONDITIONS)
    assert all(c["status"] == "True" for c in built["conditions"])
    assert (built["podIP"], built["hostIP"], built["qosClass"], built["startTime"]) == (
        "10.244.0.2",
        "127.0.0.1",
        "BestEffort",
        "2026-01-01T12:00:00Z",
    )
    entry = built["containerStatuses"][0]
    assert (entry["image"], entry["imageID"], entry["ready"], entry["started"]) == ("img", status.IMAGE_ID, True, True)


def test_a_crash_loop_as_a_kubelet_tells_it() -> None:
    entry = build(a=crashed(1, 3), b=running())["containerStatuses"][0]
    assert entry["state"]["waiting"] == {
        "reason": "CrashLoopBackOff",
        "message": "back-off 10s restarting failed container=a pod=p_ns(u)",
    }
    assert entry["lastState"]["terminated"]["exitCode"] == 3
    assert entry["restartCount"] == 1
    assert build(a=crashed(1, 3), b=running())["phase"] == "Running"


def test_readiness_gates_and_foreign_conditions_are_kept() -> None:
    foreign = {"type": "example.com/gate", "status": "False"}
    pod = {
        **POD,
        "spec": {**POD["spec"], "readinessGates": [{"conditionType": "example.com/gate"}]},
        "status": {"conditions": [foreign]},
    }
    built = build(pod, a=running(), b=running())
    assert condition(built, "Ready")["reason"] == "ReadinessGatesNotReady"
    assert condition(built, "ContainersReady")["status"] == "True"
    assert built["conditions"][-1] == foreign


def test_a_patch_removes_what_is_no_more() -> None:
    assert status.patch({"a": 1, "b": 2}, {"a": 1, "b": 2}) is None
    assert status.patch({"a": 1, "b": 2}, {"a": 3}) == {"status": {"a": 3, "b": None}}


def record(name: str, attempt: int, *, alive: bool = True, code: int = 0) -> ContainerRecord:
    return ContainerRecord(
        id=f"u/{name}/{attempt}", pod="u", name=name, attempt=attempt, running=alive, started=NOW.timestamp(),
        finished=0.0 if alive else NOW.timestamp() + 1, exit_code=code, signal=0, reason="", message="",
    )  # fmt: skip


def test_a_restarted_kubelet_writes_nothing_for_a_pod_that_goes_on() -> None:
    stored = {**POD, "status": build(a=running(), b=running(2))}
    view = adoption.adopt(stored, [record("a", 0), record("b", 2)], "10.244.0.2", NOW)
    assert status.patch(stored["status"], status.build(stored, view, "127.0.0.1", NOW + timedelta(hours=1))) is None
    assert lifecycle.next_steps(stored, view, NOW).steps == ()


def test_an_end_nobody_saw_is_the_nodes_word() -> None:
    stored = {**POD, "status": build(a=running(), b=running())}
    view = adoption.adopt(stored, [record("a", 0), record("b", 0, alive=False, code=9)], "10.244.0.2", NOW)
    assert view.of("b").run is not None
    assert view.of("b").run.exit_code == 9


def test_what_the_node_does_not_know_is_lost_and_starts_again() -> None:
    stored = {**POD, "status": build(a=running(1), b=running())}
    view = adoption.adopt(stored, [], "", NOW)
    run = view.of("a").run
    assert run is not None
    assert (run.attempt, run.running, run.exit_code, run.reason) == (1, False, 137, "ContainerStatusUnknown")
    assert not view.prepared
    assert lifecycle.next_steps(stored, view, NOW).steps == (lifecycle.Prepare(),)
    again = lifecycle.next_steps(stored, replace(view, prepared=True), NOW + timedelta(minutes=6))
    assert lifecycle.Start("a", 2) in again.steps


def test_a_crash_loop_is_taken_up_where_it_was() -> None:
    stored = {**POD, "status": build(a=crashed(2), b=running())}
    view = adoption.adopt(stored, [record("b", 0)], "10.244.0.2", NOW)
    assert view.of("a").next_attempt == 3
    assert view.of("a").backoff.until is not None


def test_readiness_of_an_unready_container_is_not_made_up() -> None:
    stored = {**POD, "status": build(a=running(ready=False), b=running())}
    view = adoption.adopt(stored, [record("a", 0), record("b", 1)], "10.244.0.2", NOW)
    assert not view.of("a").ready
    assert not view.of("b").ready  # another run than the status speaks of


def test_a_lost_node_ends_what_ran() -> None:
    before = PodView({"a": running(), "b": crashed(0)}, "10.244.0.2", prepared=True)
    after = adoption.lost(before, [], "", NOW)
    assert after.of("a").run is not None
    assert not after.of("a").running
    assert after.of("b") == before.of("b")
    same = adoption.lost(before, [record("a", 0)], "10.244.0.2", NOW)
    assert same == before


# Services


def slice_of(name: str, *pods: tuple[str, bool], port: int = 8000, port_name: str = "") -> dict[str, Any]:
    return {
        "metadata": {"namespace": "ns", "name": name, "labels": {endpoints.SERVICE_LABEL: "svc"}}, "addressType": "IPv4",
        "endpoints": [{"addresses": [ip], "conditions": {"ready": good}, "hostname": f"h{ip[-1]}"} for ip, good in pods],
        "ports": [{"name": port_name, "port": port}],
    }  # fmt: skip


def test_services_for_the_node() -> None:
    slices = [slice_of("s1", ("10.244.0.2", True), ("10.244.0.3", False)), slice_of("s2", ("10.244.0.4", True))]
    service = {"spec": {"clusterIP": "10.96.0.9", "ports": [{"port": 80}, {"port": 53, "protocol": "UDP"}]}}
    assert endpoints.node_service(service, slices) == {
        "cluster_ip": "10.96.0.9", "addresses": ["10.244.0.2", "10.244.0.4"], "hosts": {"h2": "10.244.0.2", "h4": "10.244.0.4"},
        "ports": {"80": [("10.244.0.2", 8000), ("10.244.0.4", 8000)]},
    }  # fmt: skip
    headless = endpoints.node_service({"spec": {"clusterIP": "None", "ports": [{"port": 80}]}}, slices)
    assert (headless["cluster_ip"], headless["ports"]) == ("", {})
    assert endpoints.node_service({"spec": {"type": "ExternalName", "externalName": "x.y"}}, []) == {
        "external_name": "x.y"
    }
    assert endpoints.service_of(slices[0]) == "ns/svc"


def test_ports_are_joined_by_name() -> None:
    service = {"spec": {"clusterIP": "10.96.0.9", "ports": [{"name": "a", "port": 1}, {"name": "b", "port": 2}]}}
    found = endpoints.node_service(service, [slice_of("s", ("10.244.0.2", True), port_name="b")])
    assert found["ports"] == {"1": [], "2": [("10.244.0.2", 8000)]}


def test_where_the_api_server_is() -> None:
    assert api_address(None) == ("10.96.0.1", 443)
    assert api_address({"spec": {"clusterIP": "10.96.0.7", "ports": [{"name": "https", "port": 8443}]}}) == (
        "10.96.0.7",
        8443,
    )


# Logs

LINES = [
    b"2026-01-01T12:00:00.000000000Z stdout F one\n",
    b"2026-01-01T12:00:10.000000000Z stdout P tw\n",
    b"2026-01-01T12:00:10.000000000Z stdout F o\n",
    b"2026-01-01T12:00:20.000000000Z stderr F three\n",
]


def text(query: Query) -> bytes:
    return b"".join(logread.render(logread.select(LINES, query), query))


def test_reading_logs() -> None:
    assert text(Query()) == b"one\ntwo\nthree\n"
    assert text(Query(tail=2)) == b"two\nthree\n"
    assert text(Query(tail=9)) == text(Query())
    assert text(Query(tail=0)) == b""
    assert text(Query(since=NOW + timedelta(seconds=10))) == b"two\nthree\n"
    assert text(Query(timestamps=True, tail=1)) == b"2026-01-01T12:00:20.000000000Z three\n"


@given(st.integers(0, 6))
def test_a_tail_is_a_tail(count: int) -> None:
    whole = text(Query()).splitlines(keepends=True)
    assert text(Query(tail=count)) == b"".join(whole[len(whole) - min(count, len(whole)) :])


def test_queries() -> None:
    query = logread.parse_query(
        {"follow": "true", "previous": "0", "tailLines": "3", "sinceSeconds": "60", "limitBytes": "9"}, NOW
    )
    assert query == Query(follow=True, tail=3, since=NOW - timedelta(seconds=60), limit=9)
    with pytest.raises(BadQuery, match="limitBytes"):
        logread.parse_query({"limitBytes": "0"}, NOW)
