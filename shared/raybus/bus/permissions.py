"""Who may do what in NATS: one user per service, its rights made from the subjects and streams it uses. Pure.

A user may publish and subscribe to nothing but what stands here. `deploy/generate.py` writes the server's configuration and a table
for people from it; tests/integration/nats_rights runs all services under it and tries what is foreign.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from raybus.bus import api
from raybus.bus.streams import GATEWAY, HISTORY_STREAM, OBJECT_STREAMS, bucket_stream, lease_bucket, object_stream
from raybus.bus.subjects import ANY, history_filter, lease_subject, markers_filter, objects_filter

PROVISIONER = "provisioner"


class Grant(NamedTuple):
    """A subject that may be published to, and for whom a request to it is made."""

    subject: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """`name` is also the part of the inbox that only this user may subscribe to."""

    name: str
    publish: tuple[Grant, ...]

    @property
    def subscribe(self) -> tuple[str, ...]:
        return (f"{inbox_prefix(self.name)}.>",)

    @property
    def variable(self) -> str:
        """The environment variable of the server that holds this user's public key."""
        return f"{self.name.upper()}_NKEY"


def inbox_prefix(user: str) -> str:
    """Where a user's answers arrive. Without a prefix of its own, each user could read what the others are told."""
    return f"_INBOX_{user}"


def controllers() -> tuple[str, ...]:
    return tuple(OBJECT_STREAMS)


def buckets() -> tuple[str, ...]:
    return tuple(lease_bucket(owner) for owner in (GATEWAY, *controllers()))


def streams() -> tuple[str, ...]:
    """All of Raybus' streams, the lease buckets' included."""
    return (HISTORY_STREAM, *map(bucket_stream, buckets()), *map(object_stream, controllers()))


def users() -> tuple[User, ...]:
    """All of them. A further controller is one more entry of streams.OBJECT_STREAMS."""
    return (_provisioner(), _gateway(), *(_controller(name) for name in controllers()))


def user(name: str) -> User:
    return next(user for user in users() if user.name == name)


def _provisioner() -> User:
    """Makes and changes streams; it neither reads nor writes objects."""
    grants = [
        grant
        for stream in streams()
        for grant in (
            Grant(api.stream_info(stream), f"what {stream} is like"),
            Grant(api.stream_create(stream), f"make {stream}"),
            Grant(api.stream_update(stream), f"bring {stream} to new settings"),
        )
    ]
    grants += [
        Grant(api.stream_purge(object_stream(name)), "empty the stream of another cluster") for name in controllers()
    ]
    grants += [
        Grant(lease_subject(bucket, f"part.{ANY}"), "say that nobody owns a partition, on a new installation")
        for bucket in buckets()
    ]
    return User(name=PROVISIONER, publish=tuple(grants))


def _gateway() -> User:
    """The only writer of objects. It may make what is missing, after NATS lost its store; it may change and delete nothing."""
    grants = [
        grant
        for name in controllers()
        for grant in (
            Grant(objects_filter(name, ANY), "objects"),
            Grant(markers_filter(name, ANY), "completeness markers"),
            Grant(api.message_get(object_stream(name)), "whether an unanswered write is stored"),
            *_following(object_stream(name), "what the stream holds at the start of a term"),
            *_following(bucket_stream(lease_bucket(name)), f"the sessions of {name} and their routes"),
        )
    ]
    grants += [
        grant
        for stream in streams()
        for grant in (
            Grant(api.stream_info(stream), f"whether {stream} is there"),
            Grant(api.stream_create(stream), f"make {stream} again when it was lost"),
        )
    ]
    return User(name=GATEWAY, publish=(*grants, *_own(GATEWAY)))


def _controller(name: str) -> User:
    stream = object_stream(name)
    return User(
        name=name,
        publish=(
            Grant(api.stream_info(stream), "partitions, generation and cluster"),
            *_following(stream, "objects and markers"),
            *_own(name),
        ),
    )


def _own(name: str) -> Iterable[Grant]:
    """What every service does under its own name: leases and history."""
    bucket = bucket_stream(lease_bucket(name))
    yield Grant(lease_subject(lease_bucket(name), ">"), "own leases")
    yield Grant(api.message_get(bucket), "whether the owner of a lease lives")
    yield from _following(bucket, "own leases")
    yield Grant(history_filter(name), "history")


def _following(stream: str, why: str) -> tuple[Grant, Grant]:
    return Grant(api.consumer_create(stream), why), Grant(api.consumer_next(stream, ANY), why)


# The server's configuration


def accounts_conf() -> str:
    """The `accounts` block of nats-server. The users' public keys come from the server's environment ($GATEWAY_NKEY)."""
    lines = ["accounts {", "  RAYBUS {", "    jetstream: enabled", "    users: ["]
    for each in users():
        lines += [f"      {{ nkey: ${each.variable}, permissions {{", "          publish { allow: ["]
        lines += [f'            "{subject}"' for subject in dict.fromkeys(grant.subject for grant in each.publish)]
        allowed = ", ".join(f'"{subject}"' for subject in each.subscribe)
        lines += ["          ] }", f"          subscribe {{ allow: [{allowed}] }} }} }}"]
    return "\n".join([*lines, "    ]", "  }", "}", ""])
