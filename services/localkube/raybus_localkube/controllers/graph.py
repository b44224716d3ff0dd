"""Who owns whom, by uid. Pure.

A node holds what the collector looks at and nothing else, so that all objects of a server fit into little memory.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import NamedTuple

from raybus.domain.kinds import Kind
from raybus_localkube.controllers.work import Json

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"
ABSENT_KEPT = 10_000


class Owner(NamedTuple):
    """One ownerReference; `reference` is it as it stands in the object."""

    uid: str
    api_version: str
    kind: str
    name: str
    blocks: bool
    reference: Json


@dataclass(frozen=True, slots=True)
class Node:
    kind: Kind
    namespace: str
    name: str
    uid: str
    version: str
    owners: tuple[Owner, ...]
    finalizers: tuple[str, ...]
    deleting: bool

    @property
    def waits_for_dependents(self) -> bool:
        return self.deleting and FOREGROUND in self.finalizers

    @property
    def orphans_dependents(self) -> bool:
        return self.deleting and ORPHAN in self.finalizers

    def is_named_by(self, owner: Owner, dependent: Node) -> bool:
        """Whether the reference means this object: a uid alone can be a forgery or a mistake."""
        group = owner.api_version.rpartition("/")[0]
        return (
            (self.kind.group, self.kind.kind, self.name) == (group, owner.kind, owner.name)
            and (not self.kind.namespaced or self.namespace == dependent.namespace)
        )  # fmt: skip


def node_of(kind: Kind, obj: Json) -> Node:
    meta = obj["metadata"]
    return Node(
        kind=kind,
        namespace=meta.get("namespace", ""),
        name=meta["name"],
        uid=meta["uid"],
        version=meta["resourceVersion"],
        owners=tuple(_owner(reference) for reference in meta.get("ownerReferences") or ()),
        finalizers=tuple(meta.get("finalizers") or ()),
        deleting="deletionTimestamp" in meta,
    )


def _owner(reference: Json) -> Owner:
    return Owner(
        reference["uid"],
        reference["apiVersion"],
        reference["kind"],
        reference["name"],
        bool(reference.get("blockOwnerDeletion")),
        reference,
    )


class Graph:
    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self._dependents: dict[str, dict[str, None]] = {}
        self._absent: OrderedDict[tuple[str, str | None], None] = OrderedDict()

    def put(self, node: Node) -> list[str]:
        """Take a node in; the answer is the uids to look at: itself, its dependents, owners that wait for it."""
        old = self.nodes.get(node.uid)
        self.nodes[node.uid] = node
        if old is not None and replace(old, version=node.version) == node:
            return []
        for owner in old.owners if old else ():
            self._drop_edge(owner.uid, node.uid)
        for owner in node.owners:
            self._dependents.setdefault(owner.uid, {})[node.uid] = None
        affected = [node.uid] if node.owners or node.deleting else []
        if old is None or node.deleting:
            affected += self._dependents.get(node.uid, ())
        return affected + self._waiting_owners((*node.owners, *(old.owners if old else ())))

    def remove(self, uid: str) -> list[str]:
        """An object is gone; the answer is the uids to look at."""
        self.declare_absent(uid)
        node = self.nodes.pop(uid, None)
        if node is None:
            return []
        for owner in node.owners:
            self._drop_edge(owner.uid, uid)
        return [*self._dependents.get(uid, ()), *self._waiting_owners(node.owners)]

    def dependents(self, uid: str) -> list[Node]:
        return [self.nodes[each] for each in self._dependents.get(uid, ()) if each in self.nodes]

    def declare_absent(self, uid: str, namespace: str | None = None) -> None:
        """A watch has shown that no object has this uid any more, or a read that none in `namespace` has. Uids never come back."""
        self._absent[uid, namespace] = None
        self._absent.move_to_end((uid, namespace))
        if len(self._absent) > ABSENT_KEPT:
            self._absent.popitem(last=False)

    def is_absent(self, uid: str, namespace: str) -> bool:
        return (uid, None) in self._absent or (uid, namespace) in self._absent

    def _waiting_owners(self, owners: tuple[Owner, ...]) -> list[str]:
        found = (self.nodes.get(owner.uid) for owner in owners)
        return [node.uid for node in found if node and (node.waits_for_dependents or node.orphans_dependents)]

    def _drop_edge(self, owner: str, dependent: str) -> None:
        edges = self._dependents.get(owner)
        if edges is not None:
            edges.pop(dependent, None)
            if not edges:
                del self._dependents[owner]
