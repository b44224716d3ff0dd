"""The strategy of a custom resource: what its definition says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from raybus_localkube.kinds import jsonpath
from raybus_localkube.kinds.ages import age
from raybus_localkube.kinds.custom import rules, shaping, validation
from raybus_localkube.kinds.custom.sharing import SCHEMAS
from raybus_localkube.kinds.decode import DecodeError, Decoder, go_kind, plain
from raybus_localkube.kinds.resource import Call, Column, Resource, Strategy
from raybus_localkube.server.errors import ApiError, Cause
from raybus_localkube.store.records import Json, Record

TYPE_META = ("apiVersion", "kind", "metadata")


class Version:
    """One version of a definition, prepared for use."""

    def __init__(self, given: Json) -> None:
        self.name: str = given["name"]
        self.schema: Json = SCHEMAS.share(((given.get("schema") or {}).get("openAPIV3Schema")) or {})
        self.body = self.without_metadata(self.schema)
        self.rules = rules.build(self.schema)
        self.embedded = shaping.has_embedded(self.body, {})
        subresources = given.get("subresources") or {}
        self.has_status = "status" in subresources
        self.scale: Json | None = subresources.get("scale")
        self.columns: list[Json] | None = given.get("additionalPrinterColumns") or None
        self.selectable = [field["jsonPath"] for field in given.get("selectableFields") or ()]

    @staticmethod
    def without_metadata(schema: Json) -> Json:
        properties = {key: inner for key, inner in (schema.get("properties") or {}).items() if key not in TYPE_META}
        return schema | {"properties": properties}

    def subresources(self) -> dict[str, tuple[str, ...]]:
        verbs: tuple[str, ...] = ("get", "patch", "update")
        names = [name for name, present in (("status", self.has_status), ("scale", bool(self.scale))) if present]
        return dict.fromkeys(names, verbs)


class CustomStrategy(Strategy):
    accepts_no_version = False
    has_generation = True

    def __init__(self, definition: Json, versions: dict[str, Version] | None = None) -> None:
        """`versions` are those of the definition, if they are prepared already. RuleError if a rule does not compile."""
        spec = definition["spec"]
        self.versions = versions or {given["name"]: Version(given) for given in spec["versions"]}
        self.storage = next(given["name"] for given in spec["versions"] if given["storage"])
        self.terminating = ""
        """Name of the definition, once its deletion was asked for."""
        self.preserve = bool(spec.get("preserveUnknownFields"))
        self.has_status = self.versions[self.storage].has_status
        self.fields = frozenset(path.lstrip(".") for version in self.versions.values() for path in version.selectable)

    def decode(self, raw: Any, resource: Resource, version: str, call: Call) -> tuple[Json, list[str]]:
        given = dict(raw)
        given.pop("apiVersion", None)
        given.pop("kind", None)
        decoder = Decoder()
        meta = given.pop("metadata", None)
        if meta is not None and not isinstance(meta, dict):
            raise DecodeError(f"json: cannot unmarshal {go_kind(meta)} into Go value of type v1.ObjectMeta")
        read = decoder.struct(meta or {}, "ObjectMeta", "ObjectMeta", "metadata.", "")
        problems = decoder.strict
        asked, stored = self.versions[version], self.versions[self.storage]
        obj: Json = shaping.plain_numbers(given)
        found: list[str] = []
        if asked is not stored:
            shaping.default(obj, asked.body)
        if not self.preserve:
            shaping.prune(obj, stored.body, "", found)
        embedded: list[str] = []
        if stored.embedded:
            shaping.read_embedded(obj, stored.body, "", embedded)
        if asked is not stored:
            found = []  # a foreign version's unknown fields are not told apart from those that conversion drops
        # Stored objects start with their metadata, as every other kind's do.
        return {"metadata": read, **plain(obj)}, problems + sorted(found) + embedded

    def default(self, obj: Json, call: Call) -> None:
        shaping.default(obj, self.versions[self.storage].body)

    def reshape(self, obj: Json) -> None:
        """Bring a stored object into the form of a changed schema: new defaults."""
        shaping.default(obj, self.versions[self.storage].body)

    def prepare_create(self, obj: Json, call: Call) -> None:
        if self.terminating:
            message = "create not allowed while custom resource definition is terminating"
            raise ApiError(403, "Forbidden", message)
        if self.has_status:
            obj.pop("status", None)

    def after_delete(self, record: Record, call: Call) -> None:
        if self.terminating:
            from raybus_localkube.kinds.custom import definitions  # noqa: PLC0415 -- definitions make strategies

            group = self.terminating.partition(".")[2]
            resource = call.registry.named(group, self.terminating.partition(".")[0])
            if resource is not None and not call.store.records(resource.key):
                definitions.release(call, self.terminating)

    status_keeps_metadata = True

    def generation_changes(self, new: Json, old: Json) -> bool:
        ignored = ("metadata", "status") if self.has_status else ("metadata",)
        return {k: v for k, v in new.items() if k not in ignored} != {k: v for k, v in old.items() if k not in ignored}

    def validate(self, new: Json, old: Json | None, subresource: str, call: Call) -> list[Cause]:
        # An object is held to the schema of the version in which it was written.
        version = self.versions.get(call.version) or self.versions[self.storage]
        before = validation.MISSING if old is None else old
        causes = validation.validate(new, version.body, before)
        if validation.blocks_rules(causes):
            return [*causes, validation.SKIPPED] if version.rules is not None or causes else causes
        return causes + rules.evaluate(version.rules, new, before)

    def field(self, obj: Json, path: str) -> str | None:
        found = jsonpath.find(obj, f".{path}")
        if not found or found[0] is None:
            return None
        return (
            {True: "true", False: "false"}.get(found[0], str(found[0])) if isinstance(found[0], bool) else str(found[0])
        )

    def columns(self, version: str) -> Sequence[Column]:
        given = self.versions[version].columns
        if given is None:
            return (Column("Name", "string", "name"), Column("Age", "date"))
        prefix = "Custom resource definition column (in JSONPath format): "
        return [
            Column("Name", "string", "name"),
            *(
                Column(
                    c["name"],
                    c["type"],
                    c.get("format", ""),
                    c.get("description") or prefix + c["jsonPath"],
                    c.get("priority", 0),
                )
                for c in given
            ),
        ]

    def cells(self, obj: Json, version: str, call: Call) -> list[Any]:
        given = self.versions[version].columns
        name = obj["metadata"]["name"]
        if given is None:
            return [name, age(obj["metadata"].get("creationTimestamp"), call.env.now())]
        return [name, *(self.cell(obj, column, call) for column in given)]

    @staticmethod
    def cell(obj: Json, column: Json, call: Call) -> Any:
        try:
            found = jsonpath.find(obj, column["jsonPath"])
        except ValueError:
            return None
        if not found or found[0] is None:
            return None
        value = found[0]
        match column["type"]:
            case "date":
                return age(value, call.env.now()) if isinstance(value, str) else "<invalid>"
            case "integer":
                return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
            case "number":
                return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None
            case "boolean":
                return value if isinstance(value, bool) else None
        if isinstance(value, (dict, list)):
            import orjson  # noqa: PLC0415 -- rare

            return orjson.dumps(value).decode()
        return {True: "true", False: "false"}.get(value, str(value)) if isinstance(value, bool) else str(value)


class CustomResource(Resource):
    """A resource whose subresources depend on the version."""

    def subresources_of(self, version: str) -> dict[str, tuple[str, ...]]:
        assert isinstance(self.strategy, CustomStrategy)
        return self.strategy.versions[version].subresources()
