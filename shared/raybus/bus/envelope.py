"""Headers and bodies of messages, and how they are read back (docs/contracts.md, "Envelope"). Pure.

CloudEvents in binary mode: attributes are headers, the body is the data. Readers ignore headers they do not know and skip
types they do not know.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NamedTuple
from urllib.parse import unquote

import orjson

from raybus.bus.subjects import HistoryAddress, ObjectAddress, parse_history, parse_marker, parse_object
from raybus.bus.transport import Message
from raybus.decide.actions import Json

OBJECT_V1 = "io.raybus.object.v1"
MARKER_V1 = "io.raybus.marker.v1"
HISTORY_V1 = "io.raybus.history.v1"

TYPE = "ce-type"
ID = "ce-id"
SOURCE = "ce-source"
SUBJECT = "ce-subject"
TIME = "ce-time"
TRACE = "traceparent"
OP = "ray-op"
UID = "ray-uid"
RV = "ray-rv"
PROJECTION = "ray-projection"
REF = "ray-ref"
TERM = "ray-term"

TOMBSTONE_TTL_S = 24 * 3600


class Op(StrEnum):
    PUT = "PUT"
    DELETED = "DELETED"


class ObjectMessage(NamedTuple):
    """One version of one object in one tree. `body` is JSON, empty for a deletion; with `ref` it is metadata only."""

    address: ObjectAddress
    op: Op
    uid: str
    resource_version: str
    projection: str
    ref: bool
    cluster: str
    term: str
    traceparent: str
    body: bytes
    seq: int
    time: float


class MarkerMessage(NamedTuple):
    """`complete`: everything of `kind` up to `resource_version` has been published, as far as `routes` (their ids) bring it;
    None in messages of a gateway that does not say. `time` is when the server stored it.
    """

    kind: str
    complete: bool
    resource_version: str
    term: str
    cluster: str
    seq: int
    time: float
    routes: frozenset[str] | None = None


class HistoryMessage(NamedTuple):
    address: HistoryAddress
    body: Json
    seq: int
    time: float


def source(cluster_uid: str, writer: str = "gateway") -> str:
    """The `ce-source` of a writer that looks at the cluster whose kube-system has this uid."""
    return f"/clusters/{cluster_uid}/{writer}"


def object_headers(
    obj: Json,
    *,
    op: Op,
    source: str,
    term: str,
    time: datetime,
    projection: str = "",
    ref: bool = False,
    traceparent: str = "",
) -> dict[str, str]:
    """Headers of an object message. Only the metadata of `obj` is looked at (name, namespace, uid, resourceVersion)."""
    metadata = obj["metadata"]
    uid, version = metadata["uid"], metadata["resourceVersion"]
    headers = _event(
        OBJECT_V1,
        event_id=f"{uid}/{version}",
        source=source,
        subject=f"{metadata.get('namespace', '')}/{metadata['name']}",
        time=time,
        traceparent=traceparent,
    )
    headers[OP] = op.value
    headers[UID] = encode(uid)
    headers[RV] = encode(version)
    headers[TERM] = encode(term)
    if projection:
        headers[PROJECTION] = encode(projection)
    if ref:
        headers[REF] = "true"
    return headers


def marker_headers(kind: str, resource_version: str, *, source: str, term: str, time: datetime) -> dict[str, str]:
    headers = _event(MARKER_V1, event_id=f"{kind}/{resource_version}", source=source, subject=kind, time=time)
    headers[TERM] = encode(term)
    return headers


def marker_body(
    resource_version: str, *, term: str, time: datetime, complete: bool = True, routes: Iterable[str] | None = None
) -> bytes:
    body = {"complete": complete, "resourceVersion": resource_version, "time": rfc3339(time), "term": term}
    return orjson.dumps(body if routes is None else body | {"routes": sorted(routes)})


def history_headers(
    address: HistoryAddress,
    event_id: str,
    *,
    source: str,
    time: datetime,
    traceparent: str = "",
) -> dict[str, str]:
    subject = f"{address.namespace}/{address.name}"
    return _event(HISTORY_V1, event_id=event_id, source=source, subject=subject, time=time, traceparent=traceparent)


def decode_object(message: Message) -> ObjectMessage | None:
    """None if the message is of a type that this release does not know."""
    headers = message.headers
    if headers.get(TYPE) != OBJECT_V1:
        return None
    return ObjectMessage(
        address=parse_object(message.subject),
        op=Op(headers[OP]),
        uid=decode(headers[UID]),
        resource_version=decode(headers[RV]),
        projection=decode(headers.get(PROJECTION, "")),
        ref=headers.get(REF) == "true",
        cluster=_cluster(headers),
        term=decode(headers.get(TERM, "")),
        traceparent=headers.get(TRACE, ""),
        body=message.body,
        seq=message.seq,
        time=message.time,
    )


def decode_marker(message: Message) -> MarkerMessage | None:
    """None if the message is of a type that this release does not know."""
    if message.headers.get(TYPE) != MARKER_V1:
        return None
    body = orjson.loads(message.body)
    return MarkerMessage(
        kind=parse_marker(message.subject),
        complete=body.get("complete") is True,
        resource_version=str(body.get("resourceVersion", "")),
        term=str(body.get("term", "")),
        cluster=_cluster(message.headers),
        seq=message.seq,
        time=message.time,
        routes=frozenset(map(str, body["routes"])) if isinstance(body.get("routes"), list) else None,
    )


def decode_history(message: Message) -> HistoryMessage | None:
    """None if the message is of a type that this release does not know."""
    if message.headers.get(TYPE) != HISTORY_V1:
        return None
    body: dict[str, Any] = orjson.loads(message.body)
    return HistoryMessage(parse_history(message.subject), body, message.seq, message.time)


def encode(value: str) -> str:
    """Percent-encode as the CloudEvents NATS binding asks: blanks, quotes, percent signs and all that is not ASCII."""
    if value.isascii() and value.isprintable() and not any(char in value for char in ' "%'):
        return value
    return "".join(
        char if "!" <= char <= "~" and char not in '"%' else "".join(f"%{byte:02X}" for byte in char.encode())
        for char in value
    )


def decode(value: str) -> str:
    return unquote(value) if "%" in value else value


def rfc3339(time: datetime) -> str:
    """UTC with six digits, which Kubernetes' MicroTime accepts too."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _event(
    event_type: str,
    *,
    event_id: str,
    source: str,
    subject: str,
    time: datetime,
    traceparent: str = "",
) -> dict[str, str]:
    headers = {
        "ce-specversion": "1.0",
        TYPE: event_type,
        ID: encode(event_id),
        SOURCE: encode(source),
        SUBJECT: encode(subject),
        TIME: rfc3339(time),
    }
    if traceparent:
        headers[TRACE] = traceparent
    return headers


def _cluster(headers: Mapping[str, str]) -> str:
    parts = headers.get(SOURCE, "").split("/")
    return decode(parts[2]) if len(parts) > 3 and parts[1] == "clusters" else ""
