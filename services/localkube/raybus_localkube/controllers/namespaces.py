"""Namespace lifecycle: a namespace that is being deleted is emptied, tells what is left, and then may go. Pure.

A round lists every kind in the namespace; the next one comes when an object there is gone, not sooner than ROUND_S.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from raybus.decide.tree import RootKey
from raybus.domain import conditions, merge_patch
from raybus.domain.conditions import Condition
from raybus.domain.kinds import NAMESPACE, Kind
from raybus.kube.errors import KubeError, NotFound
from raybus_localkube.controllers import work
from raybus_localkube.controllers.controller import Controller, Keys, Ref, Served
from raybus_localkube.controllers.work import NOTHING, Call, Json, Work

FINALIZER = "kubernetes"
ROUND_S = 0.5
LOOK_AGAIN_S = 60.0
"""When nothing was heard for so long; what holds a namespace is usually heard of at once."""
LIST_LIMIT = 500
CONTENT_REMOVED = "All content successfully removed"
FINALIZERS_DONE = "All content-preserving finalizers finished"


@dataclass(frozen=True, slots=True)
class Left:
    """What a round found of one kind: how many objects, how many not told to go yet, and who holds them."""

    count: int
    untouched: int
    finalizers: Mapping[str, int]


@dataclass(slots=True)
class Emptying:
    """A namespace under deletion. `found` is what the present round knows so far; `due`: the next round may begin."""

    namespace: Json
    found: dict[Kind, Left] = field(default_factory=dict)
    due: bool = True
    began: datetime | None = None


def left(objects: Sequence[Json], more: int = 0) -> Left:
    """Of a page of objects, with the number of those that are on later pages."""
    finalizers = Counter(finalizer for obj in objects for finalizer in obj["metadata"].get("finalizers") or ())
    untouched = sum("deletionTimestamp" not in obj["metadata"] for obj in objects)
    return Left(len(objects) + more, untouched, finalizers)


def status_conditions(old: Sequence[Json], found: Mapping[Kind, Left], now: datetime) -> list[Json]:
    """The five conditions in Kubernetes' order; those that did not change keep their time."""
    remaining = sorted(
        f"{kind.plural}.{kind.group} has {each.count} resource instances" for kind, each in found.items() if each.count
    )
    holding: Counter[str] = Counter()
    for each in found.values():
        holding.update(each.finalizers)
    held = sorted(f"{name} in {count} resource instances" for name, count in holding.items())
    wanted = (
        Condition(
            type="NamespaceDeletionDiscoveryFailure",
            status="False",
            reason="ResourcesDiscovered",
            message="All resources successfully discovered",
        ),
        Condition(
            type="NamespaceDeletionGroupVersionParsingFailure",
            status="False",
            reason="ParsedGroupVersions",
            message="All legacy kube types successfully parsed",
        ),
        Condition(
            type="NamespaceDeletionContentFailure",
            status="False",
            reason="ContentDeleted",
            message="All content successfully deleted, may be waiting on finalization",
        ),
        Condition(
            type="NamespaceContentRemaining",
            status="True" if remaining else "False",
            reason="SomeResourcesRemain" if remaining else "ContentRemoved",
            message=f"Some resources are remaining: {', '.join(remaining)}" if remaining else CONTENT_REMOVED,
        ),
        Condition(
            type="NamespaceFinalizersRemaining",
            status="True" if held else "False",
            reason="SomeFinalizersRemain" if held else "ContentHasNoFinalizers",
            message=f"Some content in the namespace has finalizers remaining: {', '.join(held)}"
            if held
            else FINALIZERS_DONE,
        ),
    )
    return conditions.merge(old, wanted, now)


