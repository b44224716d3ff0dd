"""Probes that need the pods' network but no process: HTTP GET and TCP connect, sent from the node."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

from raybus_localkube.node import httphead

BODY_MAX = 2048


async def http_get(request: dict[str, Any]) -> dict[str, Any]:
    """{status, body} of the answer, or {failure} in words."""
    headers = [(str(name), str(value)) for name, value in request.get("headers", ())]
    host, port = request["address"], int(request["port"])
    context = _any_certificate() if request.get("scheme", "HTTP").upper() == "HTTPS" else None
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(request["timeout_s"]):
            reader, writer = await asyncio.open_connection(host, port, ssl=context)
            writer.write(httphead.probe_request(host, port, request.get("path") or "/", headers))
            head = await reader.readline()
            status = httphead.status_of(head)
            rest = await reader.read(BODY_MAX)
            return {"status": status, "body": rest.partition(b"\r\n\r\n")[2].decode(errors="replace")}
    except TimeoutError:
        return {"failure": f"no answer in {request['timeout_s']:g} s"}
    except (OSError, ValueError, httphead.BadRequest) as error:
        return {"failure": str(error) or type(error).__name__}
    finally:
        if writer is not None:
            writer.transport.abort()


async def tcp_connect(request: dict[str, Any]) -> dict[str, Any]:
    """{} when the port takes a connection, else {failure} in words."""
    try:
        async with asyncio.timeout(request["timeout_s"]):
            _, writer = await asyncio.open_connection(request["address"], int(request["port"]))
            writer.transport.abort()
            return {}
    except TimeoutError:
        return {"failure": f"no answer in {request['timeout_s']:g} s"}
    except OSError as error:
        return {"failure": str(error) or type(error).__name__}


def _any_certificate() -> ssl.SSLContext:
    """As a kubelet does: a probe asks whether the program answers, not who it is."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
