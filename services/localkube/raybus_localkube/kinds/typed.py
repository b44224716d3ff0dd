"""The strategy of built-in kinds: objects are read through the schemas of the data file."""

from __future__ import annotations

from typing import Any

from raybus_localkube.kinds.decode import Decoder
from raybus_localkube.kinds.resource import Call, Resource, Strategy

Json = dict[str, Any]


class TypedStrategy(Strategy):
    def __init__(self, schema: str) -> None:
        self.schema = schema

    def decode(self, raw: Any, resource: Resource, version: str, call: Call) -> tuple[Json, list[str]]:
        decoder = Decoder()
        obj = decoder.decode(raw, self.schema)
        obj.pop("kind", None)
        obj.pop("apiVersion", None)
        return obj, decoder.strict
