"""The gateway as a whole: competes for the lease, runs terms while it holds it, stands by otherwise."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from importlib import metadata

from raybus.bus.clock import SYSTEM, Clock
from raybus.bus.envelope import rfc3339
from raybus.bus.leases import Leases
from raybus.bus.session import Session, encode_session
from raybus.bus.sessions import SessionWatch
from raybus.bus.streams import GATEWAY, lease_bucket
from raybus.bus.subjects import CONTROLLERS
from raybus.bus.transport import Bus, BusError
from raybus.kube.client import KubeClient
from raybus.kube.errors import KubeError
from raybus.observe.health import Check, Checks
from raybus.observe.logging import get_logger
from raybus_gateway.needs import RouteBook, readable
from raybus_gateway.term import Counters, Term, TermSettings, make_streams
from raybus_gateway.upkeep import Upkeep

PART = 0  # the gateway's work is not shared: one lease for all of it
PAUSE_S = (0.2, 5.0)
STEADY_S = 60.0  # a term that lasted this long begins the pauses anew


class Gateway:
    """`await start()`, then `await stop()`. Many may run: one is active, the others take over when its lease ends.

    `chance` spreads relists and retries over time.
    """

    def __init__(
        self,
        bus: Bus,
        kube: KubeClient,
        settings: TermSettings,
        counters: Counters,
        *,
        lease_ttl_s: int = 12,
        clock: Clock = SYSTEM,
        chance: random.Random | None = None,
    ) -> None:
        self._bus = bus
        self._kube = kube
        self._settings = settings
        self._counters = counters
        self._clock = clock
        self._chance = chance
        self._log = get_logger()
        self._book = RouteBook()
        self._book_timer: asyncio.TimerHandle | None = None
        self._sessions = SessionWatch(bus, CONTROLLERS, self._sessions_changed)
        session = Session(replica=settings.replica, version=metadata.version("raybus"), started=rfc3339(clock.now()))
        self._leases = Leases(
            bus,
            lease_bucket(GATEWAY),
            settings.replica,
            1,
            session=encode_session(session),
            on_gain=self._gain,
            on_lose=self._lose,
            ttl_s=lease_ttl_s,
            clock=clock,
        )
        self._upkeep = Upkeep(bus, self._make_streams, self._streams_made)
        self._term: Term | None = None
        self._active: asyncio.Task[None] | None = None
        self._trouble = ""
        self.terms: Counter[str] = Counter()  # by how they ended: lost (the lease), failed (NATS or Kubernetes), defect

    @property
    def leases(self) -> Leases:
        return self._leases

    @property
    def writes(self) -> int:
        return self._term.writes if self._term else 0

    @property
    def watches(self) -> tuple[int, int]:
        """How many live, and how many do not yet or not any more."""
        return self._term.watches if self._term else (0, 0)

    def replicas(self) -> dict[str, int]:
        """Controller -> its replicas whose sessions live."""
        return {controller: len(self._sessions.sessions(controller)) for controller in CONTROLLERS}

    @property
    def active(self) -> bool:
        return self._leases.mine(PART)

    @property
    def objects(self) -> int:
        return self._term.objects if self._term else 0

    def checks(self) -> Checks:
        return {"nats": self._check_nats, "lease": self._check_lease, "lists": self._check_lists}

    async def start(self) -> None:
        """Needs a connected bus. Raises BusError if the streams cannot be made, SettingsMismatch if they are others."""
        # A standby makes them too: controllers that start meanwhile need not wait for the lease.
        await self._make_streams()
        await self._sessions.start()
        await self._leases.start()
        self._upkeep.start()

    async def stop(self) -> None:
        """Hand over to a standby at once."""
        await self._upkeep.stop()
        await self._leases.stop()
        await self._sessions.close()
        if self._book_timer:
            self._book_timer.cancel()

    async def _make_streams(self) -> None:
        await make_streams(self._bus, self._settings, await self._kube.cluster_uid())

    def _streams_made(self) -> None:
        if self._term:
            self._term.look_for_losses()

    # Routes

    def _sessions_changed(self) -> None:
        routes, complaints = readable(self._sessions.routes())
        for complaint in complaints:
            self._log.error("route_ignored", problem=complaint)
        self._book.declare(routes, asyncio.get_running_loop().time())
        self._serve()

    def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        if self._book_timer:
            self._book_timer.cancel()
            self._book_timer = None
        if (due := self._book.next_change(loop.time())) is not None:
            self._book_timer = loop.call_at(due, self._serve)
        if self._term:
            self._term.serve(self._book.served(loop.time()))

    # The lease

    async def _gain(self, _part: int) -> None:
        if self._active is None or self._active.done():
            self._active = asyncio.create_task(self._terms(), name="gateway terms")

    async def _lose(self, _part: int, graceful: bool) -> None:
        self._log.info("gateway_steps_down", graceful=graceful)
        if self._active:
            self.terms["lost"] += self._term is not None
            self._active.cancel()
            await asyncio.wait((self._active,))
            self._active = None
        self._term = None

    async def _terms(self) -> None:
        """Term after term, until the lease is lost: then _lose cancels this."""
        loop = asyncio.get_running_loop()
        pause = PAUSE_S[0]
        while True:
            began = loop.time()
            if self._leases.mine(PART):
                await self._one_term()
            if loop.time() - began > STEADY_S:
                pause = PAUSE_S[0]
            await asyncio.sleep(pause)
            pause = min(pause * 2, PAUSE_S[1])

    async def _one_term(self) -> None:
        self._term = Term(self._bus, self._kube, self._settings, self._counters, clock=self._clock, chance=self._chance)
        self._serve()
        try:
            await self._term.run()
        except* (BusError, KubeError) as group:
            self._trouble = "; ".join(str(error) for error in _leaves(group))
            self.terms["failed"] += 1
            self._log.warning("term_ends", why=self._trouble)
        except* Exception as group:  # noqa: BLE001 - a defect ends this term, not the process; readiness shows it
            self._trouble = "; ".join(repr(error) for error in _leaves(group))
            self.terms["defect"] += 1
            self._log.exception("term_failed", why=self._trouble)
        finally:
            self._term = None

    # Readiness

    def _check_nats(self) -> Check:
        return Check(self._bus.connected, self._bus.refusal if self._bus.connected else "not connected to NATS")

    def _check_lease(self) -> Check:
        if self.active:
            return Check(ok=True, detail="active")
        unsettled = self._leases.unsettled()
        return Check(not unsettled, unsettled or "standby")

    def _check_lists(self) -> Check:
        if not self.active:
            return Check(ok=True, detail="standby")
        if self._term is None:
            return Check(ok=False, detail=self._trouble or "the term begins")
        missing = self._term.missing()
        return Check(not missing, missing)


def _leaves(group: BaseExceptionGroup[Exception]) -> list[BaseException]:
    parts = (_leaves(error) if isinstance(error, BaseExceptionGroup) else [error] for error in group.exceptions)
    return [leaf for part in parts for leaf in part]
