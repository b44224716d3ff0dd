"""The verbs of objects: get, list, create, replace, patch, delete, with preconditions."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Literal

from raybus.domain import kinds
from raybus.domain.kinds import Kind
from raybus.kube import errors
from raybus.kube.gate import Lane
from raybus.kube.raw import Query, RawClient

Json = Mapping[str, Any]

PAGE_SIZE = 500
PAGES_MAX = 20_000
MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"  # JSON is YAML


class KubeClient(RawClient):
    """`async with KubeClient(config) as client`. Answers are the server's objects as dicts; refusals raise KubeError."""

    _cluster_uid = ""

    async def get(
        self, kind: Kind, namespace: str | None, name: str, *, timeout_s: float | None = None
    ) -> dict[str, Any]:
        return await self.request("GET", kind.path(namespace, name), timeout_s=timeout_s)

    async def list_pages(
        self,
        kind: Kind,
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
        page_size: int = PAGE_SIZE,
        timeout_s: float | None = None,
    ) -> AsyncGenerator[tuple[list[dict[str, Any]], str]]:
        """Pages of objects with the list's resourceVersion; together one consistent snapshot. Items get apiVersion and kind.

        Raises Expired when the snapshot is gone before the last page was read: begin again.
        """
        query: dict[str, str | int | bool] = {"limit": page_size}
        if label_selector:
            query["labelSelector"] = label_selector
        if field_selector:
            query["fieldSelector"] = field_selector
        for _ in range(PAGES_MAX):
            page = await self.request("GET", kind.path(namespace), query=query, timeout_s=timeout_s)
            items: list[dict[str, Any]] = page.get("items") or []
            for item in items:  # the server leaves these two out of the items of built-in kinds
                item.setdefault("apiVersion", kind.api_version)
                item.setdefault("kind", kind.kind)
            yield items, page["metadata"].get("resourceVersion", "")
            token = page["metadata"].get("continue")
            if not token:
                return
            query["continue"] = token
        raise errors.KubeError(0, "TooLong", f"list of {kind.plural}: more than {PAGES_MAX} pages")

    async def list_all(
        self, kind: Kind, namespace: str | None = None, *, label_selector: str = "", field_selector: str = ""
    ) -> list[dict[str, Any]]:  # fmt: skip
        """All objects of a kind; meant for few."""
        pages = self.list_pages(kind, namespace, label_selector=label_selector, field_selector=field_selector)
        return [item async for items, _ in pages for item in items]

    async def create(
        self, kind: Kind, body: Json, *, namespace: str | None = None, query: Query | None = None,
        timeout_s: float | None = None, lane: Lane = Lane.FIRST,
    ) -> dict[str, Any]:  # fmt: skip
        """POST; the namespace is the body's unless given."""
        namespace = namespace or body["metadata"].get("namespace")
        path = kind.path(namespace)
        return await self.request("POST", path, query=query, body=body, timeout_s=timeout_s, lane=lane)

    async def replace(self, kind: Kind, body: Json, *, subresource: str | None = None) -> dict[str, Any]:
        """PUT under the body's own resourceVersion."""
        meta = body["metadata"]
        return await self.request("PUT", kind.path(meta.get("namespace"), meta["name"], subresource), body=body)

    async def merge_patch(
        self, kind: Kind, namespace: str | None, name: str, patch: Json, *, uid: str | None = None,
        resource_version: str | None = None, subresource: str | None = None, timeout_s: float | None = None,
        lane: Lane = Lane.FIRST,
    ) -> dict[str, Any]:  # fmt: skip
        """Merge patch; `uid` and `resource_version` are preconditions (Conflict). Status: subresource="status"."""
        body = with_preconditions(patch, uid, resource_version)
        path = kind.path(namespace, name, subresource)
        try:
            return await self.request(
                "PATCH", path, body=body, content_type=MERGE_PATCH, timeout_s=timeout_s, lane=lane
            )
        except errors.Invalid as error:
            if uid is not None and error.about("metadata.uid"):  # to the server a changed field, to us another object
                raise errors.Conflict(error.code, error.reason, error.message, details=error.details) from error
            raise

    async def json_patch(
        self, kind: Kind, namespace: str | None, name: str, operations: Sequence[Json], *, uid: str | None = None,
        resource_version: str | None = None, subresource: str | None = None, timeout_s: float | None = None,
        lane: Lane = Lane.FIRST,
    ) -> dict[str, Any]:  # fmt: skip
        """JSON patch; preconditions become `test` operations, whose failure the server calls Invalid (422)."""
        tests = [
            {"op": "test", "path": f"/metadata/{field}", "value": value}
            for field, value in (("uid", uid), ("resourceVersion", resource_version))
            if value is not None
        ]
        path = kind.path(namespace, name, subresource)
        body = [*tests, *operations]
        return await self.request("PATCH", path, body=body, content_type=JSON_PATCH, timeout_s=timeout_s, lane=lane)

    async def apply(
        self, kind: Kind, body: Json, *, manager: str, force: bool = False, timeout_s: float | None = None
    ) -> dict[str, Any]:
        """Server-side apply: makes the object or brings the fields given to these values. Conflict: a field has another manager."""
        meta = body["metadata"]
        query = {"fieldManager": manager, "force": str(force).lower()}
        path = kind.path(meta.get("namespace"), meta["name"])
        return await self.request("PATCH", path, query=query, body=body, content_type=APPLY_PATCH, timeout_s=timeout_s)

    async def delete(
        self, kind: Kind, namespace: str | None, name: str, *, uid: str | None = None,
        resource_version: str | None = None, propagation: Literal["Background", "Foreground", "Orphan"] = "Background",
        grace_seconds: int | None = None, timeout_s: float | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """DELETE; preconditions raise Conflict. The answer is the object, or a Status once it is gone."""
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        wanted = {"uid": uid, "resourceVersion": resource_version}
        if preconditions := {field: value for field, value in wanted.items() if value is not None}:
            options["preconditions"] = preconditions
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        return await self.request("DELETE", kind.path(namespace, name), body=options, timeout_s=timeout_s)

    async def cluster_uid(self) -> str:
        """What identifies this cluster for good: the uid of its namespace kube-system."""
        if not self._cluster_uid:
            system = await self.get(kinds.NAMESPACE, None, "kube-system")
            self._cluster_uid = system["metadata"]["uid"]
        return self._cluster_uid


def with_preconditions(patch: Json, uid: str | None, resource_version: str | None) -> Json:
    """The merge patch with metadata that the server compares: a mismatch is a Conflict."""
    wanted = {"uid": uid, "resourceVersion": resource_version}
    metadata = {field: value for field, value in wanted.items() if value is not None}
    if not metadata:
        return patch
    return {**patch, "metadata": {**(patch.get("metadata") or {}), **metadata}}
