"""The gateway's view of the controllers that live: what each of them wants to see (docs/contracts.md, "Routes")."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

import structlog

from raybus.bus.assignment import is_gone
from raybus.bus.session import Session, decode_session
from raybus.bus.streams import bucket_stream, lease_bucket
from raybus.bus.subjects import lease_subject
from raybus.bus.transport import Bus, Follower, Message, nothing
from raybus.decide.routes import Route

log = structlog.get_logger(__name__)


class SessionWatch:
    """Follows the lease buckets of `controllers`. `on_change` comes whenever the routes of one may have changed.

    While a bucket is read again after a gap, what was known of it counts; what did not come back is dropped when that is done.
    """

    def __init__(self, bus: Bus, controllers: Iterable[str], on_change: Callable[[], None] = nothing) -> None:
        self._bus = bus
        self._controllers = tuple(controllers)
        self._on_change = on_change
        self._live: dict[str, dict[str, Session]] = {controller: {} for controller in self._controllers}
        self._unseen: dict[str, set[str]] = {controller: set() for controller in self._controllers}
        self._known: set[str] = set()
        self._followers: list[Follower] = []

    async def start(self) -> None:
        for controller in self._controllers:
            bucket = lease_bucket(controller)
            follower = await self._bus.follow(
                bucket_stream(bucket),
                (lease_subject(bucket, "session.*"),),
                on_message=partial(self._apply, controller),
                on_caught_up=partial(self._caught_up, controller),
                on_gap=partial(self._gap, controller),
            )
            self._followers.append(follower)

    async def close(self) -> None:
        for follower in self._followers:
            await follower.close()
        self._followers.clear()

    def known(self, controller: str) -> bool:
        """Whether the sessions of this controller have been read to the end once."""
        return controller in self._known

    def sessions(self, controller: str) -> tuple[Session, ...]:
        return tuple(self._live[controller].values())

    def routes(self) -> Mapping[str, tuple[Route, ...]]:
        """The union of the routes of each controller's live sessions, in a stable order; () where none lives."""
        return {
            controller: tuple(dict.fromkeys(route for name in sorted(live) for route in live[name].routes))
            for controller, live in self._live.items()
        }

    def _apply(self, controller: str, message: Message) -> None:
        replica = message.subject.rpartition("session.")[2]
        live = self._live[controller]
        self._unseen[controller].discard(replica)
        if is_gone(message):
            if live.pop(replica, None):
                self._on_change()
            return
        try:
            session = decode_session(message.body)
        except ValueError as error:
            log.warning("session_unreadable", controller=controller, replica=replica, error=str(error))
            return
        if live.get(replica) == session:
            return  # a renewal
        if session.unreadable:
            log.warning("session_routes_unreadable", controller=controller, replica=replica, count=session.unreadable)
        live[replica] = session
        self._on_change()

    def _gap(self, controller: str) -> None:
        self._unseen[controller] = set(self._live[controller])

    def _caught_up(self, controller: str) -> None:
        gone = self._unseen[controller]
        self._unseen[controller] = set()
        for replica in gone:
            self._live[controller].pop(replica, None)
        first = controller not in self._known
        self._known.add(controller)
        if gone or first:
            self._on_change()
