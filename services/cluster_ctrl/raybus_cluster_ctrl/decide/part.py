"""A piece of a plan: what one concern wants done in this pass. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from raybus.decide.actions import Action


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """`first` must be there before pods are; `actions` are done side by side. `confirm`: why a fresh read is needed."""

    actions: tuple[Action, ...] = ()
    first: tuple[Action, ...] = ()
    confirm: str = ""
    notes: tuple[str, ...] = ()


def joined(parts: Iterable[Part]) -> Part:
    given = tuple(parts)
    return Part(
        actions=tuple(action for part in given for action in part.actions),
        first=tuple(action for part in given for action in part.first),
        confirm="; ".join(part.confirm for part in given if part.confirm),
        notes=tuple(note for part in given for note in part.notes),
    )
