"""What probes and hooks do: run a program in the container, or ask a port of the pod."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from raybus_localkube.kubelet.node_client import NodeClient
from raybus_localkube.kubelet.podspec import Container

OUTPUT_MAX = 512


@dataclass(frozen=True, slots=True)
class Answer:
    success: bool
    text: str = ""


@dataclass(frozen=True, slots=True)
class Target:
    """Where a container's handlers are carried out."""

    node: NodeClient
    container: Container
    container_id: str
    pod_ip: str

    async def ask(self, handler: Mapping[str, Any], timeout_s: float) -> Answer:
        """Raises NodeError when the node cannot tell."""
        if "exec" in handler:
            return await self._exec(handler["exec"].get("command") or [], timeout_s)
        if "httpGet" in handler:
            return await self._http(handler["httpGet"], timeout_s)
        return await self._tcp(handler["tcpSocket"], timeout_s)

    async def _exec(self, argv: list[str], timeout_s: float) -> Answer:
        result = await self.node.exec(self.container_id, argv, timeout_s)
        if result["timed_out"]:
            return Answer(success=False, text=f"command timed out: {argv!r} timed out after {timeout_s:g}s")
        return Answer(result["code"] == 0, str(result["output"])[:OUTPUT_MAX].strip())

    async def _http(self, action: Mapping[str, Any], timeout_s: float) -> Answer:
        fields = {
            "address": action.get("host") or self.pod_ip,
            "port": port_number(self.container, action["port"]),
            "path": action.get("path") or "/",
            "scheme": action.get("scheme") or "HTTP",
            "headers": [(header["name"], header["value"]) for header in action.get("httpHeaders") or ()],
            "timeout_s": timeout_s,
        }
        result = await self.node.http_get(fields)
        if "failure" in result:
            return Answer(
                False, f"Get http://{fields['address']}:{fields['port']}{fields['path']}: {result['failure']}"
            )
        return Answer(200 <= result["status"] < 400, f"HTTP probe failed with statuscode: {result['status']}")

    async def _tcp(self, action: Mapping[str, Any], timeout_s: float) -> Answer:
        port = port_number(self.container, action["port"])
        fields = {"address": action.get("host") or self.pod_ip, "port": port, "timeout_s": timeout_s}
        result = await self.node.tcp_connect(fields)
        return Answer("failure" not in result, str(result.get("failure", "")))


def port_number(container: Container, port: int | str) -> int:
    """A port given by number, or by the name of one of the container's ports; 0 for an unknown name."""
    if isinstance(port, int):
        return port
    for known in container.get("ports") or ():
        if known.get("name") == port:
            return int(known["containerPort"])
    return int(port) if port.isdigit() else 0
