"""Events about pods: one for each group and kind of deed in a pass, whatever the number of pods. Pure.

An event per pod would cost the API server more than the pods do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from raybus.decide.actions import Action, CreatePod, DeletePod, RecordEvent
from raybus.decide.outcome import FAILURES, Outcome, Result
from raybus.domain import labels
from raybus_cluster_ctrl.decide import reasons
from raybus_cluster_ctrl.decide.world import ClusterWorld

Json = Mapping[str, Any]

NOTE_MAX = 1024  # bytes; the API server takes no more
_NAMED = 8


def of_pods(world: ClusterWorld, outcomes: Iterable[Outcome]) -> tuple[Action, ...]:
    """What happened to pods in this pass, told on the RayCluster."""
    told: dict[tuple[bool, type[Action], str], list[Outcome]] = {}
    for outcome in outcomes:
        action = outcome.action
        if isinstance(action, CreatePod | DeletePod) and (outcome.result is Result.DONE or outcome.result in FAILURES):
            told.setdefault((outcome.ok, type(action), _group_of(action)), []).append(outcome)
    return tuple(_event(world, key, found) for key, found in told.items())


def _group_of(action: CreatePod | DeletePod) -> str:
    return action.group if isinstance(action, DeletePod) else str(action.body["metadata"]["labels"][labels.GROUP])


def _event(world: ClusterWorld, key: tuple[bool, type[Action], str], found: list[Outcome]) -> Action:
    done, kind, group = key
    role = "Head" if group == labels.HEAD_GROUP else "Worker"
    deed = reasons.PODS[kind, role]
    verb = deed.verb
    namespace = world.present.namespace
    names = [outcome.action.name for outcome in found if isinstance(outcome.action, CreatePod | DeletePod)]
    if done:
        lone = f"{verb}d {role.lower()} Pod {namespace}/{names[0]}"
        several = f"{verb}d {len(names)} Pods of group {group}: {_listed(names)}"
        why = "" if verb == "Create" else f": {found[0].action.reason}"
    else:
        lone = f"Failed to {verb.lower()} {role.lower()} Pod {namespace}/{names[0]}"
        several = f"Failed to {verb.lower()} {len(names)} {role.lower()} Pods of group {group}: {_listed(names)}"
        why = f": {found[0].message}"
    return RecordEvent(
        reason=lone if len(names) == 1 else several,
        regarding=world.present.root,
        type="Normal" if done else "Warning",
        event_reason=deed.done if done else deed.failed,
        action=deed.verb,
        note=_cut((lone if len(names) == 1 else several) + why),
    )


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _cut(note: str) -> str:
    return note.encode()[:NOTE_MAX].decode(errors="ignore")
