"""One readiness address for the whole of `raybus up`: every process must be ready, and each says itself whether it is."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence

import orjson
from aiohttp import web

from raybus.cli.errors import EXIT_ENVIRONMENT, UserError
from raybus.runtime.supervisor import Supervisor


@contextlib.asynccontextmanager
async def serve_ready(port: int, supervisors: Sequence[Supervisor], started: Callable[[], bool]) -> AsyncIterator[None]:
    """Serve /healthz and /readyz on 127.0.0.1:port while the block runs; port 0 serves nothing."""
    if not port:
        yield
        return

    async def readyz(_: web.Request) -> web.Response:
        answers = await asyncio.gather(*(supervisor.all_ready() for supervisor in supervisors))
        checks = {name: ok for answer in answers for name, ok in answer.items()}
        ready = started() and all(checks.values())
        body = orjson.dumps({"ready": ready, "checks": checks})
        return web.Response(body=body, status=200 if ready else 503, content_type="application/json")

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    app = web.Application()
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/healthz", healthz)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
    except OSError:
        await runner.cleanup()
        raise UserError(f"port {port} (--health-port) is in use", "choose another one", EXIT_ENVIRONMENT) from None
    try:
        yield
    finally:
        await runner.cleanup()
