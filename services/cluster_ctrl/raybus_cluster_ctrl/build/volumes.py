"""Volumes that Ray needs: shared memory, logs, tokens. Pure; what the user mounted at a place stays as it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Json = Mapping[str, Any]

SHARED_MEMORY = "shared-mem"
LOGS = "ray-logs"
LOGS_PATH = "/tmp/ray"  # noqa: S108 - where Ray writes its logs inside the pod
TOKEN = "ray-token"  # noqa: S105 - the name of a volume
_TOKEN_PATH = "/var/run/secrets/ray.io/serviceaccount"  # noqa: S105 - the place of a mount


def mounts_of(container: Json) -> Sequence[Json]:
    mounts: Sequence[Json] = container.get("volumeMounts") or ()
    return mounts


def with_mount(container: dict[str, Any], mount: Json) -> dict[str, Any]:
    """The container with this mount too, unless something is mounted at its path already."""
    mounts = mounts_of(container)
    if any(given.get("mountPath") == mount["mountPath"] for given in mounts):
        return container
    return {**container, "volumeMounts": [*mounts, mount]}


def with_volume(volumes: list[Json], volume: Json) -> list[Json]:
    """The volumes and this one, unless there is one of its name."""
    return volumes if any(given.get("name") == volume["name"] for given in volumes) else [*volumes, volume]


def mounts_volume_of(container: Json, name: str) -> bool:
    return any(given.get("name") == name for given in mounts_of(container))


def shared_memory(container: Json) -> Json:
    """Shared memory, as large as the container's memory limit, else its request."""
    resources = container.get("resources") or {}
    size = (resources.get("limits") or {}).get("memory") or (resources.get("requests") or {}).get("memory")
    return {"name": SHARED_MEMORY, "emptyDir": {"medium": "Memory"} | ({"sizeLimit": size} if size else {})}


def logs() -> Json:
    return {"name": LOGS, "emptyDir": {}}


def token() -> Json:
    source = {"serviceAccountToken": {"path": "token"}}
    return {"name": TOKEN, "projected": {"sources": [source]}}


def with_token_mount(container: dict[str, Any]) -> dict[str, Any]:
    if mounts_volume_of(container, TOKEN):
        return container
    mount = {"name": TOKEN, "mountPath": _TOKEN_PATH, "readOnly": True}
    return {**container, "volumeMounts": [*mounts_of(container), mount]}
