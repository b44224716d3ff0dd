"""One pass over one tree: observe, decide, confirm if need be, act, observe again, conclude, act.

No decision is taken here: pure functions decide what a plan needs (raybus.runtime.outcomes) and what to do (the spec).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Generic, TypeVar

from raybus.decide.actions import RecordEvent
from raybus.decide.outcome import Outcome
from raybus.decide.plan import Plan, WatchRayJob, earliest
from raybus.decide.tree import Fact, RootKey, Tree
from raybus.kube.errors import KubeError
from raybus.observe.logging import get_logger
from raybus.observe.metrics import ControllerMetrics
from raybus.runtime import live, outcomes, story
from raybus.runtime.clock import Clock
from raybus.runtime.executor import ACTIONS_PER_PASS, Executor, PassContext, Ports
from raybus.runtime.spec import ControllerSpec

W = TypeVar("W")


class LeaseLostError(Exception):
    """Noticed after an await: this pass must write nothing more."""


@dataclass(slots=True)
class PassResult:
    """`probes` None: as before. `computed_s` is the time of pure code alone. `lost`: the lease went in the middle of the pass.

    `gone`: there is nothing of this tree any more. `crash`: pure code raised, which is our bug.
    """

    outcomes: tuple[Outcome, ...] = ()
    wake_at: datetime | None = None
    probes: tuple[WatchRayJob, ...] | None = None
    computed_s: float = 0.0
    unconfirmed: str = ""
    lost: bool = False
    gone: bool = False
    crash: Exception | None = None


@dataclass(slots=True)
class _Pass:
    """What one pass carries from step to step."""

    key: RootKey
    trigger: str
    takeover: bool
    fresh: bool = False
    result: PassResult = field(default_factory=PassResult)


class PassRunner(Generic[W]):
    def __init__(
        self,
        spec: ControllerSpec[W],
        ports: Ports,
        executor: Executor,
        clock: Clock,
        metrics: ControllerMetrics,
        *,
        facts: Callable[[RootKey], Mapping[str, Fact]],
        mine: Callable[[RootKey], bool],
    ) -> None:
        self._spec = spec
        self._ports = ports
        self._executor = executor
        self._clock = clock
        self._metrics = metrics
        self._facts = facts
        self._mine = mine
        self._notes: dict[RootKey, tuple[str, ...]] = {}
        self._log = get_logger(controller=spec.name)

    async def run(self, key: RootKey, trigger: str, *, takeover: bool) -> PassResult:
        """One pass; never raises for what the world or pure code did. `takeover`: creations rest on a fresh read."""
        current = _Pass(key, trigger, takeover)
        if self._ports.mirror.tree(key) is None:
            current.result.gone = True
            return current.result
        try:
            await self._through(current)
        except LeaseLostError:
            current.result.lost = True
        except Exception as error:  # noqa: BLE001 - a poison object must not take the others along; it is parked and shown
            current.result.crash = error
            self._log.exception("bug in a decision", kind=key.kind, namespace=key.namespace, name=key.name)
        return current.result

    def forget(self, key: RootKey) -> None:
        self._notes.pop(key, None)

    def drop(self, predicate: Callable[[RootKey], bool]) -> None:
        """Forget what is remembered of the keys of which the predicate holds."""
        self._notes = {key: notes for key, notes in self._notes.items() if not predicate(key)}

    async def _through(self, current: _Pass) -> None:
        result = current.result
        tree = self._tree(current)
        plan = await self._confirmed(current, tree, self._decided(current, tree), lambda t: self._decided(current, t))
        result.outcomes = await self._carried_out(current, plan, "decide", ACTIONS_PER_PASS)
        done = result.outcomes
        tree = self._tree(current)
        final = await self._confirmed(
            current, tree, self._concluded(current, tree, done), lambda t: self._concluded(current, t, done)
        )
        # A pass that used up its actions still writes its status.
        result.outcomes += await self._carried_out(current, final, "conclude", ACTIONS_PER_PASS)
        result.wake_at = earliest(plan.wake_at, final.wake_at)
        result.probes = tuple({watch.submission_id: watch for watch in (*plan.probes, *final.probes)}.values())

    # Looking and deciding

    def _tree(self, current: _Pass) -> Tree:
        key = current.key
        tree = self._ports.mirror.tree(key) or Tree(key=key, root=None)
        complete = self._spec.kinds if current.fresh else tree.complete
        return replace(tree, facts=self._facts(key), complete=complete, fresh=current.fresh, takeover=current.takeover)

    def _decided(self, current: _Pass, tree: Tree) -> Plan:
        began = self._clock.monotonic()
        plan = self._spec.decide(self._spec.observe(tree), now=self._clock.now())
        current.result.computed_s += self._clock.monotonic() - began
        return plan

    def _concluded(self, current: _Pass, tree: Tree, done: tuple[Outcome, ...]) -> Plan:
        began = self._clock.monotonic()
        plan = self._spec.conclude(self._spec.observe(tree), done, now=self._clock.now())
        current.result.computed_s += self._clock.monotonic() - began
        return plan

    async def _confirmed(self, current: _Pass, tree: Tree, plan: Plan, again: Callable[[Tree], Plan]) -> Plan:
        """The plan, or the one that a fresh read leads to. One fresh read counts for the rest of the pass."""
        why = outcomes.needs_fresh_read(plan, takeover=current.takeover)
        if not why or current.fresh or current.result.unconfirmed:
            return plan
        self._log.debug("reading the tree afresh", namespace=current.key.namespace, name=current.key.name, reason=why)
        self._metrics.confirmations.inc()
        try:
            objects = await live.read(self._ports.kube, self._spec.routes, tree)
        except (KubeError, TimeoutError) as error:
            current.result.unconfirmed = f"not confirmed ({why}): {error or 'no answer in time'}"
            self._log.warning("could not read the tree afresh", name=current.key.name, reason=why, error=str(error))
            self._check_lease(current.key)
            return plan
        self._check_lease(current.key)
        self._ports.mirror.fresh(current.key, objects)
        current.fresh = True
        return again(self._tree(current))

    # Acting

    async def _carried_out(self, current: _Pass, plan: Plan, stage: str, budget: int) -> tuple[Outcome, ...]:
        key = current.key
        tree = self._ports.mirror.tree(key)
        root = tree.root if tree else None
        self._tell(key, story.decision(stage, plan, root, current.trigger, self._clock.now()), plan)
        if not plan.steps:
            return ()
        needs = outcomes.needs_fresh_read(plan, takeover=current.takeover)
        if needs and current.result.unconfirmed:
            return tuple(outcomes.skipped(plan.actions, current.result.unconfirmed))
        context = PassContext(key, root, current.trigger, lambda: self._mine(key))
        done = await self._executor.run(plan, context, budget)
        self._check_lease(key)
        return done

    def _check_lease(self, key: RootKey) -> None:
        if not self._mine(key):
            raise LeaseLostError

    def _tell(self, key: RootKey, body: Mapping[str, object], plan: Plan) -> None:
        """Decisions with actions always go to history; notes, and what rests, only when they say something new."""
        acts = any(not (isinstance(action, RecordEvent) and action.rests) for action in plan.actions)
        if not acts and (not plan.notes or plan.notes == self._notes.get(key)):
            return
        self._notes[key] = plan.notes
        self._ports.history.record(key.namespace, key.kind, key.name, body)
