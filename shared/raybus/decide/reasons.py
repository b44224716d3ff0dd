"""The shape of a service's table of event reasons (its decide/reasons.py). Pure data.

A reason that a service may emit stands in its table and nowhere else: the code takes it from there, and so does
docs/reference/events.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from raybus.decide.actions import Announce


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """Something that is done and told: `done` is the reason of the Normal event, `failed` that of the Warning.

    `verb` is the event's action, `meaning` what the deed is, for readers of the reference.
    """

    verb: str
    done: str
    failed: str
    meaning: str

    def announced(self, note: str) -> Announce:
        return Announce(action=self.verb, done=self.done, failed=self.failed, note=note)


@dataclass(frozen=True, slots=True, kw_only=True)
class Complaint:
    """Something about an object that is said in a Warning and acted on in no other way."""

    reason: str
    meaning: str
    verb: str = "Validate"


def creation(what: str, meaning: str) -> Deed:
    """`what` as it stands in the reasons: "RayCluster" gives CreatedRayCluster and FailedToCreateRayCluster."""
    return Deed(verb="Create", done=f"Created{what}", failed=f"FailedToCreate{what}", meaning=meaning)


def deletion(what: str, meaning: str) -> Deed:
    return Deed(verb="Delete", done=f"Deleted{what}", failed=f"FailedToDelete{what}", meaning=meaning)


def update(what: str, meaning: str) -> Deed:
    return Deed(verb="Update", done=f"Updated{what}", failed=f"FailedToUpdate{what}", meaning=meaning)


NOT_SUPPORTED = Complaint(
    reason="NotSupported", meaning="the object asks for what this release does not do; the note names the field"
)
PARKED = Complaint(
    reason="ReconcileParked",
    verb="Reconcile",
    meaning="a bug of Raybus: no decision can be made on the object, so it is left alone until it changes",
)
