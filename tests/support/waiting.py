"""Waiting for what somebody else does: bounds are generous, what is tested is that it happens."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

PATIENCE_S = 60.0
T = TypeVar("T")


async def eventually(holds: Callable[[], object], what: str = "", *, within_s: float = PATIENCE_S) -> None:
    """Wait until `holds()` is true."""
    try:
        async with asyncio.timeout(within_s):
            while not holds():  # noqa: ASYNC110 - any condition can be waited for, not events alone
                await asyncio.sleep(0.005)
    except TimeoutError:
        pytest.fail(f"did not happen within {within_s} s: {what or holds}")


async def found(
    read: Callable[[], Awaitable[T]],
    what: str,
    *,
    within_s: float = PATIENCE_S,
    told: Callable[[], Awaitable[str]] | None = None,
) -> T:
    """The answer of `read()` as soon as it is true; `told()` is what the failure shows beside `what`."""
    try:
        async with asyncio.timeout(within_s):
            while not (answer := await read()):  # noqa: ASYNC110 - a server is asked, it has no event for all of this
                await asyncio.sleep(0.1)
            return answer
    except TimeoutError:
        pytest.fail(f"not within {within_s} s: {what}; {await told() if told else ''}")
