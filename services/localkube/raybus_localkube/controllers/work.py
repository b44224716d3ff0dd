"""What a controller wants done: requests with the reason for them, in steps, and when to look again. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from raybus.domain.kinds import Kind

Json = Mapping[str, Any]

MERGE_PATCH = "application/merge-patch+json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event for people, on `regarding` (an object with apiVersion, kind and metadata)."""

    regarding: Json
    type: Literal["Normal", "Warning"]
    reason: str
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request. `kind` is what the answer is; `event` is recorded when it was done.

    `gone_is_done`: that the object is not there is as good as success.
    """

    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
    kind: Kind
    path: str
    body: Json | None = None
    query: Mapping[str, str | int] | None = None
    content_type: str | None = None
    event: Event | None = None
    gone_is_done: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """`steps` run one after the other, the calls of a step side by side; a failed step ends it. What was done comes back as
    changed objects, so a controller decides again until there is nothing to do. `wake_at` is a deadline, not a poll.
    """

    steps: tuple[tuple[Call, ...], ...] = ()
    events: tuple[Event, ...] = ()
    wake_at: datetime | None = None


NOTHING = Work()


def steps(*groups: list[Call]) -> tuple[tuple[Call, ...], ...]:
    """The groups that are not empty."""
    return tuple(tuple(group) for group in groups if group)


def create(kind: Kind, body: Json, event: Event | None = None) -> Call:
    path = kind.path(body["metadata"].get("namespace"))
    return Call(method="POST", kind=kind, path=path, body=body, event=event)


def replace(kind: Kind, body: Json) -> Call:
    meta = body["metadata"]
    return Call(method="PUT", kind=kind, path=kind.path(meta.get("namespace"), meta["name"]), body=body)


def patch(
    kind: Kind,
    namespace: str,
    name: str,
    body: Json,
    *,
    uid: str,
    version: str = "",
    subresource: str | None = None,
    event: Event | None = None,
) -> Call:
    """Merge patch under the object's uid and, where given, the resourceVersion it was decided on."""
    metadata = {**(body.get("metadata") or {}), "uid": uid} | ({"resourceVersion": version} if version else {})
    return Call(
        method="PATCH",
        kind=kind,
        path=kind.path(namespace, name, subresource),
        body={**body, "metadata": metadata},
        content_type=MERGE_PATCH,
        event=event,
        gone_is_done=True,
    )


def delete(
    kind: Kind,
    namespace: str,
    name: str,
    *,
    uid: str,
    version: str = "",
    propagation: Literal["Background", "Foreground", "Orphan"] = "Background",
    event: Event | None = None,
) -> Call:
    preconditions = {"uid": uid} | ({"resourceVersion": version} if version else {})
    options = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "propagationPolicy": propagation,
        "preconditions": preconditions,
    }
    path = kind.path(namespace, name)
    return Call(method="DELETE", kind=kind, path=path, body=options, event=event, gone_is_done=True)
