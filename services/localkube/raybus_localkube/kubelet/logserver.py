"""Serves containers' logs over HTTP on loopback; the API server's `pods/log` asks here.

GET /healthz
GET /containerLogs/<namespace>/<pod>/<container>?follow&previous&tailLines&sinceSeconds&sinceTime&timestamps&limitBytes
Authorization: Bearer <content of D/kubelet-token>
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import hmac
import os
import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from aiohttp import web

from raybus_localkube.kubelet import logread
from raybus_localkube.kubelet.logread import Query
from raybus_localkube.kubelet.podworker import PodWorker

CHUNK = 256 * 1024
CHECK_S = 1.0  # how often a follower looks whether the container still runs, when nothing is written
_IN_MODIFY = 0x2

Find = Callable[[str, str], PodWorker | None]
LogPath = Callable[[PodWorker, str, int], Path]


def write_token(path: Path) -> str:
    """The token that callers must show; made once, readable by the owner alone."""
    with contextlib.suppress(FileNotFoundError):
        return path.read_text().strip()
    token = secrets.token_urlsafe(32)
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(token)
    return token


class LogServer:
    def __init__(self, find: Find, log_path: LogPath, token: str) -> None:
        self._find = find
        self._log_path = log_path
        self._token = token
        self._runner: web.AppRunner | None = None
        self.ready = False

    async def start(self, port: int) -> int:
        """Listen on 127.0.0.1; the port (0 chooses one)."""
        app = web.Application()
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._logs)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=1.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", port)
        await site.start()
        chosen: int = self._runner.addresses[0][1]
        return chosen

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _healthz(self, _request: web.Request) -> web.Response:
        """200 once the kubelet has reached its node and registered with the API server; open, as a kubelet's is."""
        return web.Response(text="ok") if self.ready else web.Response(status=503, text="not registered yet")

    async def _logs(self, request: web.Request) -> web.StreamResponse:
        given = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if not hmac.compare_digest(given.encode(), self._token.encode()):
            return web.Response(status=401, text="a bearer token is needed: the content of kubelet-token\n")
        worker = self._find(request.match_info["namespace"], request.match_info["pod"])
        name = request.match_info["container"]
        if worker is None:
            return web.Response(status=404, text=f'pod "{request.match_info["pod"]}" does not run on this node\n')
        try:
            query = logread.parse_query(request.query, datetime.now(UTC))
            path = self._path(worker, name, query)
        except logread.BadQuery as error:
            return web.Response(status=400, text=str(error))
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        left = query.limit
        async for data in _stream(path, query, lambda: worker.is_running(name, path)):
            piece = data if left is None else data[:left]
            await response.write(piece)
            left = None if left is None else left - len(piece)
            if left == 0:
                break
        await response.write_eof()
        return response

    def _path(self, worker: PodWorker, name: str, query: Query) -> Path:
        """The log file that is asked for. Raises BadQuery with the API server's words where there is none."""
        pod = worker.pod["metadata"]["name"]
        known = worker.view.of(name)
        if known.run is None:
            reason = known.problem[0] if known.problem else "ContainerCreating"
            raise logread.BadQuery(f'container "{name}" in pod "{pod}" is waiting to start: {reason}')
        attempt = known.run.attempt - (1 if query.previous else 0)
        if query.previous and known.last is None:
            raise logread.BadQuery(f'previous terminated container "{name}" in pod "{pod}" not found')
        return self._log_path(worker, name, attempt)


def _size(path: Path) -> int:
    """Of a file, 0 where it is not there."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


async def _stream(path: Path, query: Query, running: Callable[[], bool]) -> AsyncIterator[bytes]:
    lines = _read_all(path)
    position = _size(path)
    selected = logread.select(lines, query)
    for start in range(0, len(selected), 1000):
        yield b"".join(logread.render(selected[start : start + 1000], query))
    if not query.follow:
        return
    in_line = bool(selected) and selected[-1].split(b" ", 3)[2:3] == [b"P"]
    with _Watch(path) as watch:
        while True:
            alive = running()
            data, position = _read_new(path, position)
            if data:
                fresh = data.splitlines(keepends=True)
                yield b"".join(logread.render(fresh, query, in_line=in_line))
                in_line = fresh[-1].split(b" ", 3)[2:3] == [b"P"]
            elif not alive:
                return
            else:
                await watch.wait(CHECK_S)


def _read_all(path: Path) -> list[bytes]:
    """The lines of the file that was full before, and of the current one."""
    return [line for file in (path.with_name(path.name + ".1"), path) for line in _lines(file)]


def _lines(path: Path) -> Iterator[bytes]:
    with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
        yield from file


def _read_new(path: Path, position: int) -> tuple[bytes, int]:
    """Whole lines after this place, and the place behind them; from the beginning where the file is a new one."""
    with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
        if os.fstat(file.fileno()).st_size < position:
            position = 0
        file.seek(position)
        data = file.read(CHUNK)
        data = data[: data.rfind(b"\n") + 1]
        return data, position + len(data)
    return b"", position


class _Watch:
    """Wakes when a file is written (inotify), so that following a log needs no polling."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._changed = asyncio.Event()

    def __enter__(self) -> Self:
        libc = ctypes.CDLL(None, use_errno=True)
        self._fd: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")
        # The folder, not the file: a full file is replaced.
        libc.inotify_add_watch(self._fd, os.fsencode(self._path.parent), _IN_MODIFY)
        asyncio.get_running_loop().add_reader(self._fd, self._on_change)
        return self

    def __exit__(self, *_error: object) -> None:
        asyncio.get_running_loop().remove_reader(self._fd)
        os.close(self._fd)

    def _on_change(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._fd, 65536)
        self._changed.set()

    async def wait(self, timeout_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        self._changed.clear()
