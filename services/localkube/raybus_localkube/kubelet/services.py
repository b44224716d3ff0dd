"""Watches Services and EndpointSlices and keeps the node's table of names and addresses in line with them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any

from raybus.domain import kinds
from raybus.domain.kinds import Kind
from raybus.kube.client import KubeClient
from raybus.kube.listwatch import Changed, ListBegun, ListComplete, Listed, ListWatch
from raybus_localkube.kubelet import endpoints
from raybus_localkube.kubelet.context import retry_delay_s
from raybus_localkube.kubelet.node_client import NodeClient
from raybus_localkube.kubelet.resources import ENDPOINT_SLICE
from raybus_localkube.node.protocol import NodeError

API_SERVICE = "default/kubernetes"
API_DEFAULT = ("10.96.0.1", 443)

Json = Mapping[str, Any]


class Services:
    """`api_server`: host and port where this machine reaches the API server."""

    def __init__(self, client: KubeClient, node: NodeClient, api_server: tuple[str, int]) -> None:
        self._client = client
        self._node = node
        self._api_server = api_server
        self._services: dict[str, Json] = {}
        self._slices: dict[str, dict[str, Json]] = {}  # service -> slice name -> slice
        self._dirty: set[str] = set()
        self._changed = asyncio.Event()
        self._complete = {kinds.SERVICE.kind: False, ENDPOINT_SLICE.kind: False}
        self._pushed: dict[str, Json] = {}
        self._reset = True

    def forget_pushed(self) -> None:
        """The node has started anew and knows nothing."""
        self._reset = True
        self._changed.set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch(kinds.SERVICE))
            group.create_task(self._watch(ENDPOINT_SLICE))
            group.create_task(self._push_all())

    async def _watch(self, kind: Kind) -> None:
        seen: list[Json] = []
        async with contextlib.aclosing(aiter(ListWatch(self._client, kind))) as events:
            async for event in events:
                match event:
                    case ListBegun():
                        seen = []
                    case Listed(items):
                        seen += items
                    case ListComplete():
                        self._replace(kind, seen)
                        self._complete[kind.kind] = True
                        self._changed.set()
                    case Changed(what, obj):
                        self._note(kind, obj, gone=what == "DELETED")
                        self._changed.set()

    def _replace(self, kind: Kind, objects: list[Json]) -> None:
        self._dirty |= self._services.keys() | self._slices.keys()
        if kind is kinds.SERVICE:
            self._services.clear()
        else:
            self._slices.clear()
        for obj in objects:
            self._note(kind, obj, gone=False)

    def _note(self, kind: Kind, obj: Json, *, gone: bool) -> None:
        name = obj["metadata"]["name"]
        if kind is kinds.SERVICE:
            key = f"{obj['metadata']['namespace']}/{name}"
            if gone:
                self._services.pop(key, None)
            else:
                self._services[key] = obj
        else:
            key = endpoints.service_of(obj)
            slices = self._slices.setdefault(key, {})
            if gone:
                slices.pop(name, None)
            else:
                slices[name] = obj
        self._dirty.add(key)

    async def _push_all(self) -> None:
        failures = 0
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(retry_delay_s(failures) if failures else None):
                    await self._changed.wait()
            self._changed.clear()
            if not all(self._complete.values()):
                continue
            try:
                await self._push()
                failures = 0
            except NodeError:
                failures += 1

    async def _push(self) -> None:
        reset = self._reset
        if reset:
            await self._push_api_server()
        keys = set(self._services) if reset else set(self._dirty)
        self._dirty.clear()
        put: dict[str, Json] = {}
        for key in keys & self._services.keys():
            if key != API_SERVICE:
                put[key] = endpoints.node_service(self._services[key], self._slices.get(key, {}).values())
        changed = put if reset else {key: value for key, value in put.items() if self._pushed.get(key) != value}
        dropped = [key for key in keys if key in self._pushed and key not in self._services]
        if not (reset or changed or dropped):
            return
        try:
            await self._node.request("services", {"reset": reset, "put": changed, "drop": dropped})
        except NodeError:
            self._reset = True
            raise
        self._reset = False
        self._pushed = (
            dict(put) if reset else {k: v for k, v in {**self._pushed, **changed}.items() if k not in dropped}
        )

    async def _push_api_server(self) -> None:
        vip, port = api_address(self._services.get(API_SERVICE))
        host, host_port = self._api_server
        await self._node.request("api-server", {"host": host, "port": host_port, "vip": vip, "vip_port": port})


def api_address(service: Json | None) -> tuple[str, int]:
    """Where pods find the API server: the address of Service `kubernetes`, else the usual one."""
    if service is None:
        return API_DEFAULT
    spec = service["spec"]
    port = next((int(p["port"]) for p in spec.get("ports") or () if p.get("name") in ("https", None)), API_DEFAULT[1])
    vip = spec.get("clusterIP")
    return (vip, port) if vip and vip != "None" else API_DEFAULT
