"""What an answer means for an action, and what the outcomes of a pass mean for the next one. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from raybus.decide.actions import Action, CreateObject, Json, Reconsider
from raybus.decide.outcome import Outcome, Result
from raybus.decide.plan import Plan
from raybus.kube import errors

LEASE_LOST = "the lease of this partition was lost"
STEP_LIMIT = "more actions than one pass may take; the rest follows"
EARLIER_FAILED = "an earlier step did not succeed"


def of_error(action: Action, error: errors.KubeError) -> Outcome:
    """The outcome of an action that the server, or the way to it, answered with this error."""
    return Outcome(
        action=action,
        result=_result(action, error),
        message=error.message,
        code=error.code,
        retry_after_s=error.retry_after_s,
    )


def _result(action: Action, error: errors.KubeError) -> Result:
    if error.ambiguous:
        return Result.AMBIGUOUS
    if isinstance(error, errors.TooManyRequests) or error.code == 503:
        return Result.THROTTLED
    if isinstance(error, errors.Conflict):
        return Result.CONFLICT
    if isinstance(error, errors.NotFound):
        if isinstance(action, CreateObject):
            return Result.REFUSED  # the namespace, or the kind itself, does not exist
        return Result.FAILED if error.resource_unknown else Result.GONE
    if isinstance(error, errors.Unauthorized):
        return Result.FAILED  # credentials are renewed meanwhile
    return Result.REFUSED if 400 <= error.code < 500 else Result.FAILED


def controller_of(obj: Json) -> Json | None:
    """The ownerReference that controls this object."""
    references = obj["metadata"].get("ownerReferences") or ()
    return next((reference for reference in references if reference.get("controller")), None)


def of_existing(action: CreateObject, found: Json) -> Outcome:
    """The outcome of a creation that met an object of the same name."""
    wanted, owner = controller_of(action.body), controller_of(found)
    if owner is None or wanted is None or owner.get("uid") != wanted.get("uid"):
        by = f"{owner.get('kind')} {owner.get('name')} ({owner.get('uid')})" if owner else "nobody"
        message = f"{action.kind.kind} {action.name} exists already and is controlled by {by}"
        return Outcome(action=action, result=Result.REFUSED, message=message, code=409)
    if found["metadata"].get("deletionTimestamp"):
        message = f"{action.kind.kind} {action.name} of before is still being deleted"
        return Outcome(action=action, result=Result.CONFLICT, message=message, code=409)
    return Outcome(action=action, result=Result.ALREADY_SO, code=409, body=found)


def skipped(actions: Iterable[Action], message: str) -> list[Outcome]:
    return [Outcome(action=action, result=Result.SKIPPED, message=message) for action in actions]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What follows from a pass: `failed` asks for a back-off (at least `retry_after_s`), `again` for another pass at once,
    `reread` for a fresh read before the next decision, because something may have happened that nobody answered for.
    """

    failed: bool = False
    again: bool = False
    reread: bool = False
    retry_after_s: float | None = None
    message: str = ""


def verdict(outcomes: Iterable[Outcome]) -> Verdict:
    again = reread = False
    retry_after: float | None = None
    failures: list[Outcome] = []
    for outcome in outcomes:
        if isinstance(outcome.action, Reconsider) and outcome.result is Result.DONE:
            again = True
        elif outcome.result is Result.SKIPPED:
            again = again or outcome.message == STEP_LIMIT
        elif not outcome.ok:
            failures.append(outcome)
            reread = reread or outcome.result is Result.AMBIGUOUS
            retry_after = max(retry_after or 0.0, outcome.retry_after_s or 0.0) or None
    words = "; ".join(f"{type(o.action).__name__}: {o.result}: {o.message}" for o in failures[:3])
    return Verdict(bool(failures), again and not failures, reread, retry_after, words[:1000])


def needs_fresh_read(plan: Plan, *, takeover: bool) -> str:
    """Why a plan must rest on a fresh read of the tree; empty if it need not."""
    if plan.confirm:
        return plan.confirm
    if takeover and any(isinstance(action, CreateObject) for action in plan.actions):
        return "creations in the first pass after a take-over"
    return ""
