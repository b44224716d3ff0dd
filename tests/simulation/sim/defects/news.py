"""Planted defects of how news travel: gateway, mirror, leases, queue, executor."""

from __future__ import annotations

from raybus.bus import trees
from raybus.bus.envelope import Op
from raybus.runtime import controller, executor, outcomes, queue
from raybus_gateway import catalog
from simulation.sim.defects.registry import defect


@defect("wake-up-dropped", "X2", groups="ABCDEFGHI")
def wake_up_dropped() -> None:
    """What happens to a key while its pass runs does not make it due again."""
    original = queue.KeyedQueue.done

    def done(self, key):
        self._entries[key].again = False
        original(self, key)

    queue.KeyedQueue.done = done


@defect("no-retry", "X2", groups="ADE")
def no_retry() -> None:
    """A failed pass is not tried again."""
    controller.Controller._back_off = lambda _self, _key, _now, _wait: None


@defect("act-twice-on-take-over", "C1 C2 C3 X8", groups="CDEG")
def act_twice_on_take_over() -> None:
    """Who takes over trusts its mirror at once, also for what is to be made."""
    outcomes.needs_fresh_read = lambda plan, *, takeover: plan.confirm


@defect("tombstones-ignored", "X2", groups="ABCDEFGHI")
def tombstones_ignored() -> None:
    """The mirror does not take what was deleted out of its trees."""
    trees.Trees._bury = lambda _self, _key, _object_id, _uid, _now: None


@defect("gateway-forgets-deletions", "X2", groups="C")
def gateway_forgets_deletions() -> None:
    """The gateway does not tell what was deleted while its watch was away."""
    original = catalog.Catalog.completed

    def completed(self, scope, version):
        return [write for write in original(self, scope, version) if write.op is not Op.DELETED]

    catalog.Catalog.completed = completed


@defect("gap-not-noticed", "X2", groups="CD")
def gap_not_noticed() -> None:
    """A mirror that missed news goes on as if nothing had been."""
    from simulation.sim.ports import bus

    bus._Line._notice = lambda self: setattr(self, "_holed", False)


@defect("secret-in-events", "X12")
def secret_in_events() -> None:
    """An event repeats the whole object."""
    original = executor.Executor._event

    def event(self, action):
        self._ports.events.record(action.regarding, "Normal", "Debug", "Debug", str(action.regarding.get("spec"))[:900])
        return original(self, action)

    executor.Executor._event = event
