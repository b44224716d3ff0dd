"""An API server core in the test's own process, with a clock and names that the test sets."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from raybus_localkube.server.core import Core
from raybus_localkube.server.messages import Query, Request, Response, Stream, User
from raybus_localkube.store.journal import Journal, MemoryJournal
from raybus_localkube.store.store import Store

ADMIN = User("admin", ("system:masters",))
BEGIN = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)


class ScriptedEnvironment:
    """Time stands until it is moved; uids and suffixes count up."""

    def __init__(self) -> None:
        self.time = BEGIN
        self.count = 0

    def now(self) -> datetime:
        return self.time

    def advance(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)

    def uid(self) -> str:
        self.count += 1
        return f"00000000-0000-0000-0000-{self.count:012}"

    def suffix(self) -> str:
        self.count += 1
        return f"{self.count:05}"

    def pick(self, limit: int) -> int:
        return 7 % limit


class Api:
    """Requests to a core; answers are decoded."""

    def __init__(self, journal: Journal | None = None) -> None:
        self.env = ScriptedEnvironment()
        self.failures: list[BaseException] = []
        self.store = Store(journal or MemoryJournal(), self.failures.append)
        self.core = Core(self.store, self.env)

    async def send(
        self, method: str, path: str, body: Any = None, *, query: dict[str, str] | None = None, content_type: str | None = None,
        accept: str = "application/json", user: User = ADMIN,
    ) -> Response | Stream:  # fmt: skip
        data = b"" if body is None else body if isinstance(body, bytes) else orjson.dumps(body)
        values = {key: [value] for key, value in (query or {}).items()}
        return await self.core.handle(Request(method, path, Query(values), data, user, accept, content_type))

    async def ask(self, method: str, path: str, body: Any = None, **rest: Any) -> tuple[int, Any]:
        """Status and decoded body."""
        answer = await self.send(method, path, body, **rest)
        assert isinstance(answer, Response)
        return answer.status, orjson.loads(answer.body)

    async def create(self, path: str, body: Any) -> dict[str, Any]:
        status, answer = await self.ask("POST", path, body)
        assert status == 201, answer
        return dict(answer)

    async def watch(self, path: str, **query: str) -> Watched:
        answer = await self.send("GET", path, query={"watch": "true", "timeoutSeconds": "5", **query})
        assert isinstance(answer, Stream), answer
        return Watched(answer)


class Watched:
    """The frames of a watch, one at a time."""

    def __init__(self, stream: Stream) -> None:
        self._parts = stream.parts
        self._frames: list[Any] = []

    async def next(self) -> tuple[str, dict[str, Any]]:
        while not self._frames:
            part = await anext(self._parts)
            self._frames += [orjson.loads(line) for line in part.splitlines()]
        frame = self._frames.pop(0)
        return frame["type"], frame["object"]

    async def close(self) -> None:
        await self._parts.aclose()  # an async generator


CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


async def with_default_namespace(api: Api) -> Api:
    await api.create("/api/v1/namespaces", {"metadata": {"name": "default"}})
    return api


def config_map(name: str, labels: dict[str, str] | None = None, **data: str) -> dict[str, Any]:
    meta: dict[str, Any] = {"name": name}
    if labels:
        meta["labels"] = labels
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}


def pod(name: str, **spec: Any) -> dict[str, Any]:
    containers = [{"name": "main", "image": "example/app:1"}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": containers, **spec}}
