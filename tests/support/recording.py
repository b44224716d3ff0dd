"""An HTTP proxy before an API server that notes what it is asked for."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import aiohttp
import yaml
from aiohttp import web

from raybus.kube.config import KubeConfig

HOP_BY_HOP = {"transfer-encoding", "connection", "content-length", "content-encoding"}


class Recording:
    """`kubeconfig` leads through it; `asked` holds (method, path with query) of every request so far."""

    def __init__(self, target: KubeConfig, folder: Path) -> None:
        self._target = target
        self._folder = folder
        self.kubeconfig = ""
        self.asked: list[tuple[str, str]] = []

    def selectors(self, plural: str) -> set[str]:
        """The label selectors of all lists and watches of a kind; empty strings for those of everything."""
        return set(self._selectors(plural))

    def _selectors(self, plural: str) -> Iterator[str]:
        for method, asked in self.asked:
            url = urlsplit(asked)
            if method == "GET" and url.path.endswith(f"/{plural}"):
                yield parse_qs(url.query).get("labelSelector", [""])[0]

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Recording]:
        async with aiohttp.ClientSession(auto_decompress=False) as self._session:
            app = web.Application(client_max_size=16 << 20)
            app.router.add_route("*", "/{path:.*}", self._forward)
            runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
            await runner.setup()
            try:
                site = web.TCPSite(runner, "127.0.0.1", 0)
                await site.start()
                self.kubeconfig = self._written(runner.addresses[0][1])
                yield self
            finally:
                await runner.cleanup()

    def _written(self, port: int) -> str:
        cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}
        context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
        path = self._folder / "recording.kubeconfig"
        path.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [cluster],
                    "contexts": [context],
                    "users": [{"name": "u", "user": {}}],
                    "current-context": "c",
                }
            )
        )
        return str(path)

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        self.asked.append((request.method, request.path_qs))
        headers = {key: value for key, value in request.headers.items() if key.lower() not in HOP_BY_HOP | {"host"}}
        if self._target.authorization:
            headers["Authorization"] = self._target.authorization
        async with self._session.request(
            request.method,
            self._target.server + request.raw_path,
            headers=headers,
            data=await request.read(),
            ssl=self._target.tls or True,
            server_hostname=self._target.server_hostname,
        ) as answer:
            kept = {
                key: value
                for key, value in answer.headers.items()
                if key.lower() not in HOP_BY_HOP - {"content-encoding"}
            }
            response = web.StreamResponse(status=answer.status, headers=kept)
            await response.prepare(request)
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
                await response.write_eof()
            return response
