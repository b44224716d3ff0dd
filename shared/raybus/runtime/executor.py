"""Carries out plans. The only place that writes to Kubernetes; one Outcome per action, and nothing is raised into the loop.

The verbs of Kubernetes stand in kube_verbs.py; an action of one service (SubmitRayJob, say) is given as a handler by that service.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from raybus.decide.actions import Action, Json, Reconsider, RecordEvent
from raybus.decide.outcome import FAILURES, Outcome, Result
from raybus.decide.plan import Plan
from raybus.decide.tree import RootKey
from raybus.observe.logging import get_logger
from raybus.observe.metrics import ControllerMetrics
from raybus.runtime import faultpoints, outcomes, story
from raybus.runtime.clock import Clock
from raybus.runtime.kube_verbs import KubeVerbs
from raybus.runtime.ports import Events, History, Kube, Mirror
from raybus.runtime.told import Told

ACTIONS_PER_PASS = 64
IN_FLIGHT_PER_KEY = 8
HANDLER_TIMEOUT_S = 30.0
EVENT_REPEAT_S = 600.0
EVENTS_REMEMBERED = 10_000

Handler = Callable[[Any], Awaitable[Outcome]]
"""Carries out one action of a class it is registered for."""

OnOutcome = Callable[[Outcome, Json | None], None]
"""Gets the outcome of each action with the root of its tree (None if that is gone); it counts, and must not raise."""


@dataclass(frozen=True, slots=True)
class Ports:
    kube: Kube
    mirror: Mirror
    events: Events
    history: History


@dataclass(frozen=True, slots=True)
class PassContext:
    """Of which pass a plan is: `root` for events (None if it is gone), `mine` asks whether the lease still holds."""

    key: RootKey
    root: Json | None
    trigger: str
    mine: Callable[[], bool]


class Executor:
    def __init__(
        self,
        controller: str,
        ports: Ports,
        clock: Clock,
        metrics: ControllerMetrics,
        *,
        actions: tuple[type[Action], ...],
        handlers: Mapping[type[Action], Handler] | None = None,
        told: Told | None = None,
        on_outcome: OnOutcome = lambda _outcome, _root: None,
    ) -> None:
        self._ports = ports
        self._told = told or Told()
        self._on_outcome = on_outcome
        self._verbs = KubeVerbs(ports.kube, ports.mirror)
        self._clock = clock
        self._metrics = metrics
        self._allowed = frozenset((*actions, RecordEvent, Reconsider))
        self._handlers: dict[type[Action], Handler] = dict(handlers or {})
        self._log = get_logger(controller=controller)
        self._recorded: OrderedDict[tuple[str, ...], float] = OrderedDict()

    async def run(self, plan: Plan, context: PassContext, budget: int = ACTIONS_PER_PASS) -> tuple[Outcome, ...]:
        """Carry out the steps in order until one is not wholly ok, the budget is used up, or the lease is lost."""
        done: list[Outcome] = []
        stopped = ""
        for step in plan.steps:
            if stopped:
                done += outcomes.skipped(step, stopped)
                continue
            room = max(budget - len(done), 0)
            results = await self._step(step[:room], context)
            done += results
            if not all(outcome.ok for outcome in results):
                stopped = outcomes.EARLIER_FAILED
            elif any(isinstance(action, Reconsider) for action in step[:room]):
                stopped = "the pass ends here to look again"
            if len(step) > room:
                done += outcomes.skipped(step[room:], stopped or outcomes.STEP_LIMIT)
                stopped = stopped or outcomes.STEP_LIMIT
        return tuple(done)

    async def _step(self, step: tuple[Action, ...], context: PassContext) -> list[Outcome]:
        if len(step) <= 1:
            return [await self._one(action, context) for action in step]
        places = asyncio.Semaphore(IN_FLIGHT_PER_KEY)

        async def placed(action: Action) -> Outcome:
            async with places:
                return await self._one(action, context)

        return list(await asyncio.gather(*(placed(action) for action in step)))

    async def _one(self, action: Action, context: PassContext) -> Outcome:
        if not context.mine():
            return outcomes.skipped((action,), outcomes.LEASE_LOST)[0]
        if isinstance(action, RecordEvent) and not self._news(action, context.key):
            return Outcome(action=action, result=Result.ALREADY_SO)
        name = type(action).__name__
        log = self._log.bind(
            kind=context.key.kind,
            namespace=context.key.namespace,
            name=context.key.name,
            action=name,
            **story.target(action),
        )
        log.info(_ing(action), reason=action.reason, trigger=context.trigger)
        began = self._clock.monotonic()
        faultpoints.hit(f"before:{name}")
        outcome = await self._carried_out(action)
        faultpoints.hit(f"after:{name}")
        took_ms = (self._clock.monotonic() - began) * 1000
        self._metrics.actions.labels(name, outcome.result.value).inc()
        self._on_outcome(outcome, context.root)
        if not outcome.ok:
            log.warning(
                "action without success", result=outcome.result.value, message=outcome.message[: story.MESSAGE_MAX]
            )
        self._announce(action, outcome, context)
        self._record(action, outcome, context, took_ms)
        return outcome

    async def _carried_out(self, action: Action) -> Outcome:
        try:
            return await self._dispatched(action)
        except TimeoutError:
            return Outcome(action=action, result=Result.AMBIGUOUS, message=f"no answer in {HANDLER_TIMEOUT_S:g} s")
        except Exception as error:  # noqa: BLE001 - whatever it is, it becomes an outcome; logged with its stack
            self._log.exception("bug while carrying out an action", action=type(action).__name__)
            return Outcome(action=action, result=Result.FAILED, message=f"{type(error).__name__}: {error}")

    async def _dispatched(self, action: Action) -> Outcome:
        if type(action) not in self._allowed:
            raise TypeError(f"{type(action).__name__} is not among the actions of this controller")
        if isinstance(action, Reconsider):
            return Outcome(action=action, result=Result.DONE)
        if isinstance(action, RecordEvent):
            return self._event(action)
        handler = self._handlers.get(type(action))
        if handler is None:
            return await self._verbs.carry_out(action)
        async with asyncio.timeout(HANDLER_TIMEOUT_S):
            return await handler(action)

    def _news(self, action: RecordEvent, key: RootKey) -> bool:
        """Whether an event is to be sent: it has not been already, or what it tells has happened again after a while."""
        if action.rests:
            return self._told.news(key, action.regarding, action.type, action.event_reason, action.note)
        uid = str(action.regarding.get("uid") or action.regarding.get("metadata", {}).get("uid") or "")
        what = (uid, action.type, action.event_reason, action.note)
        now = self._clock.monotonic()
        last = self._recorded.get(what)
        if last is not None and now - last < EVENT_REPEAT_S:
            return False
        self._recorded[what] = now
        self._recorded.move_to_end(what)
        if len(self._recorded) > EVENTS_REMEMBERED:
            self._recorded.popitem(last=False)
        return True

    def _event(self, action: RecordEvent) -> Outcome:
        self._ports.events.record(action.regarding, action.type, action.event_reason, action.action, action.note)
        return Outcome(action=action, result=Result.DONE)

    # Telling

    def _announce(self, action: Action, outcome: Outcome, context: PassContext) -> None:
        announce = action.announce
        if announce is None or context.root is None:
            return
        note = announce.note or action.reason
        if outcome.result is Result.DONE and announce.done:
            self._ports.events.record(context.root, "Normal", announce.done, announce.action, note)
        elif announce.failed and outcome.result in FAILURES:
            self._ports.events.record(
                context.root,
                "Warning",
                announce.failed,
                announce.action,
                f"{note}: {outcome.message}"[: story.MESSAGE_MAX],
            )

    def _record(self, action: Action, outcome: Outcome, context: PassContext, took_ms: float) -> None:
        if isinstance(action, Reconsider):
            return
        key = context.key
        body = story.action(outcome, context.root, context.trigger, self._clock.now(), took_ms)
        self._ports.history.record(key.namespace, key.kind, key.name, body)


def _ing(action: Action) -> str:
    name = type(action).__name__
    for verb, word in (("Create", "creating"), ("Delete", "deleting"), ("Patch", "patching"), ("Submit", "submitting")):
        if name.startswith(verb):
            return word
    return "carrying out"
