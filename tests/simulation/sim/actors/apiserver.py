"""The API server: localkube's own core and store in the simulation's time. Every write is shown to the world at once.

What may live here: how requests reach the core, and the true state as dicts. No semantics of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from random import Random
from typing import Any

import orjson

from raybus.api import crds
from raybus.domain.identity import ALPHABET, SUFFIX_LENGTH
from raybus_localkube.server import bootstrap
from raybus_localkube.server.core import Core
from raybus_localkube.server.messages import Answer, Query, Request, Response, Stream, User
from raybus_localkube.store.journal import MemoryJournal
from raybus_localkube.store.records import Record
from raybus_localkube.store.store import Store

Json = dict[str, Any]
MERGE = "application/merge-patch+json"
GROUP = ("system:masters",)


@dataclass(frozen=True, slots=True)
class Writer:
    """Who writes, and how: `who` is the process, `body` what it sent."""

    who: str
    method: str
    path: str
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Change:
    """One write that took effect. `type` is ADDED, MODIFIED or DELETED; `old` is None where it is new."""

    type: str
    resource: str
    obj: Json
    old: Json | None
    writer: Writer

    @property
    def name(self) -> str:
        return str(self.obj["metadata"]["name"])

    @property
    def target(self) -> str:
        return f"{self.resource.partition('.')[0]}/{self.name}"


class Environment:
    """Time and chance of the API server."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self.now = now
        self.chance = Random(0)

    def uid(self) -> str:
        text = f"{self.chance.getrandbits(128):032x}"
        return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-a{text[17:20]}-{text[20:]}"

    def suffix(self) -> str:
        return "".join(self.chance.choice(ALPHABET) for _ in range(SUFFIX_LENGTH))

    def pick(self, limit: int) -> int:
        return self.chance.randrange(limit)


class SimStore(Store):
    """A commit takes no time of its own: requests have their way to go anyway."""

    changed: Callable[[str, str, Json, Json | None], None]

    def __init__(self) -> None:
        super().__init__(MemoryJournal(), _never)
        self.truth: dict[str, dict[tuple[str, str], Json]] = {}
        self.changed = lambda *_arguments: None

    def put(self, resource: str, obj: Json) -> Record:
        record = super().put(resource, obj)
        held = self.truth.setdefault(resource, {})
        old = held.get((record.namespace, record.name))
        # What the caller has in its hands may still be changed by it.
        held[record.namespace, record.name] = new = orjson.loads(record.body)
        self.changed("MODIFIED" if old else "ADDED", resource, new, old)
        return record

    def remove(self, resource: str, previous: Record, obj: Json) -> Record:
        record = super().remove(resource, previous, obj)
        old = self.truth[resource].pop((record.namespace, record.name))
        self.changed("DELETED", resource, old, old)
        return record

    def _schedule(self) -> None:
        """Committed at once; Store._flush wants a future to complete."""
        self._commit = _DONE
        self._flush()


class _Done:
    def set_result(self, _result: None) -> None:
        pass


_DONE: Any = _Done()


def _never(error: BaseException) -> None:
    raise error


class ApiServer:
    """`answer` for requests of the product, `ask` for actors; `on_change` gets every write that took effect."""

    def __init__(self, now: Callable[[], datetime], on_change: Callable[[Change], None]) -> None:
        self.env = Environment(now)
        self.store = SimStore()
        self.store.changed = self._changed
        self.core = Core(self.store, self.env)
        self._on_change = on_change
        self._writer = Writer("bootstrap", "", "")
        bootstrap.ensure(self.core, 6443)
        for definition in crds.build():
            self.ask("bootstrap", "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)

    def _changed(self, type_: str, resource: str, obj: Json, old: Json | None) -> None:
        self._on_change(Change(type_, resource, obj, old, self._writer))

    # Looking

    def all(self, resource: str) -> list[Json]:
        """The objects of a resource as they truly are, sorted; never modify them."""
        held = self.store.truth.get(resource, {})
        return [held[key] for key in sorted(held)]

    def get(self, resource: str, namespace: str, name: str) -> Json | None:
        return self.store.truth.get(resource, {}).get((namespace, name))

    # Requests

    def answer(
        self, who: str, method: str, path: str, query: Mapping[str, object] | None, body: bytes, content_type: str | None
    ) -> Answer:  # fmt: skip
        """What the core answers, at once."""
        values = {
            key: [str(value).lower() if isinstance(value, bool) else str(value)] for key, value in (query or {}).items()
        }
        before, self._writer = self._writer, Writer(who, method, path, body)
        request = Request(method, path, Query(values), body, User(who, GROUP), "application/json", content_type)
        work = self.core.handle(request)
        try:
            work.send(None)
        except StopIteration as stop:
            return stop.value
        finally:
            self._writer = before
        raise AssertionError(f"the API server waits in {method} {path}")

    def put(self, who: str, resource: str, obj: Json) -> None:
        """Store an object as a trusted component of the cluster says it is."""
        before, self._writer = self._writer, Writer(who, "PUT", resource)
        try:
            self.store.put(resource, {**obj, "metadata": dict(obj["metadata"])})
        finally:
            self._writer = before

    def ask(self, who: str, method: str, path: str, body: Any = None, **query: str) -> Json:
        """A request of an actor, which has to succeed; raises Refused otherwise."""
        data = b"" if body is None else orjson.dumps(body)
        content_type = MERGE if method == "PATCH" else "application/json"
        found = self.answer(who, method, path, query, data, content_type if data else None)
        assert not isinstance(found, Stream)
        decoded: Json = orjson.loads(found.body)
        if found.status >= 300:
            raise Refused(found, decoded)
        return decoded


class Refused(Exception):
    """An actor's request was not done."""

    def __init__(self, response: Response, status: Json) -> None:
        super().__init__(f"{response.status}: {status.get('message')}")
        self.code = response.status
