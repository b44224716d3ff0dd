"""Fetches what a pod's containers and volumes need from the API server, and writes volumes to disk."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from raybus.domain import kinds, times
from raybus.kube import errors
from raybus.kube.client import KubeClient
from raybus_localkube.kubelet import podspec, volumes
from raybus_localkube.kubelet.environment import ConfigError, Facts, Reference, Sources, decode_source
from raybus_localkube.kubelet.podspec import Pod
from raybus_localkube.kubelet.resources import SERVICE_ACCOUNT
from raybus_localkube.kubelet.volumes import File, TokenRequest

_KINDS = {"ConfigMap": kinds.CONFIG_MAP, "Secret": kinds.SECRET}
RENEW_AT = 0.8  # of a token's life
RENEW_MIN = timedelta(seconds=10)


class Materials:
    def __init__(self, client: KubeClient, folder: Path) -> None:
        self._client = client
        self._folder = folder

    def folder(self, pod: Pod) -> Path:
        """Where the pod's volumes lie."""
        return self._folder / "pods" / podspec.uid(pod) / "volumes"

    async def sources(self, pod: Pod, wanted: Collection[Reference]) -> Sources:
        """ConfigMaps and Secrets of the pod's namespace; absent ones are left out. Raises KubeError."""
        namespace = pod["metadata"]["namespace"]
        pairs = sorted(set(wanted))
        found = await asyncio.gather(*(self._source(namespace, pair) for pair in pairs))
        return Sources({pair: data for pair, data in zip(pairs, found, strict=True) if data is not None})

    async def _source(self, namespace: str, wanted: Reference) -> Mapping[str, bytes] | None:
        kind, name = wanted
        try:
            obj = await self._client.get(_KINDS[kind], namespace, name)
        except errors.NotFound:
            return None
        return decode_source({**obj, "kind": kind})

    async def fill(self, pod: Pod, facts: Facts) -> datetime | None:
        """Write all volumes that come from the API; when the first token has to be renewed. Raises ConfigError, KubeError."""
        sources = await self.sources(pod, list(volumes.references(pod)))
        requests = sorted(set(volumes.token_requests(pod)), key=lambda request: (request.audience, request.seconds))
        answers = [await self._token(pod, request) for request in requests]
        tokens = {request: token for request, (token, _) in zip(requests, answers, strict=True)}
        for volume in pod["spec"].get("volumes") or ():
            if volume.get("hostPath"):
                self._make_host_path(volume["hostPath"])
                continue
            target = self.folder(pod) / volume["name"]
            target.mkdir(parents=True, exist_ok=True)
            if volumes.is_folder(volume):
                target.chmod(0o777)
            else:
                _write_all(target, volumes.files(pod, volume, facts, sources, tokens))
        return min((due for _, due in answers), default=None)

    async def _token(self, pod: Pod, request: TokenRequest) -> tuple[str, datetime]:
        meta = pod["metadata"]
        account = pod["spec"].get("serviceAccountName") or "default"
        bound = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]}
        audiences = [request.audience] if request.audience else []
        spec = {"audiences": audiences, "expirationSeconds": request.seconds, "boundObjectRef": bound}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        path = SERVICE_ACCOUNT.path(meta["namespace"], account, "token")
        try:
            answer = await self._client.request("POST", path, body=body)
        except errors.NotFound as error:
            raise ConfigError(f"token of service account {account}: {error.message}") from error
        now = datetime.now(UTC)
        expires = times.parse(answer["status"].get("expirationTimestamp")) or now + timedelta(seconds=request.seconds)
        return str(answer["status"]["token"]), now + max((expires - now) * RENEW_AT, RENEW_MIN)

    @staticmethod
    def _make_host_path(volume: Mapping[str, Any]) -> None:
        path, kind = Path(volume["path"]), volume.get("type") or ""
        if kind == "DirectoryOrCreate":
            path.mkdir(parents=True, exist_ok=True)
        elif kind == "FileOrCreate":
            path.touch()
        if not path.exists():
            raise ConfigError(f"hostPath {path}: no such file or folder on this machine")


def _write_all(folder: Path, files: Mapping[str, File]) -> None:
    """Each file is replaced whole, so that a reader sees the old or the new one."""
    for name, file in files.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f".{target.name}.part")
        descriptor = os.open(part, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600)
        with os.fdopen(descriptor, "wb") as out:
            out.write(file.content)
        part.chmod(file.mode)
        part.replace(target)
