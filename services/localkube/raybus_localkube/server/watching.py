"""Watch: what happened since a version, then what happens; bookmarks, WatchList, selector transitions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import orjson

from raybus_localkube.kinds.resource import Call
from raybus_localkube.server import errors
from raybus_localkube.server.messages import Query
from raybus_localkube.server.reading import Selection, parse_rv, read_number
from raybus_localkube.server.representation import Presenter
from raybus_localkube.store.records import Change, Record

Json = dict[str, Any]
BOOKMARK_S = 60.0
SHORTEST_S, LONGEST_S = 1800, 3600
"""A watch without timeoutSeconds ends after a time between these, so that clients spread."""
INITIAL_END = {"k8s.io/initial-events-end": "true"}


@dataclass(frozen=True, slots=True)
class WatchOptions:
    rv: int
    seconds: float
    bookmarks: bool
    initial: bool
    """Send the present objects first (resourceVersion unset or 0, or sendInitialEvents)."""
    mark_end: bool
    """Send the bookmark that ends the initial events."""


def read_options(call: Call, query: Query) -> WatchOptions:
    given = query.get("resourceVersion")
    match = query.get("resourceVersionMatch")
    causes = []
    streaming = query.flag("sendInitialEvents")
    if "sendInitialEvents" in query:
        if match != "NotOlderThan":
            message = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            causes.append(errors.forbidden_field("resourceVersionMatch", message))
    elif match:
        message = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        causes.append(errors.forbidden_field("resourceVersionMatch", message))
    if causes:
        raise errors.invalid_object("meta.k8s.io", "ListOptions", "", causes)
    rv = parse_rv(given, 500)
    seconds = read_number(query, "timeoutSeconds") or SHORTEST_S + call.env.pick(LONGEST_S - SHORTEST_S)
    bookmarks = query.flag("allowWatchBookmarks")
    initial = streaming or (rv == 0 and "sendInitialEvents" not in query)
    return WatchOptions(rv, float(seconds), bookmarks, initial, streaming and bookmarks)


class Watcher:
    """One open watch: what `present` shows of the objects of a namespace (None: of all) that `selection` takes."""

    def __init__(self, present: Presenter, namespace: str | None, selection: Selection, options: WatchOptions) -> None:
        self.present, self.namespace = present, namespace
        self.store, self.resource, self.version = present.call.store, present.resource, present.version
        self.selection, self.options = selection, options
        self.form = (present.version, present.representation.form, present.meta_version, present.include)
        self.first = True
        self.rv = options.rv

    def frame(self, kind: str, obj: bytes) -> bytes:
        frame = self.present.frame(kind, obj, self.first)
        self.first = False
        return frame

    def rendered(self, record: Record) -> bytes:
        return self.resource.render(record, self.version)

    def start(self) -> list[bytes]:
        """The frames that stand at the beginning. Also checks the version."""
        store = self.store
        if self.options.rv > store.rv:
            raise errors.too_large_version(self.options.rv, store.rv)
        if not self.options.initial:
            self.rv = self.options.rv or store.rv
            return []
        self.rv = store.rv
        records = [r for r in store.records(self.resource.key, self.namespace) if self.selection.matches(r)]
        frames = [self.frame("ADDED", self.rendered(record)) for record in records]
        if self.options.mark_end:
            frames.append(self.frame("BOOKMARK", self.bookmark(INITIAL_END)))
        return frames

    def bookmark(self, annotations: Json | None = None) -> bytes:
        meta: Json = {"resourceVersion": str(self.rv)}
        if annotations:
            meta["annotations"] = annotations
        return self.resource.head(self.version) + orjson.dumps({"metadata": meta})[1:]

    def too_old(self, oldest: int) -> bytes:
        status = errors.expired(f"too old resource version: {self.rv} ({oldest})").status()
        return b'{"type":"ERROR","object":' + orjson.dumps(status) + b"}\n"

    def event(self, change: Change) -> bytes | None:
        """The frame of a change as this watch sees it; None if it does not."""
        record, previous = change.record, change.previous
        if self.namespace is not None and record.namespace != self.namespace:
            return None
        if not self.selection:
            return self.shared(change)
        was = previous is not None and self.selection.matches(previous)
        now = change.type != "DELETED" and self.selection.matches(record)
        if now and was:
            return self.shared(change)
        if now:
            return self.frame("ADDED", self.rendered(record))
        if was:
            if change.type == "DELETED":
                return self.shared(change)
            assert previous is not None
            last = previous.load()
            last["metadata"]["resourceVersion"] = str(change.rv)
            return self.frame("DELETED", self.rendered(Record.of(last, change.rv)))
        return None

    def shared(self, change: Change) -> bytes:
        """The frame that all watchers of this form share; the first of a Table differs, since it holds the columns."""
        if self.first and self.form[1] == "table":
            return self.frame(change.type, self.rendered(change.record))
        frame = change.frames.get(self.form)
        if frame is None:
            frame = change.frames[self.form] = self.frame(change.type, self.rendered(change.record))
        self.first = False
        return frame

    async def stream(self, frames: list[bytes]) -> AsyncIterator[bytes]:
        if frames:
            yield b"".join(frames)
        history = self.store.history(self.resource.key)
        loop = asyncio.get_running_loop()
        ends = loop.time() + self.options.seconds
        marked = loop.time()
        while True:
            if self.rv < history.oldest:
                yield self.too_old(history.oldest)
                return
            changes = history.after(self.rv)
            if changes:
                self.rv = changes[-1].rv
                found = [frame for change in changes if (frame := self.event(change)) is not None]
                if found:
                    yield b"".join(found)
                    continue
            now = loop.time()
            if self.options.bookmarks and now - marked >= BOOKMARK_S:
                marked = now
                await self.store.committed()
                self.rv = max(self.rv, self.store.rv)
                yield self.frame("BOOKMARK", self.bookmark())
                continue
            if now >= ends or self.closing():
                return
            next_mark = marked + BOOKMARK_S if self.options.bookmarks else ends
            await history.wait(max(0.0, min(ends, next_mark) - now))

    def closing(self) -> bool:
        return self.store.closed