class Namespaces(Controller):
    """Keys are namespaces."""

    name = "namespaces"
    every_kind = True

    def __init__(self) -> None:
        self._served: tuple[Served, ...] = ()
        self._ending: dict[str, Emptying] = {}

    def serve(self, served: tuple[Served, ...]) -> Keys:
        self._served = tuple(each for each in served if each.kind.namespaced and {"list", "delete"} <= each.verbs)
        return ()

    def changed(self, kind: Kind, obj: Json) -> Keys:
        meta = obj["metadata"]
        if kind != NAMESPACE or "deletionTimestamp" not in meta:
            return ()
        state = self._ending.get(meta["name"])
        if state is None or state.namespace["metadata"]["uid"] != meta["uid"]:
            self._ending[meta["name"]] = Emptying(obj)
        else:
            state.namespace = obj
        return (self.key(meta["name"], ""),)

    def gone(self, kind: Kind, ref: Ref) -> Keys:
        if kind == NAMESPACE:
            self._ending.pop(ref.name, None)
            return ()
        state = self._ending.get(ref.namespace)
        if state is None:
            return ()
        state.due = True
        return (self.key(ref.namespace, ""),)

    def decide(self, key: RootKey, now: datetime) -> Work:
        state = self._ending.get(key.namespace)
        if state is None or FINALIZER not in (state.namespace["spec"].get("finalizers") or ()):
            return NOTHING
        kinds = [each.kind for each in self._served]
        if state.due or now >= (state.began or now) + timedelta(seconds=LOOK_AGAIN_S):
            if state.began is not None and now < (next_round := state.began + timedelta(seconds=ROUND_S)):
                return Work(wake_at=next_round)
            state.due, state.began, state.found = False, now, {}
        unlisted = [kind for kind in kinds if kind not in state.found]
        if unlisted:
            return Work(steps=work.steps([_list(kind, key.namespace) for kind in unlisted]))
        return self._after_round(state, now)

    def _after_round(self, state: Emptying, now: datetime) -> Work:
        name = state.namespace["metadata"]["name"]
        if not any(each.count for each in state.found.values()):
            return Work(steps=work.steps([_finalize(state.namespace)]))
        untouched = [kind for kind, each in state.found.items() if each.untouched]
        if untouched:
            for kind in untouched:  # so that they are listed again, after they were told to go
                del state.found[kind]
            return Work(
                steps=work.steps([_empty(kind, name) for kind in untouched], [_list(kind, name) for kind in untouched])
            )
        status = state.namespace.get("status") or {}
        wanted = {**status, "conditions": status_conditions(status.get("conditions") or [], state.found, now)}
        calls = [_tell(state.namespace, change)] if (change := merge_patch.difference(status, wanted)) else []
        return Work(steps=work.steps(calls), wake_at=now + timedelta(seconds=LOOK_AGAIN_S))

    def answered(self, key: RootKey, call: Call, answer: dict[str, Any] | KubeError) -> Keys:
        state = self._ending.get(key.namespace)
        if state is None or call.method != "GET":
            return ()
        if isinstance(answer, NotFound):
            state.found[call.kind] = left([])
        elif not isinstance(answer, KubeError):
            more = int((answer.get("metadata") or {}).get("remainingItemCount") or 0)
            state.found[call.kind] = left(answer.get("items") or [], more)
        return (key,)


def _list(kind: Kind, namespace: str) -> Call:
    return Call(method="GET", kind=kind, path=kind.path(namespace), query={"limit": LIST_LIMIT}, gone_is_done=True)


def _empty(kind: Kind, namespace: str) -> Call:
    """Delete all objects of a kind there."""
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
    return Call(method="DELETE", kind=kind, path=kind.path(namespace), body=options, gone_is_done=True)


def _tell(namespace: Json, status: Json) -> Call:
    meta = namespace["metadata"]
    return work.patch(
        NAMESPACE,
        "",
        meta["name"],
        {"status": status},
        uid=meta["uid"],
        version=meta["resourceVersion"],
        subresource="status",
    )


def _finalize(namespace: Json) -> Call:
    kept = [each for each in namespace["spec"]["finalizers"] if each != FINALIZER]
    body = {**namespace, "spec": {**namespace["spec"], "finalizers": kept}}
    path = NAMESPACE.path(None, namespace["metadata"]["name"], "finalize")
    return Call(method="PUT", kind=NAMESPACE, path=path, body=body, gone_is_done=True)
