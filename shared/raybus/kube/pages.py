"""Pages behind the API server, such as a pod's health page through its proxy: the answer as it came, whatever its status."""

from __future__ import annotations

import asyncio
import datetime as dt
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

import aiohttp

from raybus.kube.client import KubeClient

PAGE_MAX = 2**22  # bytes


@dataclass(frozen=True, slots=True)
class Page:
    """`ahead_s`: how far the clock of whoever answered is before this machine's, to the second; None if it did not say."""

    status: int
    body: bytes
    ahead_s: float | None


class PageClient(KubeClient):
    """A client that can also look at pages."""

    async def page(self, path: str, *, timeout_s: float) -> Page:
        """GET. Raises NoAnswer."""
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        began = dt.datetime.now(dt.UTC)
        started = asyncio.get_running_loop().time()
        try:
            async with self._open("GET", path, None, timeout=timeout) as response:
                body = await response.content.read(PAGE_MAX)
                between = began + (dt.datetime.now(dt.UTC) - began) / 2
                return Page(response.status, body, _ahead(response.headers.get("Date"), between))
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise self._silent(f"GET {path}", error, started) from error


def _ahead(date: str | None, now: dt.datetime) -> float | None:
    """A Date header is cut to the second: half a second is added."""
    try:
        said = parsedate_to_datetime(date or "")
    except ValueError:
        return None
    return (said - now).total_seconds() + 0.5
