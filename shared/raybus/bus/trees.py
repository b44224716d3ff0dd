"""The trees that a mirror holds, and what a piece of news or an own write does to them. No clock and no network.

Times are seconds of a monotonic clock and come in as arguments. Objects are shared with whoever asks: never modify them.

News are what the stream says, in its order; own writes are what the API server answered to this replica and the stream will say
later. Versions are compared within one uid only. An own write that the stream has not said yet survives a re-read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import orjson

from raybus.bus.entry import Entry, Ref, Relation, newer, relation, trigger
from raybus.bus.envelope import ObjectMessage, Op
from raybus.bus.graves import Graves
from raybus.bus.projection import covers, project, union
from raybus.bus.routing import trees_of
from raybus.decide.actions import Json
from raybus.decide.routes import Projection, Route
from raybus.decide.tree import RootKey
from raybus.domain import kinds

OWN_WRITE_DOUBT_S = 60.0

ObjectId = tuple[str, str]  # kind, name; the namespace is the tree's


class Change(NamedTuple):
    """A tree that must be looked at again, and why, in words."""

    key: RootKey
    trigger: str


class Lacking(NamedTuple):
    """A version that is known to exist, but whose body has not been seen."""

    ref: Ref
    turn: int


class Trees:
    """All trees of one controller's owned partitions. Methods answer what changed; nothing is called back."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._routes = tuple(routes)
        self._trees: dict[RootKey, dict[ObjectId, Entry]] = {}
        self._lacking: dict[RootKey, dict[ObjectId, Lacking]] = {}
        self._where: dict[tuple[str, str, str], set[RootKey]] = {}
        self._built: dict[RootKey, tuple[Json | None, tuple[Json, ...]]] = {}
        self._looked: dict[RootKey, int] = {}
        self._own: set[tuple[RootKey, ObjectId]] = set()
        self._graves = Graves()
        self._turn = 0
        self._arrivals = 0
        asked: dict[tuple[str, str], list[Projection]] = {}
        for route in self._routes:
            asked.setdefault((route.root_kind, route.kind.kind), []).append(route.projection)
        self._names = {pair: frozenset(item.name for item in found) for pair, found in asked.items()}
        self._projections = {pair: union(found) for pair, found in asked.items()}

    # --- looking ---

    def known(self) -> Iterable[RootKey]:
        return dict.fromkeys((*self._trees, *self._lacking))

    def view(self, key: RootKey) -> tuple[Json | None, tuple[Json, ...]] | None:
        """The root and the other objects, sorted by kind and name; None if nothing is known of the tree."""
        tree = self._trees.get(key)
        if tree is None:
            return (None, ()) if key in self._lacking else None
        self._looked[key] = self._arrivals
        built = self._built.get(key)
        if built is None:
            root_id = (key.kind, key.name)
            root = tree.get(root_id)
            rest = tuple(tree[object_id].obj for object_id in sorted(tree) if object_id != root_id)
            built = self._built[key] = (root.obj if root else None, rest)
        return built

    def root(self, key: RootKey) -> Json | None:
        """The root alone; this does not count as having looked at the tree."""
        entry = self._trees.get(key, {}).get((key.kind, key.name))
        return entry.obj if entry else None

    def kin(self, key: RootKey, kind: str) -> list[Json]:
        """The objects of one kind; this does not count as having looked at the tree."""
        return [entry.obj for (found, _), entry in self._trees.get(key, {}).items() if found == kind]

    def size(self) -> tuple[int, int, int]:
        """Trees, objects, and versions whose bodies have not been seen."""
        lacking = sum(map(len, self._lacking.values()))
        return len(self._trees), sum(map(len, self._trees.values())), lacking

    def lacking_kinds(self, key: RootKey) -> frozenset[str]:
        """Kinds of which the tree has an object that is there but whose body has not been seen."""
        lacking = self._lacking.get(key)
        return frozenset(kind for kind, _ in lacking) if lacking else frozenset()

    def lacking(self, key: RootKey) -> frozenset[Ref]:
        return frozenset(item.ref for item in self._lacking.get(key, {}).values())

    # --- news ---

    def begin_turn(self) -> None:
        """A re-read begins: what it does not meet is gone at its end."""
        self._turn += 1

    def end_turn(self) -> list[Change]:
        """The re-read is complete: drop what it did not meet, except own writes that the stream could not say yet."""
        changes = []
        for key, lacking in list(self._lacking.items()):
            for object_id in [object_id for object_id, item in lacking.items() if item.turn < self._turn]:
                self._clear_lacking(key, object_id)
        for key, tree in list(self._trees.items()):
            gone = [
                object_id
                for object_id, entry in tree.items()
                if entry.turn < self._turn and (entry.doubted or not entry.own)
            ]
            for object_id in gone:
                self._remove(key, object_id)
            if gone:
                changes.append(Change(key, f"{gone[0][0]} deleted while nobody looked"))
        return changes

    def apply(self, news: ObjectMessage, now: float) -> Change | None:
        """Take in what the stream says of an object; None if nobody need look because of it."""
        key, object_id = news.address.key, (news.address.kind, news.address.name)
        if news.op is Op.DELETED:
            return self._bury(key, object_id, news.uid, now)
        held = self._trees.get(key, {}).get(object_id)
        if self._graves.deleted_by_us(news.uid, now):
            return self._pass_over(key, object_id, held, news.uid)
        self._graves.rise(news.uid)
        if held is not None:
            held.turn = self._turn
        created = _created(news.body) if held is not None and held.own and held.uid != news.uid else ""
        match relation(held, news.uid, news.resource_version, created):
            case Relation.BEHIND:
                return None
            case Relation.ECHO:
                self._clear_lacking(key, object_id)
                self._confirm(key, object_id)
                return None
            case Relation.NEWS:
                return self._accept(key, object_id, news, now)

    def _accept(self, key: RootKey, object_id: ObjectId, news: ObjectMessage, now: float) -> Change | None:
        kind, name = object_id
        if news.ref or not covers(news.projection, self._names.get((key.kind, kind), ())):
            ref = Ref(kind, key.namespace, name, news.uid, news.resource_version)
            self._lacking.setdefault(key, {})[object_id] = Lacking(ref, self._turn)
            return None
        held = self._trees.get(key, {}).get(object_id)
        entry = Entry(news.uid, news.resource_version, news.body)
        why = trigger(kind, is_root=object_id == (key.kind, key.name), before=held, after=entry)
        if held is not None and held.uid != news.uid:
            self._graves.dig(held.uid, now, by_us=False)
        self._clear_lacking(key, object_id)
        self._place(key, object_id, entry)
        return Change(key, why)

    def _bury(self, key: RootKey, object_id: ObjectId, uid: str, now: float) -> Change | None:
        self._graves.dig(uid, now, by_us=False)
        lacking = self._lacking.get(key, {}).get(object_id)
        if lacking and lacking.ref.uid == uid:
            self._clear_lacking(key, object_id)
        held = self._trees.get(key, {}).get(object_id)
        if held is not None and held.uid == uid:
            self._remove(key, object_id)
            return Change(key, f"{object_id[0]} deleted")
        return self._pass_over(key, object_id, held, uid)

    def _pass_over(self, key: RootKey, object_id: ObjectId, held: Entry | None, gone: str) -> Change | None:
        """The stream speaks of a uid that is gone. Another one that it named earlier is gone too, an own write need not be."""
        if held is None or held.uid == gone or held.own:
            return None
        self._remove(key, object_id)
        return Change(key, f"{object_id[0]} deleted")

    # --- own writes and live reads ---

    def upsert(self, obj: Json, now: float, owned: Callable[[RootKey], bool]) -> list[RootKey]:
        """Take in what the API server answered, wherever it belongs by the routes; answers the trees it changed."""
        return [key for key in trees_of(self._routes, obj, self._parents) if owned(key) and self._learn(key, obj, now)]

    def remove(self, kind: str, namespace: str, name: str, uid: str, now: float) -> list[RootKey]:
        """The API server said that this uid is gone; news of it that come later are late."""
        self._graves.dig(uid, now, by_us=True)
        changed = []
        for key in list(self._where.get((kind, namespace, name), ())):
            if self._trees[key][kind, name].uid == uid:
                self._remove(key, (kind, name))
                changed.append(key)
        return changed

    def replace(self, key: RootKey, objects: Iterable[Json], now: float) -> None:
        """Bring a tree to what a live read showed, except for what arrived after somebody last looked at it: the read may have
        come before that.
        """
        looked = self._looked.get(key, self._arrivals)
        shown: set[ObjectId] = set()
        for obj in objects:
            shown.add((str(obj["kind"]), str(obj["metadata"]["name"])))
            self._learn(key, obj, now)
        for object_id, entry in list(self._trees.get(key, {}).items()):
            if object_id not in shown and entry.arrival <= looked:
                self._remove(key, object_id)

    def doubt(self, kind: str, now: float) -> bool:
        """A live list of `kind` is known to be up to date: whether own writes of it are overdue. Then a re-read decides."""
        found = False
        for key, object_id in self._own:
            entry = self._trees[key][object_id]
            if object_id[0] == kind and now - entry.since > OWN_WRITE_DOUBT_S and not entry.doubted:
                entry.doubted = found = True
        return found

    def drop(self, lost: Callable[[RootKey], bool]) -> None:
        """Forget the trees of partitions that are not ours any more."""
        for key in [key for key in self.known() if lost(key)]:
            for object_id in list(self._trees.get(key, ())):
                self._remove(key, object_id)
            self._lacking.pop(key, None)

    def _learn(self, key: RootKey, obj: Json, now: float) -> bool:
        metadata = obj["metadata"]
        uid, version = str(metadata["uid"]), str(metadata["resourceVersion"])
        object_id = (str(obj["kind"]), str(metadata["name"]))
        held = self._trees.get(key, {}).get(object_id)
        if self._graves.deleted(uid, now) or (held is not None and not _supersedes(held, uid, version, metadata)):
            return False
        projection = self._projections.get((key.kind, object_id[0]))
        if projection is None:
            return False
        if held is not None and held.uid != uid:
            self._graves.dig(held.uid, now, by_us=True)  # the API server has another one under this name
        entry = Entry(uid, version, obj=project(obj, projection))
        entry.own, entry.since = True, now
        lacking = self._lacking.get(key, {}).get(object_id)
        if lacking and (lacking.ref.uid != uid or not newer(lacking.ref.resource_version, version)):
            # The stream has said this version already, only without its body.
            entry.own = (lacking.ref.uid, lacking.ref.resource_version) != (uid, version)
            self._clear_lacking(key, object_id)
        self._place(key, object_id, entry)
        return True

    def _parents(self, root_kind: str, namespace: str, cluster: str) -> Iterable[RootKey]:
        held = self._where.get((kinds.RAYCLUSTER.kind, namespace, cluster), ())
        return [key for key in held if key.kind == root_kind]

    # --- the store ---

    def _place(self, key: RootKey, object_id: ObjectId, entry: Entry) -> None:
        self._arrivals += 1
        entry.arrival, entry.turn = self._arrivals, self._turn
        self._trees.setdefault(key, {})[object_id] = entry
        self._where.setdefault((object_id[0], key.namespace, object_id[1]), set()).add(key)
        self._built.pop(key, None)
        if entry.own:
            self._own.add((key, object_id))
        else:
            self._own.discard((key, object_id))

    def _confirm(self, key: RootKey, object_id: ObjectId) -> None:
        entry = self._trees[key][object_id]
        entry.own = entry.doubted = False
        self._own.discard((key, object_id))

    def _remove(self, key: RootKey, object_id: ObjectId) -> None:
        tree = self._trees[key]
        del tree[object_id]
        self._own.discard((key, object_id))
        self._built.pop(key, None)
        where = (object_id[0], key.namespace, object_id[1])
        keys = self._where[where]
        keys.discard(key)
        if not keys:
            del self._where[where]
        if not tree:
            del self._trees[key]
            self._looked.pop(key, None)

    def _clear_lacking(self, key: RootKey, object_id: ObjectId) -> None:
        lacking = self._lacking.get(key)
        if lacking is None or object_id not in lacking:
            return
        del lacking[object_id]
        if not lacking:
            del self._lacking[key]


def _supersedes(held: Entry, uid: str, version: str, metadata: Json) -> bool:
    """Whether an answer of the API server goes over what is held under its name."""
    if held.uid == uid:
        return newer(version, held.rv)
    return str(metadata.get("creationTimestamp", "")) >= str(held.obj["metadata"].get("creationTimestamp", ""))


def _created(body: bytes) -> str:
    return str(orjson.loads(body)["metadata"].get("creationTimestamp", "")) if body else ""
