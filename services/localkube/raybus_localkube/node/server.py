"""The node's requests over `D/node.sock`; protocol.py says what there is."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from typing import Any

from raybus_localkube.node import network, probes, protocol, relay
from raybus_localkube.node.names import Names, Service
from raybus_localkube.node.pods import Pods
from raybus_localkube.node.protocol import ContainerRecord, NodeError
from raybus_localkube.node.virtual import VirtualAddresses

REQUESTS_MAX = 256
Handler = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]
Dial = Callable[[str, int], Awaitable[relay.End]]


class Server:
    """Answers kubelets. `dial` connects to the host's network, from where the API server is seen."""

    def __init__(self, pods: Pods, names: Names, virtual: VirtualAddresses, dial: Dial, about: dict[str, Any]) -> None:
        self._pods = pods
        self._names = names
        self._virtual = virtual
        self._dial = dial
        self._about = about
        self._subscribers: set[asyncio.StreamWriter] = set()
        self._handlers: dict[str, Handler] = {
            "hello": self._hello,
            "pod-ensure": self._pod_ensure,
            "pod-remove": self._pod_remove,
            "container-start": self._container_start,
            "container-signal": self._container_signal,
            "container-forget": self._container_forget,
            "exec": self._exec,
            "http-get": probes.http_get,
            "tcp-connect": probes.tcp_connect,
            "list": self._list,
            "services": self._services,
            "api-server": self._api_server,
        }

    async def serve(self, listener: socket.socket) -> asyncio.Server:
        return await asyncio.start_unix_server(self._connection, sock=listener, limit=protocol.LINE_LIMIT)

    def exited(self, record: ContainerRecord) -> None:
        """Tell all subscribers; one that does not read is cut off and will list again."""
        line = protocol.encode({"event": "exited", "container": record})
        for writer in list(self._subscribers):
            if writer.transport.get_write_buffer_size() > protocol.LINE_LIMIT:
                writer.transport.abort()
                self._subscribers.discard(writer)
            else:
                writer.write(line)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks: set[asyncio.Task[None]] = set()
        try:
            while True:
                line = await reader.readline()
                if not line:
                    break
                request = protocol.decode(line)
                if request.get("op") == "subscribe":
                    self._subscribers.add(writer)
                    writer.write(protocol.encode({"id": request["id"]}))
                    continue
                if len(tasks) >= REQUESTS_MAX:
                    writer.write(protocol.encode({"id": request["id"], "error": "too many requests at once"}))
                    continue
                task = asyncio.get_running_loop().create_task(self._answer(request, writer))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
        except (ValueError, OSError):
            pass  # not our protocol, or the peer is gone
        finally:
            self._subscribers.discard(writer)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _answer(self, request: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        answer = await self._handle(request)
        if not writer.is_closing():
            writer.write(protocol.encode({"id": request.get("id"), **answer}))

    async def _handle(self, request: dict[str, Any]) -> dict[str, Any]:
        if request.get("v") != protocol.VERSION:
            return {
                "error": f"this node speaks version {protocol.VERSION}, not {request.get('v')}; restart both with one release"
            }
        handler = self._handlers.get(str(request.get("op")))
        if handler is None:
            return {"error": f"unknown request {request.get('op')!r}"}
        try:
            return await handler(request)
        except NodeError as error:
            return {"error": str(error)}
        except (KeyError, TypeError, OSError) as error:
            return {"error": f"{request['op']}: {type(error).__name__}: {error}"}

    async def _hello(self, _request: dict[str, Any]) -> dict[str, Any]:
        return self._about

    async def _pod_ensure(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"ip": self._pods.ensure(request)}

    async def _pod_remove(self, request: dict[str, Any]) -> dict[str, Any]:
        await self._pods.remove(request["uid"])
        return {}

    async def _container_start(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"container": await self._pods.start(request["spec"])}

    async def _container_signal(self, request: dict[str, Any]) -> dict[str, Any]:
        self._pods.signal(request["container"], request["signal"])
        return {}

    async def _container_forget(self, request: dict[str, Any]) -> dict[str, Any]:
        self._pods.forget(request["container"])
        return {}

    async def _exec(self, request: dict[str, Any]) -> dict[str, Any]:
        return await self._pods.exec(request["container"], request["argv"], request["timeout_s"])

    async def _list(self, _request: dict[str, Any]) -> dict[str, Any]:
        return self._pods.listing()

    async def _services(self, request: dict[str, Any]) -> dict[str, Any]:
        put = {key: Service.of(value) for key, value in request.get("put", {}).items()}
        self._names.update(put, request.get("drop", ()), reset=bool(request.get("reset")))
        await self._virtual.follow()
        return {}

    async def _api_server(self, request: dict[str, Any]) -> dict[str, Any]:
        host, port = request["host"], request["port"]
        for address in (request["vip"], network.GATEWAY):
            await self._virtual.fix(address, request["vip_port"], lambda: self._dial(host, port))
        return {}
