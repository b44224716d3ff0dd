"""What `raybus doctor` knows of a cluster, as it was read. Pure: plain data.

Kubernetes objects are the server's JSON. What could not be read is `Unread`, with the reason: a check then says that it cannot tell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from raybus.runtime.coexistence import Leader, Watched

Json = Mapping[str, Any]
Level = Literal["ok", "warning", "failed"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at: one line of what, and unless all is well one line of what to do."""

    check: str
    level: Level
    what: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Unread:
    """Something that could not be read, in the API server's words."""

    why: str


Objects = Sequence[Json] | Unread


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """The API server. `ahead_s`: how far its clock is before ours, in seconds; None if it did not say. `error` empty: it answered."""

    url: str
    error: str = ""
    version: str = ""
    ahead_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request that a service account must be able to make. `namespace` empty: in all, or a cluster-wide kind."""

    component: str
    account: str
    account_namespace: str
    verb: str
    group: str
    resource: str
    subresource: str = ""
    name: str = ""
    namespace: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """What the API server says to a request of a service account. `wanted` is what should be."""

    request: Request
    allowed: bool
    wanted: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a pod's readiness page says: `checks` name -> {"ok", "detail"}; `error` if it could not be asked. `ahead_s` as of Server."""

    checks: Mapping[str, Json] = field(default_factory=dict)
    error: str = ""
    ahead_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """The objects of one release of the chart in one namespace. `warnings`: pod -> the last event about why it does not begin."""

    namespace: str
    name: str
    deployments: Sequence[Json]
    stateful_sets: Sequence[Json] = ()
    jobs: Sequence[Json] = ()
    pods: Objects = ()
    claims: Objects = ()
    answers: Mapping[str, Answer] = field(default_factory=dict)
    warnings: Mapping[str, str] = field(default_factory=dict)
    reviews: Sequence[Review] | Unread = ()


@dataclass(frozen=True, slots=True)
class Operator:
    """A KubeRay operator that holds its Lease, and what it looks after."""

    leader: Leader
    watched: Watched


@dataclass(frozen=True, slots=True, kw_only=True)
class Nats:
    """What NATS says when it is asked directly. `streams`: name -> metadata, None if it is missing."""

    url: str
    error: str = ""
    streams: Mapping[str, Mapping[str, str] | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """All that was read. `now` is the API server's time. `installations` are Unread where not even deployments can be listed.

    `definitions`: name -> installed definition, None if missing. `domains`: node -> DNS domain that its pods search. `dns_pods`: the DNS
    servers, where they have the usual labels.
    `expected`: whether an installation by the chart should be there.
    """

    server: Server
    now: datetime
    uid: str = ""
    definitions: Mapping[str, Json | None] | Unread = field(default_factory=dict)
    installations: Sequence[Installation] | Unread = ()
    expected: bool = True
    operators: Sequence[Operator] | Unread = ()
    node_leases: Objects = ()
    domains: Mapping[str, str] | Unread = field(default_factory=dict)
    dns_pods: Objects = ()
    ray_pods: Objects = ()
    nats: Nats | None = None
