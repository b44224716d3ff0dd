"""What the runtime needs of the outside world, no more. raybus.kube and raybus.bus fulfil these; tests and simulations as well."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, Protocol

from raybus.decide.actions import Json, Propagation
from raybus.decide.plan import WatchRayJob
from raybus.decide.tree import RootKey, Tree
from raybus.domain.kinds import Kind
from raybus.kube.gate import Lane


class Kube(Protocol):
    """An API server. Refusals raise raybus.kube.errors.KubeError."""

    async def get(
        self, kind: Kind, namespace: str | None, name: str, *, timeout_s: float | None = None
    ) -> dict[str, Any]: ...

    async def list_all(
        self, kind: Kind, namespace: str | None = None, *, label_selector: str = "", field_selector: str = ""
    ) -> list[dict[str, Any]]: ...

    async def create(self, kind: Kind, body: Json, *, timeout_s: float | None = None) -> dict[str, Any]: ...

    async def merge_patch(
        self,
        kind: Kind,
        namespace: str | None,
        name: str,
        patch: Json,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        subresource: str | None = None,
        timeout_s: float | None = None,
        lane: Lane = Lane.FIRST,
    ) -> dict[str, Any]: ...

    async def delete(
        self,
        kind: Kind,
        namespace: str | None,
        name: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        propagation: Propagation = "Background",
        grace_seconds: int | None = None,
        timeout_s: float | None = None,
    ) -> dict[str, Any]: ...


class Mirror(Protocol):
    """The trees of the owned partitions, as news and own writes show them."""

    def tree(self, key: RootKey) -> Tree | None: ...

    def roots(self, partition: int | None = None) -> Iterable[RootKey]: ...

    def upsert(self, obj: Json) -> None: ...

    def deleted(self, kind: str, namespace: str, name: str, uid: str) -> None: ...

    def fresh(self, key: RootKey, objects: Iterable[Json]) -> None: ...

    def caught_up(self, partition: int) -> bool: ...

    def marker_age_s(self, kind: str) -> float | None: ...


class Events(Protocol):
    """Never waits, never fails."""

    def record(
        self,
        regarding: Json,
        type: Literal["Normal", "Warning"],  # noqa: A002 - the field's name in Kubernetes
        reason: str,
        action: str,
        note: str,
    ) -> None: ...


class History(Protocol):
    """Never waits, never fails."""

    def record(self, namespace: str, kind: str, name: str, body: Mapping[str, Any]) -> None: ...


class Prober(Protocol):
    """Asks Ray about one submission; never raises for what Ray answers, or does not."""

    async def probe(self, watch: WatchRayJob) -> Mapping[str, Any]: ...
