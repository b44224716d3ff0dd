"""Objects in memory, changes in a journal, one version counter.

Writes happen at once in memory and are committed together at the end of the loop's turn; nothing is answered or shown to a
watcher before `committed()` returned. All of it runs on one event loop, so no write sees another one half done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from raybus_localkube.store.history import History
from raybus_localkube.store.journal import Journal, Row
from raybus_localkube.store.records import Change, Json, Record

Objects = dict[str, Record]


class Store:
    def __init__(self, journal: Journal, on_failure: Callable[[BaseException], None]) -> None:
        """`on_failure` is called if a commit fails; the process has to end, since memory and journal differ then."""
        self._journal = journal
        self._on_failure = on_failure
        self._objects: dict[str, dict[str, Objects]] = {}
        self._histories: dict[str, History] = {}
        self._rows: list[Row] = []
        self._changes: list[tuple[str, Change]] = []
        self._commit: asyncio.Future[None] | None = None
        self.closed = False
        self.rv, rows = journal.load()
        self.started_rv = self.rv
        for resource, namespace, name, rv, body in rows:
            assert body is not None
            meta = Record(namespace, name, "", rv, {}, body).load()["metadata"]
            record = Record(namespace, name, meta["uid"], rv, meta.get("labels") or {}, body)
            self._objects.setdefault(resource, {}).setdefault(namespace, {})[name] = record

    def get(self, resource: str, namespace: str, name: str) -> Record | None:
        return self._objects.get(resource, {}).get(namespace, {}).get(name)

    def records(self, resource: str, namespace: str | None = None) -> list[Record]:
        """All objects of a resource, of one namespace or of all (None), ordered by namespace and name."""
        by_namespace = self._objects.get(resource, {})
        if namespace is not None:
            found = by_namespace.get(namespace, {})
            return [found[name] for name in sorted(found)]
        return [
            objects[name] for ns in sorted(by_namespace) for objects in (by_namespace[ns],) for name in sorted(objects)
        ]

    def resources(self) -> Iterator[str]:
        return iter(tuple(self._objects))

    def snapshot(self, resource: str, namespace: str | None, rv: int) -> list[Record] | None:
        """The objects as they were at version `rv`; None if history does not reach back that far."""
        history = self.history(resource)
        if rv < history.oldest:
            return None
        state = {(record.namespace, record.name): record for record in self.records(resource, namespace)}
        pending = [change for name, change in self._changes if name == resource]
        for change in reversed([*history.after(rv), *pending]):
            key = (change.record.namespace, change.record.name)
            if namespace is not None and key[0] != namespace:
                continue
            if change.previous is None:
                state.pop(key, None)
            else:
                state[key] = change.previous
        return [state[key] for key in sorted(state)]

    def history(self, resource: str) -> History:
        found = self._histories.get(resource)
        if found is None:
            found = self._histories[resource] = History(self.started_rv)
        return found

    def put(self, resource: str, obj: Json) -> Record:
        """Store a new state of an object under the next version, which is written into its metadata."""
        self.rv += 1
        obj["metadata"]["resourceVersion"] = str(self.rv)
        record = Record.of(obj, self.rv)
        objects = self._objects.setdefault(resource, {}).setdefault(record.namespace, {})
        previous = objects.get(record.name)
        objects[record.name] = record
        self._note(resource, Change("MODIFIED" if previous else "ADDED", self.rv, record, previous), record.body)
        return record

    def remove(self, resource: str, previous: Record, obj: Json) -> Record:
        """Delete an object whose last state is `obj`; it gets the deletion's version."""
        self.rv += 1
        obj["metadata"]["resourceVersion"] = str(self.rv)
        record = Record.of(obj, self.rv)
        objects = self._objects[resource][record.namespace]
        del objects[record.name]
        if not objects:
            del self._objects[resource][record.namespace]
        self._note(resource, Change("DELETED", self.rv, record, previous), None)
        return record

    def rewrite(self, resource: str, record: Record) -> None:
        """Replace the bytes of an object without a new version: the same object in the form of a changed schema."""
        self._objects[resource][record.namespace][record.name] = record
        self._rows.append((resource, record.namespace, record.name, record.rv, record.body))
        self._schedule()

    def _note(self, resource: str, change: Change, body: bytes | None) -> None:
        record = change.record
        self._rows.append((resource, record.namespace, record.name, record.rv, body))
        self._changes.append((resource, change))
        self._schedule()

    def _schedule(self) -> None:
        if self._commit is None:
            loop = asyncio.get_running_loop()
            self._commit = loop.create_future()
            loop.call_soon(self._flush)

    def _flush(self) -> None:
        commit, self._commit = self._commit, None
        if commit is None:  # close() was quicker
            return
        rows, self._rows = self._rows, []
        changes, self._changes = self._changes, []
        try:
            self._journal.write(rows, self.rv)
        except Exception as error:  # noqa: BLE001 - whatever it was, memory and journal differ now
            commit.set_exception(error)
            commit.exception()
            self._on_failure(error)
            return
        grouped: dict[str, list[Change]] = {}
        for resource, change in changes:
            grouped.setdefault(resource, []).append(change)
        for resource, group in grouped.items():
            self.history(resource).append(group)
        commit.set_result(None)

    async def committed(self) -> None:
        """Return once everything written so far is in the journal. Raises what made the commit fail."""
        if self._commit is not None:
            await asyncio.shield(self._commit)

    def close(self) -> None:
        if self._commit is not None:
            self._flush()
        self.closed = True
        for history in self._histories.values():
            history.wake()
        self._journal.close()
