"""HTTP in front of the core: aiohttp's low-level server, TLS, sign-in by token or client certificate."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import suppress

from aiohttp import web

from raybus_localkube.server import errors
from raybus_localkube.server.bodies import BODY_LIMIT
from raybus_localkube.server.core import Core, refusal
from raybus_localkube.server.messages import Answer, Query, Request, Response, Stream, User
from raybus_localkube.server.tokens import Tokens

ANONYMOUS = User("system:anonymous", ("system:unauthenticated",))
OPEN = ("/healthz", "/livez", "/readyz", "/version")
DRAIN_S = 1.0


class Front:
    """Serves a core on a loopback address."""

    def __init__(self, core: Core, tokens: Tokens) -> None:
        self._core, self._tokens = core, tokens
        self._runner: web.ServerRunner | None = None

    async def start(self, host: str, port: int, context: ssl.SSLContext) -> int:
        """Listen; the port that was taken (port 0 takes any). OSError if it is in use."""
        server = web.Server(self.serve, handler_cancellation=True, access_log=None)
        self._runner = web.ServerRunner(server, shutdown_timeout=DRAIN_S)
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port, ssl_context=context, backlog=1024)
        await site.start()
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def serve(self, raw: web.BaseRequest) -> web.StreamResponse:
        body = await read_body(raw)
        query: dict[str, list[str]] = {}
        for key, value in raw.query.items():
            query.setdefault(key, []).append(value)
        user = self.user(raw)
        request = Request(
            raw.method,
            raw.path,
            Query(query),
            body,
            user or ANONYMOUS,
            raw.headers.get("Accept", ""),
            raw.headers.get("Content-Type"),
        )
        if user is None and not (raw.path.startswith(OPEN) and "Authorization" not in raw.headers):
            return plain(refusal(errors.unauthorized(), request))
        answer: Answer = await self._core.handle(request)
        if isinstance(answer, Response):
            return plain(answer)
        return await stream(raw, answer)

    def user(self, raw: web.BaseRequest) -> User | None:
        scheme, _, token = raw.headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return self._tokens.user(token.strip(), self._core.env.now())
        return certificate_user(raw)


async def read_body(raw: web.BaseRequest) -> bytes:
    """The body; what is longer than a server takes is cut, and refused for its length."""
    if not raw.body_exists:
        return b""
    found = bytearray()
    async for part in raw.content.iter_any():
        found += part
        if len(found) > BODY_LIMIT:
            break
    return bytes(found)


def certificate_user(raw: web.BaseRequest) -> User | None:
    """CN is the user's name, each O a group; the TLS layer has verified the certificate."""
    certificate = raw.get_extra_info("peercert")
    if not certificate:
        return None
    names = [pair for part in certificate.get("subject", ()) for pair in part]
    name = next((value for key, value in names if key == "commonName"), "")
    groups = [value for key, value in names if key == "organizationName"]
    if name.startswith("system:serviceaccount:"):
        namespace = name.split(":")[2]
        groups += ["system:serviceaccounts", f"system:serviceaccounts:{namespace}"]
    return User(name, (*groups, "system:authenticated")) if name else None


def plain(answer: Response) -> web.Response:
    response = web.Response(status=answer.status, body=answer.body or None)
    response.headers["Content-Type"] = answer.content_type
    for key, value in answer.headers:
        response.headers.add(key, value)
    return response


async def stream(raw: web.BaseRequest, answer: Stream) -> web.StreamResponse:
    """The header at once, then each part as it comes, until the stream or the client ends."""
    response = web.StreamResponse(status=answer.status)
    response.headers["Content-Type"] = answer.content_type
    for key, value in answer.headers:
        response.headers.add(key, value)
    response.enable_chunked_encoding()
    parts: AsyncIterator[bytes] = answer.parts
    try:
        await response.prepare(raw)
        async for part in parts:
            await response.write(part)
        await response.write_eof()
    finally:
        close = getattr(parts, "aclose", None)
        if close is not None:
            with suppress(RuntimeError):
                await close()
    return response
