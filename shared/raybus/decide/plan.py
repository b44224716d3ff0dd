"""The answer of a decision: what to do, in which order, and when to look again. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from raybus.decide.actions import Action, RayEndpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchRayJob:
    """Ask that the probe polls this submission and wakes the key when what Ray says has changed.

    `token` is copied into each fact: a poll that began before something became known (the end of the submitter, say) carries
    the old one. With a new token the next poll follows at once.
    """

    endpoint: RayEndpoint
    submission_id: str
    interval_s: float = 3.0
    token: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`steps` run one after the other, the actions of a step side by side; the first step that is not wholly ok ends it.

    `confirm` names why the plan needs a fresh read of the tree before it is carried out (a deletion, an absence); empty: none.
    `wake_at` is the next deadline, not a poll. `probes` are the facts the key needs; probes not named are stopped.
    `notes` say in words what was decided and why, also when there is nothing to do.
    """

    steps: tuple[tuple[Action, ...], ...] = ()
    wake_at: datetime | None = None
    confirm: str = ""
    probes: tuple[WatchRayJob, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def actions(self) -> tuple[Action, ...]:
        return tuple(action for step in self.steps for action in step)


NOTHING = Plan()


def earliest(*times: datetime | None) -> datetime | None:
    """The first of the given times; None if none is given."""
    return min((time for time in times if time is not None), default=None)
