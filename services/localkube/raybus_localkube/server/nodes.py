"""The way to kubelets: logs of containers, asked for over HTTP on the node's own address (loopback)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp

from raybus_localkube.server import errors
from raybus_localkube.server.messages import Answer, Query, Stream

Json = dict[str, Any]
PASSED = ("follow", "tailLines", "timestamps", "previous", "sinceSeconds", "sinceTime", "limitBytes")
CONNECT_S = 5.0
CHUNK = 1 << 16


class Nodes:
    """`token_file` holds the bearer token that kubelets ask for; it is read anew for each request."""

    def __init__(self, token_file: Path) -> None:
        self._token_file = token_file
        self._session: aiohttp.ClientSession | None = None

    def session(self) -> aiohttp.ClientSession:
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=None, connect=CONNECT_S)
            self._session = aiohttp.ClientSession(timeout=timeout, trust_env=False)
        return self._session

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def logs(self, node: Json, pod: Json, container: str, query: Query) -> Answer:
        """The log of a container as a stream. ApiError with the kubelet's own words where it refuses."""
        meta = pod["metadata"]
        url = f"{address(node)}/containerLogs/{meta['namespace']}/{meta['name']}/{container}"
        parameters = {key: query.get(key) for key in PASSED if key in query}
        token = self._token_file.read_text().strip() if self._token_file.exists() else ""
        try:
            response = await self.session().get(url, params=parameters, headers={"Authorization": f"Bearer {token}"})
        except (aiohttp.ClientError, TimeoutError) as error:
            name = node["metadata"]["name"]
            raise errors.ApiError(
                500, "InternalError", f'Get "{url}": the kubelet of node {name} does not answer: {error}'
            ) from None
        if response.status != 200:
            text = (await response.text()).strip()
            response.release()
            reason = {400: "BadRequest", 404: "NotFound"}.get(response.status, "InternalError")
            raise errors.ApiError(response.status, reason, text or f"the kubelet answered {response.status}")
        return Stream(parts(response), "text/plain")


async def parts(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    try:
        async for chunk in response.content.iter_any():
            yield chunk
    except aiohttp.ClientError:
        return  # the kubelet went away: the log ends here
    finally:
        response.close()


def address(node: Json) -> str:
    """Where the kubelet listens, from the node's status. ApiError if it does not say."""
    status = node.get("status") or {}
    port = ((status.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}).get("Port")
    host = next((a["address"] for a in status.get("addresses") or () if a["type"] == "InternalIP"), None)
    if not port or not host:
        raise errors.ApiError(
            500, "InternalError", f"node {node['metadata']['name']} does not say where its kubelet listens"
        )
    return f"http://{host}:{port}"
