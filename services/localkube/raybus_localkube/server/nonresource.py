"""Paths that are no resources: discovery, OpenAPI, version, health."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from raybus_localkube.kinds.registry import Registry
from raybus_localkube.server import discovery, errors, negotiation, openapi
from raybus_localkube.server.messages import JSON_TYPE, Request, Response

if TYPE_CHECKING:
    from raybus_localkube.server.core import Core

VERSION = {
    "major": "1", "minor": "36", "emulationMajor": "1", "emulationMinor": "36", "minCompatibilityMajor": "1",
    "minCompatibilityMinor": "35", "gitVersion": "v1.36.0+localkube", "gitCommit": "", "gitTreeState": "",
    "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "gc", "platform": "linux/amd64",
}  # fmt: skip
TEXT = "text/plain; charset=utf-8"
HEALTH = ("/healthz", "/livez", "/readyz")


class Documents:
    """The documents, rendered once per state of the registry."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self._generation = -1
        self._cache: dict[str, tuple[bytes, str] | None] = {}

    def answer(self, request: Request, core: Core) -> Response:
        path = request.path.rstrip("/") or "/"
        if request.method not in ("GET", "HEAD"):
            raise errors.method_not_allowed("the server does not allow this method on the requested resource")
        if path.startswith(HEALTH):
            return self.health(path, core)
        if path in ("/api", "/apis") and negotiation.wants_aggregated(request.accept):
            path = f"{path}?aggregated"
        if self._generation != self.registry.generation:
            self._generation, self._cache = self.registry.generation, {}
        if path not in self._cache:
            self._cache[path] = self.render(path, core)
        found = self._cache[path]
        if found is None:
            raise errors.page_not_found()
        return Response(200, found[0], found[1])

    @staticmethod
    def health(path: str, core: Core) -> Response:
        section, _, check = path[1:].partition("/")
        if check not in ("", "ping"):
            raise errors.page_not_found()
        if section == "readyz" and not core.ready():
            return Response(500, b"readyz check failed\n", TEXT)
        return Response(200, b"ok", TEXT)

    def render(self, path: str, core: Core) -> tuple[bytes, str] | None:
        registry = self.registry
        document: Any
        if path == "/openapi/v2":
            return openapi.V2_DOCUMENT, openapi.V2_TYPE
        if path.endswith("?aggregated"):
            return orjson.dumps(discovery.aggregated(registry, core=path.startswith("/api?"))), discovery.AGGREGATED
        match path.split("/")[1:]:
            case [""]:
                document = {"paths": self.paths()}
            case ["version"]:
                document = VERSION
            case ["api"]:
                document = discovery.api_versions(core.address)
            case ["apis"]:
                document = discovery.group_list(registry)
            case ["api", version]:
                document = discovery.resource_list(registry, "", version)
            case ["apis", group]:
                found = discovery.group(registry, group)
                document = {"kind": "APIGroup", "apiVersion": "v1"} | found if found else None
            case ["apis", group, version]:
                document = discovery.resource_list(registry, group, version)
            case ["openapi", "v3"]:
                document = openapi.index(registry)
            case ["openapi", "v3", "api", version]:
                document = openapi.document(registry, "", version)
            case ["openapi", "v3", "apis", group, version]:
                document = openapi.document(registry, group, version)
            case _:
                document = None
        return (orjson.dumps(document), JSON_TYPE) if document is not None else None

    def paths(self) -> list[str]:
        found = {"/api", "/apis", "/apis/", "/healthz", "/livez", "/readyz", "/version", "/openapi/v2", "/openapi/v3"}
        for path, group, _ in openapi.group_versions(self.registry):
            found.add(f"/{path}")
            if group:
                found.add(f"/apis/{group}")
        return sorted(found)
