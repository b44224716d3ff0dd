"""The kubelet's connection to the node runtime: requests with answers by id, and the node's events."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from raybus_localkube.node import protocol
from raybus_localkube.node.protocol import ContainerRecord, ContainerSpec, NodeError

TIMEOUT_S = 30.0
CONNECT_TIMEOUT_S = 5.0


class NodeLost(NodeError):
    """There is no connection to the node just now."""


class NodeClient:
    """`connect`, then requests; `closed` is set when the connection is lost, and `connect` may be called again."""

    def __init__(self, path: Path, on_exit: Callable[[ContainerRecord], None]) -> None:
        self._path = path
        self._on_exit = on_exit
        self._number = 0
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._writer: asyncio.StreamWriter | None = None
        self._task: asyncio.Task[None] | None = None
        self.closed = asyncio.Event()

    async def connect(self) -> dict[str, Any]:
        """Connect and subscribe to exits; what the node says of itself. Raises NodeError."""
        await self.close()
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                reader, self._writer = await asyncio.open_unix_connection(str(self._path), limit=protocol.LINE_LIMIT)
        except OSError as error:
            raise NodeLost(f"{self._path}: {error.strerror or error}; is the node running?") from error
        self.closed.clear()
        self._task = asyncio.get_running_loop().create_task(self._read(reader))
        about = await self.request("hello")
        await self.request("subscribe")
        return about

    async def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            with contextlib.suppress(OSError):
                await self._writer.wait_closed()
        if self._task is not None:
            await asyncio.wait((self._task,), timeout=CONNECT_TIMEOUT_S)

    async def request(
        self, op: str, fields: Mapping[str, Any] | None = None, *, patience_s: float = TIMEOUT_S
    ) -> dict[str, Any]:
        """One request. Raises NodeError in the node's words, NodeLost when the connection is gone or silent."""
        writer = self._writer
        if writer is None or writer.is_closing():
            raise NodeLost("no connection to the node")
        self._number += 1
        number, answer = self._number, asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            writer.write(protocol.encode({"v": protocol.VERSION, "id": number, "op": op, **(fields or {})}))
            async with asyncio.timeout(patience_s):
                result: dict[str, Any] = await answer
        except TimeoutError:
            raise NodeLost(f"{op}: no answer from the node in {patience_s:g} s") from None
        finally:
            self._waiting.pop(number, None)
        if "error" in result:
            raise NodeError(str(result["error"]))
        return result

    async def start(self, spec: ContainerSpec) -> ContainerRecord:
        record: ContainerRecord = (await self.request("container-start", {"spec": spec}))["container"]
        return record

    async def exec(self, container: str, argv: list[str], timeout_s: float) -> Mapping[str, Any]:
        """{code, output, timed_out} of a program run in the container."""
        fields = {"container": container, "argv": argv, "timeout_s": timeout_s}
        return await self.request("exec", fields, patience_s=timeout_s + TIMEOUT_S)

    async def http_get(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """{status, body} or {failure}"""
        return await self.request("http-get", fields, patience_s=fields["timeout_s"] + TIMEOUT_S)

    async def tcp_connect(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """{} or {failure}"""
        return await self.request("tcp-connect", fields, patience_s=fields["timeout_s"] + TIMEOUT_S)

    async def signal(self, container: str, number: int) -> None:
        await self.request("container-signal", {"container": container, "signal": number})

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while line := await reader.readline():
                message = protocol.decode(line)
                if message.get("event") == "exited":
                    self._on_exit(message["container"])
                    continue
                waiting = self._waiting.get(int(message.get("id") or 0))
                if waiting is not None and not waiting.done():
                    waiting.set_result(message)
        except (OSError, ValueError):
            pass  # as an end of the connection
        finally:
            if self._writer is not None:
                self._writer.close()
            for waiting in self._waiting.values():
                if not waiting.done():
                    waiting.set_exception(NodeLost("the connection to the node was lost"))
            self.closed.set()
