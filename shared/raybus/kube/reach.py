"""Whether the API server is within reach: from what became of the last requests, and from a light question while there are none.

`Reach` is pure and takes its clock's readings as arguments; RawClient tells it what became of each exchange. `watching` asks
`GET /version`, which needs no right and changes nothing, when nothing has been heard for a while, more often while it is silent.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

from raybus.kube.errors import KubeError

IDLE_S = 10.0
ASK_TIMEOUT_S = 5.0
ASK_AGAIN_S = 2.0

GATEWAY_ERRORS = frozenset({502, 503, 504})
"""Answers that come from somebody before the server, or from one that is going: as good as none."""


class Reach:
    """`trouble` says in words why the API server counts as out of reach; empty while it is within reach.

    Times are seconds of any one monotonic clock.
    """

    def __init__(self) -> None:
        self.trouble = ""
        self._heard_at: float | None = None
        self._last_at = 0.0

    def heard(self, now: float) -> None:
        """The server said something."""
        self.trouble = ""
        self._heard_at = self._last_at = now

    def failed(self, why: str, *, since: float, now: float) -> None:
        """A request that began at `since` got no answer, or none of use. Whoever was heard meanwhile is within reach."""
        if self._heard_at is not None and self._heard_at > since:
            return
        self.trouble = why
        self._last_at = now

    def answered(self, code: int, what: str, *, since: float, now: float) -> None:
        """An HTTP status came. A refusal is an answer, unless it is one of the credentials themselves."""
        if code == 401:
            self.failed(f"{what}: 401, the credentials are not accepted", since=since, now=now)
        elif code in GATEWAY_ERRORS:
            self.failed(f"{what}: {code}, the API server is not serving", since=since, now=now)
        else:
            self.heard(now)

    def ask_in_s(self, now: float) -> float:
        """Seconds until the server should be asked, unless something is heard before."""
        return max(self._last_at + (ASK_AGAIN_S if self.trouble else IDLE_S) - now, 0.0)


@contextlib.asynccontextmanager
async def watching(reach: Reach, ask: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """Inside the block `reach` is never older than IDLE_S and one question. `ask` tells `reach` what it learned."""
    task = asyncio.create_task(_watch(reach, ask), name="API server within reach")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _watch(reach: Reach, ask: Callable[[], Awaitable[None]]) -> None:
    loop = asyncio.get_running_loop()
    while True:
        if (wait := reach.ask_in_s(loop.time())) > 0:
            await asyncio.sleep(wait)
        else:
            with contextlib.suppress(KubeError):  # `reach` has been told
                await ask()
            await asyncio.sleep(0)  # an answer without a word to `reach` must not hold up the loop
