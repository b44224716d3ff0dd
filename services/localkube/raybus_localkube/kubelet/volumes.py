"""What a Pod's volumes hold and where a container sees them.

Pure. What may live here: from a Pod and the data of ConfigMaps, Secrets and tokens to files and mounts. Writing them is materials.py's.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from raybus.domain import quantities
from raybus_localkube.kubelet import environment
from raybus_localkube.kubelet.environment import ConfigError, Facts, Reference, Sources
from raybus_localkube.kubelet.podspec import Container, Pod, all_containers
from raybus_localkube.node.protocol import Mount

FILE_MODE = 0o644
TOKEN_TTL_S = 3600


@dataclass(frozen=True, slots=True)
class File:
    content: bytes
    mode: int = FILE_MODE


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """A service account token that a volume needs: seconds of validity, audience "" for the API server's own."""

    audience: str
    seconds: int


Tokens = Mapping[TokenRequest, str]


@dataclass(frozen=True, slots=True)
class MemoryVolume:
    name: str
    size: int


def references(pod: Pod) -> Iterator[Reference]:
    """ConfigMaps and Secrets that the Pod's volumes need."""
    for volume in pod["spec"].get("volumes") or ():
        for source in _sources(volume):
            if "configMap" in source:
                yield "ConfigMap", str(source["configMap"].get("name") or "")
            if "secret" in source:
                yield "Secret", str(source["secret"].get("secretName") or source["secret"].get("name") or "")


def token_requests(pod: Pod) -> Iterator[TokenRequest]:
    for volume in pod["spec"].get("volumes") or ():
        for source in _sources(volume):
            if "serviceAccountToken" in source:
                yield _token_request(source["serviceAccountToken"])


def _token_request(wanted: Mapping[str, Any]) -> TokenRequest:
    return TokenRequest(wanted.get("audience") or "", int(wanted.get("expirationSeconds") or TOKEN_TTL_S))


def _sources(volume: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The sources of a volume, a plain one as its only source."""
    if volume.get("projected"):
        return list(volume["projected"].get("sources") or ())
    return [volume]


def memory_volumes(pod: Pod, memory: int) -> list[MemoryVolume]:
    """The emptyDirs in memory; without a limit as large as the largest container's memory."""
    found = []
    for volume in pod["spec"].get("volumes") or ():
        empty = volume.get("emptyDir")
        if empty and empty.get("medium") == "Memory":
            limit = quantities.parse(empty.get("sizeLimit"))
            found.append(MemoryVolume(volume["name"], limit.rounded_up if limit else memory))
    return found


def is_folder(volume: Mapping[str, Any]) -> bool:
    """A volume that begins empty on disk."""
    return volume.get("emptyDir") is not None and volume["emptyDir"].get("medium") != "Memory"


def files(pod: Pod, volume: Mapping[str, Any], facts: Facts, sources: Sources, tokens: Tokens) -> dict[str, File]:
    """The files (relative path -> content) of a volume that is filled from the API. Raises ConfigError."""
    plain = (
        volume.get("projected") or volume.get("configMap") or volume.get("secret") or volume.get("downwardAPI") or {}
    )
    mode = int(plain.get("defaultMode") or FILE_MODE)
    result: dict[str, File] = {}
    for source in _sources(volume):
        result |= _files_of(pod, source, mode, facts, sources, tokens)
    for path in result:
        if path.startswith("/") or ".." in path.split("/"):
            raise ConfigError(f"volume {volume['name']}: path {path} must be relative, without ..")
    return result


def _files_of(  # noqa: PLR0917 -- all of it is needed
    pod: Pod, source: Mapping[str, Any], mode: int, facts: Facts, sources: Sources, tokens: Tokens
) -> dict[str, File]:
    if "configMap" in source:
        wanted = source["configMap"]
        return _keyed_files("ConfigMap", str(wanted.get("name") or ""), wanted, mode, sources)
    if "secret" in source:
        wanted = source["secret"]
        return _keyed_files("Secret", str(wanted.get("secretName") or wanted.get("name") or ""), wanted, mode, sources)
    if "serviceAccountToken" in source:
        wanted = source["serviceAccountToken"]
        return {wanted["path"]: File(tokens[_token_request(wanted)].encode(), mode)}
    if "downwardAPI" in source:
        return {
            item["path"]: File(_downward(pod, item, facts).encode(), int(item.get("mode") or mode))
            for item in source["downwardAPI"].get("items") or ()
        }
    return {}


def _downward(pod: Pod, item: Mapping[str, Any], facts: Facts) -> str:
    if "fieldRef" in item:
        return environment.field_value(pod, item["fieldRef"]["fieldPath"], facts)
    wanted = item["resourceFieldRef"]
    named = next((c for c in all_containers(pod) if c["name"] == wanted.get("containerName")), None)
    if named is None:
        raise ConfigError(f"resourceFieldRef of {item['path']}: no container {wanted.get('containerName')!r}")
    return environment.resource_value(pod, named, wanted, facts)


def _keyed_files(kind: str, name: str, wanted: Mapping[str, Any], mode: int, sources: Sources) -> dict[str, File]:
    optional = bool(wanted.get("optional"))
    found = sources.of(kind, name, optional=optional)
    if found is None:
        return {}
    items = wanted.get("items")
    if not items:
        return {key: File(value, mode) for key, value in found.items()}
    result = {}
    for item in items:
        if item["key"] in found:
            result[item["path"]] = File(found[item["key"]], int(item.get("mode") or mode))
        elif not optional:
            raise ConfigError(f'references non-existent {kind} key: {item["key"]} of "{name}"')
    return result


def mounts(pod: Pod, container: Container, folder: str, env: Mapping[str, str]) -> list[Mount]:
    """A container's mounts; volumes lie in `folder` by name, hostPath ones where they say. Raises ConfigError."""
    volumes = {volume["name"]: volume for volume in pod["spec"].get("volumes") or ()}
    result = []
    for wanted in container.get("volumeMounts") or ():
        volume = volumes.get(wanted["name"])
        if volume is None:
            raise ConfigError(f'volumeMount "{wanted["name"]}" of container "{container["name"]}" names no volume')
        source = volume["hostPath"]["path"] if volume.get("hostPath") else f"{folder}/{wanted['name']}"
        inner = wanted.get("subPath") or environment.expand(wanted.get("subPathExpr") or "", env)
        if inner:
            if inner.startswith("/") or ".." in inner.split("/"):
                raise ConfigError(f'subPath "{inner}" must be relative, without ..')
            source = posixpath.join(source, inner)
        filled = not (is_folder(volume) or volume.get("emptyDir") is not None or volume.get("hostPath"))
        result.append(
            Mount(source=source, target=wanted["mountPath"], read_only=bool(wanted.get("readOnly")) or filled)
        )
    return result
