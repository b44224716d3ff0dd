"""An asyncio event loop without sockets: time is virtual and jumps to the next timer.

Every callback belongs to a simulated process. Within one process callbacks run in the order in which asyncio promises to run
them; between processes the order of one instant is drawn from the seed. A killed process never runs again: no `finally`, no
`except`, as with kill -9. A frozen one keeps what is due until it thaws.

What may live here: the loop and the processes. Nothing about Raybus.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import itertools
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, Self

BEGIN = 1000.0
TICK_S = 1e-6  # time goes on, if only a little: else who waits for the rest of a rounding error would wait for ever
STEPS_MAX = 1_500_000  # callbacks of one schedule
INSTANT_MAX = 30_000  # callbacks without time going on


class HotLoopError(Exception):
    """So many callbacks ran that somebody must be spinning."""


class ProcessKilled(BaseException):
    """Raised where a killed process would go on; nothing catches it."""


class Handle:
    """A callback that is to run: the part of asyncio's Handle and TimerHandle that anybody uses."""

    __slots__ = ("_cancelled", "_when", "args", "callback", "context", "process")

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context,
        process: Process,
        when: float,
    ) -> None:
        self.callback, self.args, self.context, self.process = callback, args, context, process
        self._when = when
        self._cancelled = False

    def cancel(self) -> None:
        self._cancelled = True
        self.args = ()

    def cancelled(self) -> bool:
        return self._cancelled

    def when(self) -> float:
        return self._when


class SimFuture(asyncio.Future[Any]):
    """Sets of futures are walked in an order that depends on their hashes, so these are numbers, not addresses."""

    def __new__(cls, *_arguments: object, loop: SimLoop, **_named: object) -> Self:
        self = super().__new__(cls)
        self.number = next(loop.numbers)
        return self

    def __hash__(self) -> int:
        return self.number


class SimTask(asyncio.Task[Any]):
    """As SimFuture; knows its process."""

    def __new__(cls, *_arguments: object, loop: SimLoop, **_named: object) -> Self:
        self = super().__new__(cls)
        self.number = next(loop.numbers)
        return self

    def __hash__(self) -> int:
        return self.number


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


_process: contextvars.ContextVar[Process] = contextvars.ContextVar("process")


class Process:
    """What shares one fate: a service, an API server, a kubelet. `ready` holds its due callbacks."""

    def __init__(self, loop: SimLoop, name: str) -> None:
        self.loop = loop
        self.name = name
        self.alive = True
        self.frozen = False
        self.ready: deque[Handle] = deque()
        self.context = contextvars.copy_context()
        self.context.run(_process.set, self)

    def spawn(self, work: Coroutine[Any, Any, Any], name: str = "") -> asyncio.Task[Any]:
        return self.loop.create_task(work, name=name or self.name, context=self.context.copy())

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> Handle:
        return self.loop.call_at(self.loop.now + delay, callback, *args, context=self.context)

    def kill(self) -> None:
        """As kill -9. What it awaited is kept alive, because even collecting it would run code of a dead process."""
        self.alive = False
        graves = self.loop.graves
        graves.extend(self.ready)
        graves.extend(task for task in asyncio.all_tasks(self.loop) if getattr(task, "process", None) is self)
        self.ready.clear()
        self.loop.due.pop(self, None)

    def freeze(self) -> None:
        self.frozen = True
        self.loop.due.pop(self, None)

    def thaw(self) -> None:
        self.frozen = False
        if self.ready:
            self.loop.due[self] = None


def current_process() -> Process:
    return _process.get()


class SimLoop(asyncio.AbstractEventLoop):
    """`run(coroutine)` or `run_until(when)`; `chance` decides which process goes first. One at a time per thread."""

    def __init__(self) -> None:
        self.now = BEGIN
        self.chance = Random(0)
        self.numbers = itertools.count(1)  # of futures and tasks; of this loop, for what ran before it must not show
        self.steps = 0
        self.due: dict[Process, None] = {}  # processes with due callbacks, in the order in which they became due
        self.graves: list[object] = []
        self.failures: list[dict[str, Any]] = []
        self._timers: list[tuple[float, int, Handle]] = []
        self._order = itertools.count()
        self._instant = 0
        self.outside = self.running = Process(self, "outside")

    # What asyncio calls

    def time(self) -> float:
        return self.now

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Handle:
        if context is None:
            context = contextvars.copy_context()
        process = context.get(_process, self.outside)
        handle = Handle(callback, args, context, process, self.now)
        if process.alive:
            process.ready.append(handle)
            if not process.frozen:
                self.due[process] = None
        else:
            self.graves.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Handle:
        return self.call_at(self.now + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Handle:
        if context is None:
            context = contextvars.copy_context()
        handle = Handle(callback, args, context, context.get(_process, self.outside), when)
        heapq.heappush(self._timers, (when, next(self._order), handle))
        return handle

    def pause(self, seconds: float) -> asyncio.Future[None]:
        """As asyncio.sleep, for waits that nobody looks at: half of all callbacks are these."""
        future: asyncio.Future[None] = asyncio.Future(loop=self)
        process, when = self.running, self.now + seconds
        heapq.heappush(
            self._timers, (when, next(self._order), Handle(_wake, (future,), process.context, process, when))
        )
        return future

    def create_future(self) -> asyncio.Future[Any]:
        return SimFuture(loop=self)

    def create_task(
        self, coro: Coroutine[Any, Any, Any], *, name: str | None = None, context: contextvars.Context | None = None
    ) -> asyncio.Task[Any]:
        task = SimTask(coro, loop=self, name=name or "task", context=context)
        task.process = (context if context is not None else contextvars.copy_context()).get(_process, self.outside)
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.failures.append(context)

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.failures.append(context)

    # Running

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run until `work`, outside of all processes, has ended; its result."""
        task = self.create_task(work, context=self.outside.context.copy())
        before = events._get_running_loop()
        events._set_running_loop(self)
        try:
            while not task.done():
                self._turn()
        finally:
            events._set_running_loop(before)
        return task.result()

    def _turn(self) -> None:
        """What is due of one process, or else the way to the next timer."""
        if not self.due:
            self._advance()
            return
        due = self.due
        process = next(iter(due))
        if len(due) > 1:
            process = next(itertools.islice(due, int(self.chance.random() * len(due)), None))
        del due[process]
        self.running = process
        ready = process.ready
        count = len(ready)
        for _ in range(count):
            handle = ready.popleft()
            if not handle._cancelled:
                handle.context.run(handle.callback, *handle.args)
                if not process.alive or process.frozen:
                    break
        self.steps += count
        self._instant += count
        if ready and process.alive and not process.frozen:
            due[process] = None
        if self._instant > INSTANT_MAX or self.steps > STEPS_MAX:
            raise HotLoopError(
                f"{self._instant} callbacks at {self.now:.3f} s, {self.steps} in all, last in {process.name}"
            )

    def _advance(self) -> None:
        timers = self._timers
        self._instant = 0
        while timers:
            when, _, handle = heapq.heappop(timers)
            if handle._cancelled:
                continue
            if not handle.process.alive:
                self.graves.append(handle)
                continue
            self.now = max(when, self.now + TICK_S)
            self._wake(handle)
            while timers and timers[0][0] <= self.now:
                self._wake(heapq.heappop(timers)[2])
            return
        raise RuntimeError("nothing will ever happen again")

    def _wake(self, handle: Handle) -> None:
        process = handle.process
        if handle._cancelled:
            return
        if not process.alive:
            self.graves.append(handle)
            return
        process.ready.append(handle)
        if not process.frozen:
            self.due[process] = None
