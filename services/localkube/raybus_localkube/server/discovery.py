"""Discovery: which groups, versions and resources there are, plain and aggregated. Kept until the registry changes."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

from raybus_localkube.kinds.registry import Registry
from raybus_localkube.kinds.resource import Resource

Json = dict[str, Any]
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
CUSTOM_VERBS = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"]


def entry(resource: Resource, version: str) -> Json:
    """One resource in aggregated form."""
    if resource.discovery is not None:
        return resource.discovery
    kind = {"group": resource.group, "version": version, "kind": resource.kind}
    found: Json = {
        "resource": resource.plural, "responseKind": kind, "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular, "verbs": CUSTOM_VERBS,
    }  # fmt: skip
    if resource.short_names:
        found["shortNames"] = list(resource.short_names)
    if resource.categories:
        found["categories"] = list(resource.categories)
    subresources = []
    for name, verbs in resource.subresources_of(version).items():
        response = {"group": "autoscaling", "version": "v1", "kind": "Scale"} if name == "scale" else kind
        subresources.append({"subresource": name, "responseKind": response, "verbs": list(verbs)})
    if subresources:
        found["subresources"] = subresources
    return found


def in_version(registry: Registry, group: str, version: str) -> list[Resource]:
    return [r for r in registry.all() if r.group == group and version in r.versions]


def aggregated(registry: Registry, *, core: bool) -> Json:
    items = []
    for group, versions in registry.groups().items():
        if (group == "") != core:
            continue
        listed = [
            {
                "version": version,
                "resources": [entry(r, version) for r in in_version(registry, group, version)],
                "freshness": "Current",
            }
            for version in versions
        ]
        items.append({"metadata": {"name": group} if group else {}, "versions": listed})
    return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}


def api_versions(address: str) -> Json:
    return {
        "kind": "APIVersions", "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    }  # fmt: skip


def group(registry: Registry, name: str) -> Json | None:
    versions = registry.groups().get(name)
    if versions is None or name == "":
        return None
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def group_list(registry: Registry) -> Json:
    groups = [found for name in registry.groups() if (found := group(registry, name)) is not None]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def storage_hash(resource: Resource) -> str:
    digest = hashlib.sha256(f"{resource.group}/{resource.versions[0]}/{resource.kind}".encode()).digest()
    return base64.b64encode(digest[:8]).decode()


def resource_list(registry: Registry, name: str, version: str) -> Json | None:
    """The plain list of one group version."""
    resources = in_version(registry, name, version)
    if not resources:
        return None
    listed: list[Json] = []
    for resource in resources:
        listed += rows(entry(resource, version), resource)
    group_version = f"{name}/{version}" if name else version
    head: Json = {"kind": "APIResourceList", "groupVersion": group_version, "resources": listed}
    return head if name == "" else {"kind": "APIResourceList", "apiVersion": "v1"} | head


def rows(found: Json, resource: Resource) -> list[Json]:
    namespaced = found["scope"] == "Namespaced"
    row: Json = {
        "name": found["resource"], "singularName": found["singularResource"], "namespaced": namespaced,
        "kind": found["responseKind"]["kind"], "verbs": found["verbs"],
    }  # fmt: skip
    row |= {key: found[key] for key in ("shortNames", "categories") if key in found}
    if "create" in found["verbs"] and "watch" in found["verbs"]:
        row["storageVersionHash"] = storage_hash(resource)
    listed = [row]
    for sub in found.get("subresources", ()):
        kind = sub["responseKind"]
        extra: Json = {
            "name": f"{found['resource']}/{sub['subresource']}",
            "singularName": "",
            "namespaced": namespaced,
        }
        if kind["group"] not in ("", resource.group):
            extra |= {"group": kind["group"], "version": kind["version"]}
        listed.append(extra | {"kind": kind["kind"], "verbs": sub["verbs"]})
    return listed
