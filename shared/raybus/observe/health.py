"""/healthz, /readyz and /metrics of a service.

/healthz answers while the event loop runs. /readyz shows each check and is 503 while one of them does not hold: a service that
is not ready says why. Checks are read when asked; nothing runs in between.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import orjson
from aiohttp import web

from raybus.observe.metrics import CONTENT_TYPE, ServiceMetrics


@dataclass(frozen=True, slots=True)
class Check:
    """Whether something holds; `detail` says in words what is missing, or how things stand."""

    ok: bool
    detail: str = ""


Checks = Mapping[str, Callable[[], Check]]


class HealthPortError(Exception):
    """The health endpoint cannot be opened."""


def results(checks: Checks) -> dict[str, Check]:
    return {name: _asked(check) for name, check in checks.items()}


def _asked(check: Callable[[], Check]) -> Check:
    try:
        return check()
    except Exception as error:  # noqa: BLE001 - a check that fails is an answer: not ready, and why
        return Check(ok=False, detail=f"{type(error).__name__}: {error}")


def watch_ready(metrics: ServiceMetrics, ready: Checks) -> None:
    metrics.watch(
        "raybus_ready",
        "1 while this check of /readyz holds; the service is ready while all do.",
        lambda: {name: int(check.ok) for name, check in results(ready).items()},
        label="check",
    )


class HealthServer:
    """Serve on `host`:`port`; port 0 takes a free one, then `port` tells which."""

    def __init__(self, metrics: ServiceMetrics, ready: Checks, *, host: str = "127.0.0.1", port: int = 0) -> None:
        self._metrics = metrics
        self._ready = ready
        watch_ready(metrics, ready)
        self._host = host
        self.port = port
        app = web.Application()
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._render_metrics)
        self._runner = web.AppRunner(app, access_log=None)

    async def start(self) -> None:
        """Raises HealthPortError if the port cannot be had."""
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self.port)
        try:
            await site.start()
        except OSError as error:
            await self._runner.cleanup()
            where = f"{self._host}:{self.port}"
            raise HealthPortError(
                f"cannot serve health on {where} ({error.strerror}): choose another --health-port"
            ) from None
        self.port = int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        await self._runner.cleanup()

    async def _healthz(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _request: web.Request) -> web.Response:
        checked = results(self._ready)
        ready = all(check.ok for check in checked.values())
        body = {"ready": ready, "checks": {name: {"ok": c.ok, "detail": c.detail} for name, c in checked.items()}}
        return web.Response(
            status=200 if ready else 503,
            body=orjson.dumps(body, option=orjson.OPT_INDENT_2) + b"\n",
            content_type="application/json",
        )

    async def _render_metrics(self, _request: web.Request) -> web.Response:
        return web.Response(body=self._metrics.render(), headers={"Content-Type": CONTENT_TYPE})
