"""Reads objects whose bodies were too large for a message, one after the other, and hands them to the mirror."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from raybus.bus.entry import Ref
from raybus.decide.actions import Json
from raybus.decide.tree import RootKey
from raybus.domain.kinds import kind_named
from raybus.kube.errors import KubeError, NotFound
from raybus.observe.logging import get_logger
from raybus.runtime.backoff import delay
from raybus.runtime.ports import Kube, Mirror

ATTEMPTS_MAX = 12  # some two minutes; the next relist of the gateway asks again


class ReferenceReader:
    """`want` is Mirror's on_ref; `learned` is Mirror.learned. Until an object is read, its kind counts as incomplete."""

    def __init__(self, kube: Kube, mirror: Mirror, learned: Callable[[Json], None]) -> None:
        self._kube = kube
        self._mirror = mirror
        self._learned = learned
        self._waiting: dict[tuple[str, str, str], Ref] = {}  # the newest reference per object
        self._wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._log = get_logger()

    def want(self, _key: RootKey, ref: Ref) -> None:
        self._waiting[ref.kind, ref.namespace, ref.name] = ref
        self._wanted.set()

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="reference reader")

    async def close(self) -> None:
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            while self._waiting:
                await self._read(self._waiting.pop(next(iter(self._waiting))))

    async def _read(self, ref: Ref) -> None:
        for attempt in range(1, ATTEMPTS_MAX + 1):
            try:
                self._learned(await self._kube.get(kind_named(ref.kind), ref.namespace, ref.name))
                return
            except NotFound:
                self._mirror.deleted(ref.kind, ref.namespace, ref.name, ref.uid)
                return
            except KubeError as error:
                self._log.warning("reading a large object failed", kind=ref.kind, name=ref.name, error=error.message)
            await asyncio.sleep(delay(attempt))
