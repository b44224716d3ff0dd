"""The least of OpenAPI that kubectl needs: which patch types a kind takes, and that the server checks fields itself."""

from __future__ import annotations

import hashlib
from typing import Any

from raybus_localkube.kinds.registry import Registry
from raybus_localkube.server.discovery import in_version
from raybus_localkube.server.patching import accepted

Json = dict[str, Any]
V2_TYPE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
# swagger "2.0", info {title "Kubernetes", version "v1.36"}, no paths: kubectl reads it as "such a kind is not known".
V2_DOCUMENT = b"\x0a\x032.0\x12\x13\x0a\x0aKubernetes\x12\x05v1.36\x42\x00"


def group_versions(registry: Registry) -> list[tuple[str, str, str]]:
    """Path, group and version of every group version."""
    found = []
    for group, versions in registry.groups().items():
        found += [(f"apis/{group}/{version}" if group else f"api/{version}", group, version) for version in versions]
    return found


def index(registry: Registry) -> Json:
    paths = {}
    for path, group, version in group_versions(registry):
        kinds = " ".join(r.kind for r in in_version(registry, group, version))
        digest = hashlib.sha256(f"{path} {kinds}".encode()).hexdigest()[:32].upper()
        paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={digest}"}
    return {"paths": paths}


def document(registry: Registry, group: str, version: str) -> Json | None:
    """The document of one group version: paths with their patch operation, no schemas."""
    resources = in_version(registry, group, version)
    if not resources:
        return None
    base = f"/apis/{group}/{version}" if group else f"/api/{version}"
    paths: Json = {}
    for resource in resources:
        if "patch" not in resource.verbs:
            continue
        scope = "/namespaces/{namespace}" if resource.namespaced else ""
        content = {media: {"schema": {"type": "object"}} for media in accepted(resource)}
        paths[f"{base}{scope}/{resource.plural}/{{name}}"] = {
            "patch": {
                "parameters": [
                    {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
                    for name in ("dryRun", "fieldManager", "fieldValidation")
                ],
                "requestBody": {"required": True, "content": content},
                "responses": {"200": {"description": "OK"}},
                "x-kubernetes-action": "patch",
                "x-kubernetes-group-version-kind": {"group": group, "version": version, "kind": resource.kind},
            }
        }
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.36"},
        "paths": paths,
        "components": {"schemas": {}},
    }
