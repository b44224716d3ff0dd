"""Everything of one kind, then every change of it: paged list and watch, for as long as the caller iterates."""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from raybus.domain.kinds import Kind
from raybus.kube import errors, watchplan
from raybus.kube.client import PAGE_SIZE, KubeClient

WATCH_S = (1800, 3600)  # the server ends a watch after a time between these, so that watches do not end together
SILENCE_S = 150.0  # bookmarks come about every minute; a link that brings nothing for longer is dead
RELIST_S = 1800.0


@dataclass(frozen=True, slots=True)
class ListBegun:
    """A list begins, from nothing; pages of an earlier one that did not complete are void."""

    why: str


@dataclass(frozen=True, slots=True)
class Listed:
    """A page of the list."""

    items: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class ListComplete:
    """All there was at this resourceVersion has been listed; changes follow."""

    resource_version: str


@dataclass(frozen=True, slots=True)
class Watching:
    """The server has accepted the watch (again): changes after this resourceVersion will come."""

    resource_version: str


@dataclass(frozen=True, slots=True)
class Changed:
    type: Literal["ADDED", "MODIFIED", "DELETED"]
    obj: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Bookmark:
    """Nothing up to this resourceVersion is missing."""

    resource_version: str


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The list or watch failed and will be tried again after `delay_s`; until then nothing is known of new changes."""

    error: errors.KubeError
    delay_s: float


ListWatchEvent = ListBegun | Listed | ListComplete | Watching | Changed | Bookmark | Interrupted


class ListWatch:
    """Iterate it, once, under contextlib.aclosing or until cancelled.

    It never ends by itself and never raises KubeError: failures are told as Interrupted and retried. A watch that was cut
    resumes where it was; where the server forgot that place (410) everything is listed again. So it is every `relist_s` seconds,
    in order that nothing stays lost for ever; None: never.
    """

    def __init__(
        self,
        client: KubeClient,
        kind: Kind,
        *,
        namespace: str | None = None,
        selector: str = "",
        field_selector: str = "",
        page_size: int = PAGE_SIZE,
        relist_s: float | None = RELIST_S,
        chance: random.Random | None = None,
    ) -> None:
        self._client = client
        self._kind = kind
        self._namespace = namespace
        self._selector = selector
        self._field_selector = field_selector
        self._page_size = page_size
        self._relist_s = relist_s
        self._chance = chance or random.Random()  # noqa: S311 - spreads load, guards nothing

    async def __aiter__(self) -> AsyncGenerator[ListWatchEvent]:
        loop = asyncio.get_running_loop()
        position = watchplan.Position()
        why = "start"
        relist_at = loop.time()
        while True:
            try:
                if not position.resource_version:
                    yield ListBegun(why)
                    async with contextlib.aclosing(self._list()) as listing:
                        async for listed in listing:
                            yield listed
                            position = (
                                position.listed(listed.resource_version)
                                if isinstance(listed, ListComplete)
                                else position
                            )
                    relist_at = loop.time() + (self._relist_s if self._relist_s is not None else math.inf)
                brought = False
                async with contextlib.aclosing(self._watch(position.resource_version, relist_at)) as watching:
                    async for version, event in watching:
                        if not isinstance(event, Watching):
                            brought = True
                            position = position.reached(version)
                        yield event
                position, following = watchplan.after_end(
                    position,
                    relist_due=loop.time() >= relist_at,
                    brought=brought,
                    chance=self._chance.random(),
                )
            except errors.KubeError as error:
                position, following = watchplan.after_error(position, error, self._chance.random())
                yield Interrupted(error, following.delay_s)
            why = following.why
            if following.delay_s:
                await asyncio.sleep(following.delay_s)

    async def _list(self) -> AsyncGenerator[Listed | ListComplete]:
        reached = ""
        pages = self._client.list_pages(
            self._kind,
            self._namespace,
            label_selector=self._selector,
            field_selector=self._field_selector,
            page_size=self._page_size,
        )
        async with contextlib.aclosing(pages):
            async for items, version in pages:
                reached = version
                if items:
                    yield Listed(items)
        yield ListComplete(reached)

    async def _watch(self, version: str, relist_at: float) -> AsyncGenerator[tuple[str, Watching | Changed | Bookmark]]:
        """Changes after `version`, each with the resourceVersion reached, until the server ends or a relist is due."""
        loop = asyncio.get_running_loop()
        remaining = relist_at - loop.time()
        query: dict[str, str | int | bool] = {
            "watch": True,
            "allowWatchBookmarks": True,
            "resourceVersion": version,
            "timeoutSeconds": max(1, math.ceil(min(self._chance.randint(*WATCH_S), remaining))),
        }
        if self._selector:
            query["labelSelector"] = self._selector
        if self._field_selector:
            query["fieldSelector"] = self._field_selector
        path = self._kind.path(self._namespace)
        async with self._client.open_stream(path, query, idle_timeout_s=SILENCE_S) as lines:
            yield version, Watching(version)
            async for line in lines:
                if line:
                    yield self._decoded(line)
                if loop.time() >= relist_at:  # a server that does not keep the time it was given
                    return

    def _decoded(self, line: bytes) -> tuple[str, Changed | Bookmark]:
        try:
            frame = orjson.loads(line)
            type_, obj = frame["type"], frame["object"]
            version = "" if type_ == "ERROR" else str(obj["metadata"].get("resourceVersion") or "")
        except (orjson.JSONDecodeError, KeyError, TypeError) as error:
            raise errors.NoAnswer(f"watch of {self._kind.plural}: a frame is cut or no frame: {error}") from error
        if type_ == "ERROR":
            raise errors.from_status(obj)
        if type_ == "BOOKMARK":
            return version, Bookmark(version)
        return version, Changed(type_, obj)
