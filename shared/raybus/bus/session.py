"""A replica's session record: who lives, of which release, and what it wants to see. The value of `session.<replica>`. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import orjson

from raybus.bus.routing import route_from_json, route_to_json
from raybus.decide.routes import Route


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """`started` is RFC 3339. `unreadable` counts routes of a newer release that this one cannot serve."""

    replica: str
    version: str
    started: str
    routes: tuple[Route, ...] = ()
    unreadable: int = 0


def encode_session(session: Session) -> bytes:
    return orjson.dumps(
        {
            "replica": session.replica,
            "version": session.version,
            "started": session.started,
            "routes": [route_to_json(route) for route in session.routes],
        },
    )


def decode_session(body: bytes) -> Session:
    """Never fails on a route it cannot read, only on a body that is no record at all (ValueError)."""
    data = orjson.loads(body)
    if not isinstance(data, dict):
        raise ValueError("a session record is a JSON object")  # noqa: TRY004 - bad data, not a wrong call
    routes, unreadable = [], 0
    for item in data.get("routes", ()):
        try:
            routes.append(route_from_json(item))
        except (KeyError, TypeError, ValueError):
            unreadable += 1
    return Session(
        replica=str(data.get("replica", "")),
        version=str(data.get("version", "")),
        started=str(data.get("started", "")),
        routes=tuple(routes),
        unreadable=unreadable,
    )
