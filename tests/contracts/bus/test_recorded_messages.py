"""Messages as released versions wrote them. Later releases must read them, and must still write what their readers look at.

Each file of `recorded/` is one message and what it meant. Never change one: a new release adds files.
"""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from raybus.bus import envelope
from raybus.bus.assignment import DRAINING, LeaseView
from raybus.bus.envelope import Op
from raybus.bus.projection import metadata_only, project
from raybus.bus.session import Session, decode_session, encode_session
from raybus.bus.subjects import HistoryAddress, history_subject, lease_subject, marker_subject, object_subject
from raybus.bus.transport import Message
from raybus.decide.routes import POD_STATUS
from raybus.decide.tree import RootKey
from support.objects import pod, raycluster
from support.routes import CLUSTERS_OF_JOB, JOB, PODS_BY_CLUSTER

FOLDER = Path(__file__).parent / "recorded"
FILES = sorted(FOLDER.glob("*.json"))
NOW = datetime(2026, 11, 29, 12, 0, 0, 123456, tzinfo=UTC)
SOURCE = envelope.source("0b1c2d3e-kube-system")
KEY = RootKey("RayCluster", "team-a", "train.v2")
POD = pod("train.v2-head-b2c4d", "train.v2", namespace="team-a", uid="1f2e-pod", rv=4711, phase="Running")
ROUTES = (JOB, CLUSTERS_OF_JOB, dataclasses.replace(PODS_BY_CLUSTER, selector="ray.io/group"))


def produced() -> dict[str, tuple[str, dict[str, str], bytes]]:
    """The recorded messages as this release writes them: subject, headers, body."""
    subject = object_subject("raycluster", 1, 5, KEY, "Pod", POD["metadata"]["name"])
    root = raycluster("train.v2", namespace="team-a", uid="7a6b-cluster", rv=42)
    history = HistoryAddress("raycluster", "team-a", "RayCluster", "train.v2")
    session = Session(replica="host-k3x9", version="0.1.0", started="2026-11-29T11:59:58Z", routes=ROUTES)

    def headers(obj: dict[str, Any], **options: Any) -> dict[str, str]:
        return envelope.object_headers(obj, source=SOURCE, term="gw-host-q7", time=NOW, **options)

    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    return {
        "object-put": (
            subject,
            headers(POD, op=Op.PUT, projection="pod.status", traceparent=trace),
            json.dumps(project(POD, POD_STATUS)).encode(),
        ),
        "object-deleted": (subject, headers(POD, op=Op.DELETED), b""),
        "object-ref": (
            object_subject("raycluster", 1, 5, KEY, "RayCluster", "train.v2"),
            headers(root, op=Op.PUT, projection="full", ref=True),
            json.dumps(metadata_only(root)).encode(),
        ),
        "marker": (
            marker_subject("raycluster", 1, "Pod"),
            envelope.marker_headers("Pod", "4711", source=SOURCE, term="gw-host-q7", time=NOW),
            envelope.marker_body("4711", term="gw-host-q7", time=NOW),
        ),
        "history": (
            history_subject(*history),
            envelope.history_headers(history, "host-k3x9-17", source=SOURCE, time=NOW),
            b'{"time":"2026-11-29T12:00:00.123456Z","what":"decision","uid":"7a6b-cluster","notes":["2 of 3 pods run"]}',
        ),
        "session": (lease_subject("lease-rayjob", "session.host-k3x9"), {}, encode_session(session)),
        "session-draining": (
            lease_subject("lease-rayjob", "session.host-k3x9"),
            {DRAINING: "true"},
            encode_session(session),
        ),
        "partition": (lease_subject("lease-rayjob", "part.3"), {}, b'{"replica":"host-k3x9"}'),
    }


def meaning(name: str, message: Message) -> dict[str, Any]:
    """What this release reads in a message, as JSON."""
    if name.startswith("object"):
        news = envelope.decode_object(message)
        assert news is not None
        out: dict[str, Any] = news._asdict()
        out["body"] = json.loads(news.body) if news.body else None
    elif name.startswith("marker"):
        marker = envelope.decode_marker(message)
        assert marker is not None
        out = marker._asdict()
    elif name.startswith("history"):
        history = envelope.decode_history(message)
        assert history is not None
        out = history._asdict()
    else:
        out = _lease_meaning(message)
    for varying in ("seq", "time"):
        out.pop(varying, None)
    return json.loads(json.dumps(out, default=list))


def _lease_meaning(message: Message) -> dict[str, Any]:
    key = message.subject.removeprefix("$KV.lease-rayjob.")
    view = LeaseView()
    view.apply(key, message)
    if key.startswith("part."):
        return {"owners": {str(part): record.owner for part, record in view.records.items()}}
    session = decode_session(message.body)
    assert session.routes == ROUTES
    return {
        "replica": session.replica,
        "version": session.version,
        "started": session.started,
        "routes": len(session.routes),
        "draining": [live.draining for live in view.sessions.values()],
    }


def load(path: Path) -> tuple[str, Message, dict[str, Any]]:
    data = json.loads(path.read_text())
    message = Message(data["subject"], data["body"].encode(), data["headers"], 1, 0.0)
    return data["name"], message, data["meaning"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_recorded_message_means_what_it_meant(path: Path) -> None:
    name, message, meant = load(path)
    read = meaning(name, message)
    # Later releases may read more in it, never something else.
    assert {field: read.get(field) for field in meant} == meant


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_what_this_release_writes_holds_all_that_the_recorded_one_held(path: Path) -> None:
    name, recorded, _ = load(path)
    subject, headers, body = produced()[name]
    assert subject == recorded.subject
    assert headers.items() >= recorded.headers.items()
    assert _holds(json.loads(body or b"null"), json.loads(recorded.body or b"null"))


def test_all_sorts_of_messages_are_recorded() -> None:
    assert {load(path)[0] for path in FILES} == set(produced())


def _holds(now: Any, then: Any) -> bool:
    if isinstance(then, dict):
        return isinstance(now, dict) and all(key in now and _holds(now[key], value) for key, value in then.items())
    if isinstance(then, list):
        return isinstance(now, list) and len(now) == len(then) and all(map(_holds, now, then))
    return bool(now == then)
