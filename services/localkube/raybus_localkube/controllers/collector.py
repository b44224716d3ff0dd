"""Garbage collector: what nobody owns any more is deleted; owners wait for, or let go, what they own. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from raybus.decide.tree import RootKey
from raybus.domain.kinds import Kind
from raybus.kube.errors import KubeError, NotFound
from raybus_localkube.controllers import work
from raybus_localkube.controllers.controller import Controller, Keys, Ref, Served
from raybus_localkube.controllers.graph import FOREGROUND, ORPHAN, Graph, Node, Owner, node_of
from raybus_localkube.controllers.work import NOTHING, Call, Json, Work

KindIndex = dict[tuple[str, str], Kind]
"""(apiVersion's group, kind) to the served kind."""


@dataclass(slots=True)
class Owners:
    """The owners of a node by what is known of them. Nothing is collected while one is unknown or cannot be looked up."""

    solid: list[Owner] = field(default_factory=list)
    absent: list[Owner] = field(default_factory=list)
    waiting: list[Owner] = field(default_factory=list)  # being deleted in the foreground
    unknown: list[Owner] = field(default_factory=list)
    unreadable: list[Owner] = field(default_factory=list)


def classify(node: Node, graph: Graph, kinds: KindIndex) -> Owners:
    found = Owners()
    for owner in node.owners:
        target = graph.nodes.get(owner.uid)
        kind = kinds.get((owner.api_version.rpartition("/")[0], owner.kind))
        if target is not None and target.is_named_by(owner, node):
            (found.waiting if target.waits_for_dependents else found.solid).append(owner)
        elif kind is None or (kind.namespaced and not node.namespace):
            found.unreadable.append(owner)
        elif graph.is_absent(owner.uid, node.namespace):
            found.absent.append(owner)
        else:
            found.unknown.append(owner)
    return found


def decide(node: Node, graph: Graph, kinds: KindIndex) -> Work:
    """The next thing to do about one object."""
    if node.orphans_dependents:
        return _orphan(node, graph)
    if node.waits_for_dependents:
        return _release_when_alone(node, graph)
    if node.deleting or not node.owners:
        return NOTHING
    owners = classify(node, graph, kinds)
    if owners.unknown:
        return Work(steps=work.steps([_read(node, owner, kinds) for owner in owners.unknown]))
    if owners.solid or owners.unreadable:
        lost = {owner.uid for owner in (*owners.absent, *owners.waiting)}
        return Work(steps=work.steps([_without_owners(node, lost)])) if lost and owners.solid else NOTHING
    if owners.waiting and (dependents := graph.dependents(node.uid)):
        circle = any(each.waits_for_dependents for each in dependents)
        if circle and any(owner.blocks for owner in node.owners):  # its owner would wait for it, and it for its owner
            return Work(steps=work.steps([_unblocked(node)]))
        return _delete(node, "Foreground")
    return _delete(node, _policy(node))


def _orphan(node: Node, graph: Graph) -> Work:
    dependents = graph.dependents(node.uid)
    if dependents:
        return Work(steps=work.steps([_without_owners(each, {node.uid}) for each in dependents]))
    return Work(steps=work.steps([_without_finalizer(node, ORPHAN)]))


def _release_when_alone(node: Node, graph: Graph) -> Work:
    blocking = [
        each
        for each in graph.dependents(node.uid)
        if any(owner.uid == node.uid and owner.blocks for owner in each.owners)
    ]
    return NOTHING if blocking else Work(steps=work.steps([_without_finalizer(node, FOREGROUND)]))


def _policy(node: Node) -> Literal["Background", "Foreground", "Orphan"]:
    """As the object's own finalizers ask."""
    if ORPHAN in node.finalizers:
        return "Orphan"
    return "Foreground" if FOREGROUND in node.finalizers else "Background"


def _delete(node: Node, propagation: Literal["Background", "Foreground", "Orphan"]) -> Work:
    call = work.delete(
        node.kind, node.namespace, node.name, uid=node.uid, version=node.version, propagation=propagation
    )
    return Work(steps=work.steps([call]))


def _read(node: Node, owner: Owner, kinds: KindIndex) -> Call:
    kind = kinds[owner.api_version.rpartition("/")[0], owner.kind]
    namespace = node.namespace if kind.namespaced else None
    return Call(method="GET", kind=kind, path=kind.path(namespace, owner.name), gone_is_done=True)


def _without_owners(node: Node, lost: set[str]) -> Call:
    kept = [owner.reference for owner in node.owners if owner.uid not in lost]
    return _patch(node, {"ownerReferences": kept or None})


def _unblocked(node: Node) -> Call:
    return _patch(
        node, {"ownerReferences": [{**owner.reference, "blockOwnerDeletion": False} for owner in node.owners]}
    )


def _without_finalizer(node: Node, finalizer: str) -> Call:
    return _patch(node, {"finalizers": [each for each in node.finalizers if each != finalizer] or None})


def _patch(node: Node, metadata: Json) -> Call:
    body = {"metadata": metadata}
    return work.patch(node.kind, node.namespace, node.name, body, uid=node.uid, version=node.version)


class Collector(Controller):
    """Keys are uids. An owner that no watch has shown is read before it counts as absent."""

    name = "garbage-collector"
    every_kind = True

    def __init__(self) -> None:
        self._graph = Graph()
        self._kinds: KindIndex = {}

    def serve(self, served: tuple[Served, ...]) -> Keys:
        before = self._kinds
        self._kinds = {(each.kind.group, each.kind.kind): each.kind for each in served if each.watchable}
        if before.keys() >= self._kinds.keys():
            return ()
        return self._keys([uid for uid, node in self._graph.nodes.items() if node.owners])  # some may be readable now

    def changed(self, kind: Kind, obj: Json) -> Keys:
        return self._keys(self._graph.put(node_of(kind, obj)))

    def gone(self, kind: Kind, ref: Ref) -> Keys:  # noqa: ARG002 - a uid is enough
        return self._keys(self._graph.remove(ref.uid))

    def decide(self, key: RootKey, now: datetime) -> Work:  # noqa: ARG002 - nothing here depends on time
        node = self._graph.nodes.get(key.name)
        return NOTHING if node is None else decide(node, self._graph, self._kinds)

    def answered(self, key: RootKey, call: Call, answer: dict[str, Any] | KubeError) -> Keys:
        """A read owner: not there, or another object under its name, means that this one is absent."""
        node = self._graph.nodes.get(key.name)
        if call.method != "GET" or node is None or (isinstance(answer, KubeError) and not isinstance(answer, NotFound)):
            return ()
        found = "" if isinstance(answer, KubeError) else answer["metadata"]["uid"]
        asked = (call.kind.group, call.kind.kind, call.path.rpartition("/")[2])
        for owner in node.owners:
            if (owner.api_version.rpartition("/")[0], owner.kind, owner.name) == asked and owner.uid != found:
                self._graph.declare_absent(owner.uid, node.namespace)
        return (key,)

    def _keys(self, uids: list[str]) -> Keys:
        return [self.key(node.namespace if (node := self._graph.nodes.get(uid)) else "", uid) for uid in uids]
