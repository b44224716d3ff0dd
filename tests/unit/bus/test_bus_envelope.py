from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from raybus.bus import envelope
from raybus.bus.envelope import Op
from raybus.bus.subjects import HistoryAddress, history_subject, marker_subject, object_subject
from raybus.bus.transport import Message
from raybus.decide.tree import RootKey
from support.objects import pod

NOW = datetime(2026, 11, 29, 12, 0, 0, 123456, tzinfo=UTC)
SUBJECT = object_subject("raycluster", 1, 0, RootKey("RayCluster", "ns", "c1"), "Pod", "p")
SOURCE = envelope.source("k1")


def test_headers_of_an_object_are_those_of_the_contract() -> None:
    headers = envelope.object_headers(
        pod("p", rv=7),
        op=Op.PUT,
        source=SOURCE,
        term="gw-1",
        time=NOW,
        projection="pod.status",
        traceparent="00-1-2-01",
    )
    assert headers == {
        "ce-specversion": "1.0",
        "ce-id": "uid-p/7",
        "ce-source": "/clusters/k1/gateway",
        "ce-type": "io.raybus.object.v1",
        "ce-subject": "ns/p",
        "ce-time": "2026-11-29T12:00:00.123456Z",
        "traceparent": "00-1-2-01",
        "ray-op": "PUT",
        "ray-uid": "uid-p",
        "ray-rv": "7",
        "ray-term": "gw-1",
        "ray-projection": "pod.status",
    }


def test_an_object_reads_back() -> None:
    headers = envelope.object_headers(
        pod("p", rv=7), op=Op.PUT, source=SOURCE, term="gw 1", time=NOW, projection="a+b", ref=True
    )
    news = envelope.decode_object(Message(SUBJECT, b"{}", headers, 3, 1.5))
    assert news is not None
    assert (news.op, news.uid, news.resource_version, news.projection) == (Op.PUT, "uid-p", "7", "a+b")
    assert (news.ref, news.cluster, news.term, news.body, news.seq, news.time) == (True, "k1", "gw 1", b"{}", 3, 1.5)
    assert news.address.key == RootKey("RayCluster", "ns", "c1")


def test_unknown_headers_are_ignored_and_unknown_types_skipped() -> None:
    headers = envelope.object_headers(pod("p"), op=Op.DELETED, source=SOURCE, term="t", time=NOW)
    later = Message(SUBJECT, b"", {**headers, "ray-new": "x"}, 1, 0.0)
    assert envelope.decode_object(later) is not None
    assert envelope.decode_object(Message(SUBJECT, b"", {**headers, "ce-type": "io.raybus.object.v2"}, 1, 0.0)) is None
    assert envelope.decode_object(Message(SUBJECT, b"", {}, 1, 0.0)) is None


def test_a_marker_reads_back() -> None:
    message = Message(
        marker_subject("rayjob", 1, "Pod"),
        envelope.marker_body("12", term="gw-1", time=NOW, complete=False),
        envelope.marker_headers("Pod", "12", source=SOURCE, term="gw-1", time=NOW),
        5,
        2.0,
    )
    assert envelope.decode_marker(message) == ("Pod", False, "12", "gw-1", "k1", 5, 2.0, None)
    assert b'"time":"2026-11-29T12:00:00.123456Z"' in message.body
    assert envelope.decode_marker(message._replace(headers={})) is None
    body = envelope.marker_body("12", term="gw-1", time=NOW, routes=["b", "a"])
    marker = envelope.decode_marker(message._replace(body=body))
    assert marker is not None
    assert marker.routes == {"a", "b"}


def test_history_reads_back() -> None:
    address = HistoryAddress("rayjob", "ns", "RayJob", "j")
    headers = envelope.history_headers(address, "x-1", source=envelope.source("k1", "rayjob"), time=NOW)
    message = Message(history_subject(*address), b'{"what":"action"}', headers, 1, 0.0)
    assert envelope.decode_history(message) == (address, {"what": "action"}, 1, 0.0)
    assert headers["ce-source"] == "/clusters/k1/rayjob"


@given(st.text())
def test_any_value_survives_percent_encoding(value: str) -> None:
    encoded = envelope.encode(value)
    assert encoded.isascii()
    assert not any(char in encoded for char in ' "\r\n\t')
    assert envelope.decode(encoded) == value


def test_times_are_utc_with_six_digits() -> None:
    there = datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))
    assert envelope.rfc3339(there) == "2026-01-01T00:00:00.000000Z"
