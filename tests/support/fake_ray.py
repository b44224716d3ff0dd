"""A fake Ray: the Jobs API of any number of heads behind one port. tests/contracts/ray holds it to what real Ray does.

It serves its own address and, as an HTTP proxy, any host name: with HTTP_PROXY set to it no name is resolved, and the host
of a request says which head is meant. Tests turn its knobs directly.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

TERMINAL = ("SUCCEEDED", "FAILED", "STOPPED")
FIELDS = {
    "entrypoint", "submission_id", "runtime_env", "metadata", "entrypoint_num_cpus", "entrypoint_num_gpus",
    "entrypoint_memory", "entrypoint_resources", "entrypoint_label_selector",
}  # fmt: skip


def now_ms() -> int:
    return int(time.time() * 1000)


@dataclass
class FakeJob:
    request: dict[str, Any]
    status: str = "PENDING"
    message: str = "Job has not started yet. It may be waiting for the runtime environment to be set up."
    start_time: int | None = None
    end_time: int | None = None
    logs: str = ""

    def become(self, status: str, message: str | None = None) -> None:
        self.status, self.message = status, f"ray: {status.lower()}" if message is None else message
        if status != "PENDING":
            self.start_time = self.start_time or now_ms()
        if status in TERMINAL:
            self.end_time = now_ms()

    def record(self, job_id: str) -> dict[str, Any]:
        return {
            "type": "SUBMISSION",
            "job_id": None,
            "submission_id": job_id,
            "driver_info": None,
            "status": self.status,
            "entrypoint": self.request["entrypoint"],
            "message": self.message,
            "error_type": None,
            "start_time": self.start_time,
            "end_time": self.end_time,
            "metadata": self.request.get("metadata") or {},
            "runtime_env": self.request.get("runtime_env"),
        }


@dataclass
class FakeHead:
    """One head. `up` False: 503 and a text; `hang` True: no answer at all; `on_submit`: status of what is submitted."""

    session: str = field(default_factory=lambda: f"session_{uuid.uuid4().hex[:8]}")
    jobs: dict[str, FakeJob] = field(default_factory=dict)
    up: bool = True
    hang: bool = False
    on_submit: str = "PENDING"
    token: str = ""
    refuse_submit: tuple[int, str] | None = None
    requests: list[tuple[str, str, Any]] = field(default_factory=list)

    def restart(self) -> None:
        """The head process dies and comes back empty, as without fault tolerance."""
        self.jobs.clear()
        self.session = f"session_{uuid.uuid4().hex[:8]}"


class FakeRay:
    """`heads` by host name; a host that is not there gets `default`, and 502 if that is None."""

    def __init__(self, default: FakeHead | None = None) -> None:
        self.default = default
        self.heads: dict[str, FakeHead] = {}
        self.address = ""
        self._closing = asyncio.Event()

    @contextlib.asynccontextmanager
    async def serving(self, port: int = 0, on: socket.socket | None = None) -> AsyncIterator[FakeRay]:
        """On this port, or on a socket that listens already and is closed in the end."""
        app = web.Application(client_max_size=2**26)
        app.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        site = web.SockSite(runner, on) if on else web.TCPSite(runner, "127.0.0.1", port)
        await site.start()
        self.address = f"127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield self
        finally:
            self._closing.set()
            await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        host = request.host.partition(":")[0]
        head = self.heads.get(host, self.default)
        if head is None:
            return web.Response(status=502, text="no such host")
        if head.hang:
            await self._closing.wait()
            return web.Response(status=503, text="closing")
        if not head.up:
            return web.Response(status=503, text="not up")
        if request.path == "/api/gcs_healthz":
            return web.Response(text="success")
        if head.token and (refusal := _unauthorized(request, head.token)) is not None:
            return refusal
        body = await request.json() if request.method != "GET" and request.can_read_body else None
        head.requests.append((request.method, request.path, body))
        if request.path == "/api/version":
            return web.json_response({"version": "4", "ray_version": "2.60.0", "session_name": head.session})
        if request.path.startswith("/api/jobs/"):
            return await _jobs(head, request, body)
        return web.Response(status=404, text="404: Not Found")


def _unauthorized(request: web.Request, token: str) -> web.Response | None:
    given = request.headers.get("x-ray-authorization")
    if given is None:
        return web.Response(status=401, text="Unauthorized: Missing authentication token")
    return None if given == f"Bearer {token}" else web.Response(status=403, text="Forbidden: Invalid token")


async def _jobs(head: FakeHead, request: web.Request, body: Any) -> web.StreamResponse:
    job_id, _, action = request.path.removeprefix("/api/jobs/").partition("/")
    if not job_id:
        if request.method == "POST":
            return _submit(head, body)
        return web.json_response([job.record(name) for name, job in head.jobs.items()])
    job = head.jobs.get(job_id)
    if job is None:
        return web.Response(status=404, text=f"Job {job_id} does not exist")
    if request.method == "DELETE":
        if job.status not in TERMINAL:
            return web.Response(status=500, text=f"RuntimeError: Attempted to delete job '{job_id}', but it is running")
        del head.jobs[job_id]
        return web.json_response({"deleted": True})
    if action == "stop":
        stopped = job.status not in TERMINAL
        if stopped:
            job.become("STOPPED", "Job was intentionally stopped.")
        return web.json_response({"stopped": stopped})
    if action == "logs":
        return web.json_response({"logs": job.logs})
    if action == "logs/tail":
        return await _tail(request, job)
    return web.json_response(job.record(job_id))


def _submit(head: FakeHead, body: Any) -> web.Response:
    if head.refuse_submit is not None:
        return web.Response(status=head.refuse_submit[0], text=head.refuse_submit[1])
    if unknown := set(body) - FIELDS:
        text = f"TypeError: JobSubmitRequest.__init__() got an unexpected keyword argument '{min(unknown)}'"
        return web.Response(status=400, text=text)
    job_id = body.get("submission_id") or f"raysubmit_{uuid.uuid4().hex[:8]}"
    if job_id in head.jobs:
        text = f"ValueError: Job with submission_id {job_id} already exists. Please use a different submission_id."
        return web.Response(status=500, text=text)
    head.jobs[job_id] = job = FakeJob(dict(body))
    if head.on_submit != "PENDING":
        job.become(head.on_submit)
    return web.json_response({"job_id": job_id, "submission_id": job_id})


async def _tail(request: web.Request, job: FakeJob) -> web.StreamResponse:
    socket = web.WebSocketResponse()
    await socket.prepare(request)
    sent = 0
    while True:
        ended = job.status in TERMINAL
        if len(job.logs) > sent:
            await socket.send_str(job.logs[sent:])
            sent = len(job.logs)
        if ended:
            await socket.close()
            return socket
        await asyncio.sleep(0.05)
