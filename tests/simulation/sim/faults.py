"""Faults as data: what can go wrong at which kind of place, and who decides that it does now.

A place is asked by its name ("kube.create Pod @cluster-ctrl-0") each time it is passed; the n-th passing of a place is a fault
point. A schedule is a seed and a list of faults (place, n, kind). Exploration enumerates or draws them, shrinking removes them,
replay takes them as they are.

What may live here: the catalogue and the choosing. What a fault does stands where it is asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple


class Kind(NamedTuple):
    """`group` is the letter of the catalogue (A writes, B reads, C news, D NATS, E process, F Ray, G pods, H others, I time)."""

    name: str
    group: str
    about: str


class Fault(NamedTuple):
    """The `nth` passing (from 1) of `place` goes wrong in the way `kind`."""

    place: str
    nth: int
    kind: str

    def __str__(self) -> str:
        return f"{self.kind} at {self.place} #{self.nth}"


def _kinds(group: str, **about: str) -> tuple[Kind, ...]:
    return tuple(Kind(name.replace("_", "-"), group, text) for name, text in about.items())


_REFUSALS = _kinds(
    "A",
    forbidden="403: a quota or an admission rule says no",
    throttled="429 with Retry-After 2",
    error_500="500, not done",
    unavailable="503, not done",
    refused="no connection, not done",
    lost_request="never arrives; the client waits until its deadline",
    lost_answer="done, but the answer never comes",
    cut_answer="done, and the connection breaks before the answer",
    slow="takes 3 s to arrive",
)  # fmt: skip
_CRASHES = _kinds(
    "E", crash_before="kill -9 before it is sent", crash_after="kill -9 when it is done, before the answer"
)
_FREEZES = _kinds("E", freeze="the process stands still for 20 s before it is sent: longer than a lease")

CATALOGUE: dict[str, tuple[Kind, ...]] = {
    "kube.create": (*_REFUSALS, *_kinds("A", invalid="422: a webhook says no"), *_CRASHES, *_FREEZES),
    "kube.patch": (*_REFUSALS, *_kinds("A", conflict="somebody else wrote the object just before"), *_CRASHES, *_FREEZES),
    "kube.delete": (*_REFUSALS, *_kinds("A", conflict="somebody else wrote the object just before"), *_CRASHES, *_FREEZES),
    "kube.read": _kinds(
        "B",
        refused="no connection",
        lost_answer="the answer never comes",
        error_500="500",
        throttled="429 with Retry-After 2",
        slow="takes 3 s",
        no_right="403: the right to read is gone",
        changed="the list is torn: something changes right after it was read",
    ),
    "kube.watch": _kinds("B", refused="no connection", error_500="500", gone="410 at once", slow="takes 3 s", no_right="403"),
    "kube.news": _kinds(
        "C",
        cut="the watch breaks before this reaches the client",
        gone="410 in the stream",
        twice="it comes twice",
        lag="this and what follows come 8 s later",
        silent="a dead link: nothing comes any more until the client gives up",
    ),
    "bus.publish": (
        *_kinds(
            "D",
            lost="never arrives",
            lost_answer="stored, but the answer is lost",
            unavailable="refused: no connection",
            slow="takes 1.5 s",
        ),
        *_CRASHES,
    ),
    "bus.ask": _kinds("D", lost="no answer in time", unavailable="refused: no connection"),
    "bus.deliver": _kinds(
        "C",
        hole="lost on the way; the consumer notices later",
        lag="this and what follows come 8 s later",
        disconnect="the connection breaks before it and is back 2 s later",
    ),
    "ray.submit": (
        *_kinds(
            "F",
            refused="no connection, not done",
            lost_request="never arrives",
            lost_answer="taken, but the answer never comes",
            error_500="500, not done",
            html="200 with a page of a proxy, not done",
            slow="takes 2 s",
        ),
        *_CRASHES,
        *_FREEZES,
    ),
    "ray.read": _kinds(
        "F",
        refused="no connection",
        lost_answer="hangs",
        error_500="500",
        html="200 with a page of a proxy",
        slow="takes 2 s",
        not_found="404 for a job that is there",
        old_answer="what it said before",
    ),
    "ray.stop": _kinds("F", refused="no connection", lost_request="never arrives", lost_answer="done, but no answer", error_500="500", ignored="says yes and does nothing"),
    "faultpoint": _kinds("E", crash="kill -9 here"),
    "moment": (
        *_kinds(
            "D",
            nats_restart="the server is away for 1 s",
            nats_outage="the server is away for 16 s: longer than a lease",
            nats_loses_objects="the object stream is deleted",
            nats_loses_leases="the lease bucket is deleted",
            nats_rolls_back="the last acknowledged messages of the object stream are lost",
            nats_empty="the server loses its whole store",
        ),
        *_kinds(
            "E",
            kill_controller="kill -9 of the replica that owns the object",
            kill_all_controllers="kill -9 of all replicas of the controller",
            kill_gateway="kill -9 of the active gateway",
            kill_gateways="kill -9 of both gateways",
            stop_controller="SIGTERM to the replica that owns the object; its successor starts later",
            freeze_controller="the owner stands still for 20 s",
            freeze_gateway="the active gateway stands still for 20 s",
            clock_ahead="the owner's wall clock jumps 90 s ahead",
            clock_behind="the owner's wall clock jumps 90 s back",
        ),
        *_kinds(
            "G",
            evict_worker="a worker pod is evicted",
            evict_head="the head pod is evicted",
            delete_worker="somebody deletes a worker pod",
            delete_head="somebody deletes the head pod",
            crash_worker="a worker's container ends",
            crash_head="the head's container ends: Ray begins anew, and forgets",
            pending_pods="no node has room for new pods for 25 s",
            image_error="the image of new pods cannot be had for 25 s",
            node_lost="nobody knows of the pods of a node for 20 s",
            unready_worker="a worker pod is not Ready for a while",
            unready_head="the head pod is not Ready for a while",
            stuck_pod="a pod that is to go stays for 15 s",
        ),
        *_kinds(
            "H",
            touch="somebody annotates the object",
            relabel_pod="somebody takes the cluster's label off a worker pod",
            delete_service="somebody deletes the head Service",
            own_pod="somebody else takes a worker pod as his own",
        ),
        *_kinds(
            "I",
            tick_ahead="the owner's wall clock is 1 s ahead: a deadline is over too soon",
            tick_behind="the owner's wall clock is 1 s late: a deadline is not over yet",
        ),
    ),
}  # fmt: skip

GROUPS = "ABCDEFGHI"


@dataclass(frozen=True, slots=True)
class Swarm:
    """How often what goes wrong in one random run: a chance per passing of a place, by class of places and group."""

    rates: Mapping[str, float]
    groups: frozenset[str]

    @staticmethod
    def drawn(chance: Random) -> Swarm:
        """A quarter of the runs has no faults at all; the others have a few groups, each seldom or often."""
        if chance.random() < 0.25:
            return Swarm({}, frozenset())
        groups = frozenset(group for group in GROUPS if chance.random() < 0.45)
        rates = {}
        for place in CATALOGUE:
            often = 0.02 if place == "moment" else 0.03
            rates[place] = often * chance.choice((0.0, 0.1, 0.3, 1.0, 2.0))
        return Swarm(rates, groups)


class Faults:
    """Asked at every fault point. `taken` is what went wrong so far; `passed` counts the places."""

    def __init__(self) -> None:
        self.active = False
        self.taken: list[Fault] = []
        self.passed: Counter[str] = Counter()
        self.seen: list[tuple[str, int, str]] = []  # every point of a recording run, with its class
        self._plan: dict[tuple[str, int], str] = {}
        self._swarm: Swarm | None = None
        self._chance = Random(0)
        self._recording = False
        self._branch: Callable[[Fault], bool] | None = None

    def begin(
        self, plan: Iterable[Fault] = (), *, swarm: Swarm | None = None, chance: Random | None = None, record: bool = False
    ) -> None:  # fmt: skip
        """From now on this goes wrong: what is planned, and what the swarm draws."""
        self.active = True
        self._plan = {(fault.place, fault.nth): fault.kind for fault in plan}
        self._swarm, self._chance, self._recording = swarm, chance or Random(0), record

    def branch(self, takes: Callable[[Fault], bool] | None) -> None:
        """Of each fault that could happen `takes` is asked whether it does in this run: who forks can answer both."""
        self._branch = takes

    def end(self) -> None:
        """Nothing goes wrong any more."""
        self.active = False

    def at(self, sort: str, place: str) -> str:
        """The kind of fault that happens at this passing of a place of class `sort`; empty: none."""
        if not self.active:
            return ""
        place = f"{sort} {place}"
        self.passed[place] = nth = self.passed[place] + 1
        if self._recording:
            self.seen.append((place, nth, sort))
        kind = self._plan.get((place, nth), "")
        if not kind and self._swarm is not None:
            kind = self._draw(sort)
        if not kind and self._branch is not None:
            kind = self._branched(sort, place, nth)
        if kind:
            self.taken.append(Fault(place, nth, kind))
        return kind

    def _branched(self, sort: str, place: str, nth: int) -> str:
        for kind in CATALOGUE[sort]:
            if self._branch is not None and self._branch(Fault(place, nth, kind.name)):
                return kind.name
        return ""

    def _draw(self, sort: str) -> str:
        assert self._swarm is not None
        rate = self._swarm.rates.get(sort, 0.0)
        if not rate or self._chance.random() >= rate:
            return ""
        kinds = [kind.name for kind in CATALOGUE[sort] if kind.group in self._swarm.groups]
        return self._chance.choice(kinds) if kinds else ""


def to_json(fault: Fault) -> list[Any]:
    return [fault.place, fault.nth, fault.kind]


def from_json(found: list[Any]) -> Fault:
    return Fault(str(found[0]), int(found[1]), str(found[2]))
