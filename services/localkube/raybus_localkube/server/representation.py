"""Answers in the form that was negotiated: objects, lists, Tables, metadata."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
import yaml

from raybus_localkube.kinds.resource import Call, Resource
from raybus_localkube.server.messages import JSON_TYPE, Response
from raybus_localkube.server.negotiation import Representation
from raybus_localkube.server.reading import Page
from raybus_localkube.store.records import Record

Json = dict[str, Any]
YAML_TYPE = "application/yaml"


def send(body: bytes, representation: Representation, status: int = 200) -> Response:
    if representation.yaml:
        text = yaml.dump(orjson.loads(body), Dumper=yaml.CSafeDumper, sort_keys=True, default_flow_style=False)
        return Response(status, text.encode(), YAML_TYPE)
    return Response(status, body, JSON_TYPE)


class Presenter:
    """Renders the objects of one resource and version for one request."""

    def __init__(
        self, call: Call, resource: Resource, version: str, representation: Representation, include: str = ""
    ) -> None:
        self.call, self.resource, self.version = call, resource, version
        self.representation, self.include = representation, include or "Metadata"

    def one(self, record: Record, status: int = 200) -> Response:
        rendered = self.resource.render(record, self.version)
        form = self.representation.form
        if form == "table":
            rendered = self.table([rendered], {"resourceVersion": str(record.rv)} if record.rv else {}, columns=True)
        elif form == "metadata":
            rendered = orjson.dumps(self.partial(orjson.loads(rendered)))
        return send(rendered, self.representation, status)

    def page(self, page: Page) -> Response:
        resource, version = self.resource, self.version
        rendered = [resource.render(record, version) for record in page.records]
        form = self.representation.form
        if form == "table":
            return send(self.table(rendered, page.meta(builtin=True), columns=True), self.representation)
        if form == "metadata":
            items = [self.partial(orjson.loads(item)) for item in rendered]
            listed: Json = {"kind": "PartialObjectMetadataList", "apiVersion": self.meta_version}
            listed |= {"metadata": page.meta(builtin=True), "items": items or None}
            return send(orjson.dumps(listed), self.representation)
        meta = orjson.dumps(page.meta(builtin=resource.builtin))
        if resource.builtin:
            skip = len(resource.head(version))
            rendered = [b"{" + item[skip:] for item in rendered]
        kind, api_version = orjson.dumps(resource.list_kind), orjson.dumps(resource.api_version(version))
        head = b'{"kind":' + kind + b',"apiVersion":' + api_version + b',"metadata":' + meta
        return send(head + b',"items":[' + b",".join(rendered) + b"]}", self.representation)

    @property
    def meta_version(self) -> str:
        return f"meta.k8s.io/{self.representation.version}"

    def partial(self, obj: Json) -> Json:
        return {"kind": "PartialObjectMetadata", "apiVersion": self.meta_version, "metadata": obj["metadata"]}

    def table(self, rendered: Sequence[bytes], meta: Json, *, columns: bool) -> bytes:
        strategy = self.resource.strategy
        rows = []
        for item in rendered:
            obj = orjson.loads(item)
            row: Json = {"cells": strategy.cells(obj, self.version, self.call)}
            if conditions := strategy.row_conditions(obj):
                row["conditions"] = conditions
            shown = {"None": None, "Object": obj}
            row["object"] = shown[self.include] if self.include in shown else self.partial(obj)
            rows.append(row)
        definitions = [column.definition() for column in strategy.columns(self.version)] if columns else None
        head: Json = {"kind": "Table", "apiVersion": self.meta_version, "metadata": meta}
        return orjson.dumps(head | {"columnDefinitions": definitions, "rows": rows})

    def frame(self, kind: str, obj: bytes, first: bool) -> bytes:
        """A watch frame."""
        form = self.representation.form
        if form == "table":
            obj = self.table_frame(kind, obj, first)
        elif form == "metadata":
            obj = orjson.dumps(self.partial(orjson.loads(obj)))
        return b'{"type":"' + kind.encode() + b'","object":' + obj + b"}\n"

    def table_frame(self, kind: str, obj: bytes, first: bool) -> bytes:
        parsed = orjson.loads(obj)
        meta = {"resourceVersion": parsed["metadata"]["resourceVersion"]}
        if kind != "BOOKMARK":
            return self.table([obj], meta, columns=first)
        cells = [None] * len(self.resource.strategy.columns(self.version))
        definitions = (
            [column.definition() for column in self.resource.strategy.columns(self.version)] if first else None
        )
        head: Json = {"kind": "Table", "apiVersion": self.meta_version, "metadata": meta}
        return orjson.dumps(
            head | {"columnDefinitions": definitions, "rows": [{"cells": cells, "object": self.partial(parsed)}]}
        )
