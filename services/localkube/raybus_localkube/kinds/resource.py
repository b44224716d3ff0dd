"""One resource (a plural in a group) and what a kind may decide about its objects."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson

from raybus_localkube.server import errors
from raybus_localkube.server.environment import Environment
from raybus_localkube.server.errors import Cause
from raybus_localkube.server.messages import User
from raybus_localkube.store.records import Record
from raybus_localkube.store.store import Store

if TYPE_CHECKING:
    from raybus_localkube.kinds.registry import Registry

Json = dict[str, Any]
ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(slots=True)
class Call:
    """What a verb and a strategy need to know of the world and of the request."""

    store: Store
    registry: Registry
    env: Environment
    user: User
    warnings: list[str] = field(default_factory=list)
    version: str = ""
    """The version that the request names."""
    memo: dict[str, Any] = field(default_factory=dict)
    """What one step of a request found out and a later one wants too."""
    dry_run: bool = False
    validation: str = "Warn"

    def strict(self, problems: Sequence[str], refuse: Callable[[str], Exception]) -> None:
        """Unknown and duplicate fields: refused, told in warnings, or passed over, as fieldValidation says."""
        if not problems or self.validation == "Ignore":
            return
        if self.validation == "Strict":
            raise refuse("strict decoding error: " + ", ".join(problems))
        self.warnings += problems


@dataclass(slots=True)
class Column:
    name: str
    type: str = "string"
    format: str = ""
    description: str = ""
    priority: int = 0

    def definition(self) -> Json:
        return {
            "name": self.name, "type": self.type, "format": self.format,
            "description": self.description or self.name, "priority": self.priority,
        }  # fmt: skip


class Strategy:
    """The default: nothing special. Objects are without `kind` and `apiVersion`; `new` may be changed in place, `old` may not."""

    accepts_no_version = True
    """PUT without a resourceVersion overwrites."""
    creates_on_update = False
    """PUT of a missing object creates it."""
    has_generation = False
    has_status = False

    def decode(self, raw: Any, resource: Resource, version: str, call: Call) -> tuple[Json, list[str]]:
        """The object as stored, and the unknown or duplicate fields. DecodeError if types are wrong."""
        raise NotImplementedError  # each sort of kind has its own way; there is none for all

    def encode(self, record: Record, resource: Resource, version: str) -> bytes:
        """The JSON of a stored object without the braces' first character and without kind and apiVersion."""
        return record.body

    def default(self, obj: Json, call: Call) -> None:
        """Fill in what the kind's defaults say."""

    def prepare_create(self, obj: Json, call: Call) -> None:
        """After defaults: what the server sets (allocated addresses, initial status)."""

    def prepare_update(self, new: Json, old: Json, subresource: str, call: Call) -> None:
        """Keep what the writer of this (sub)resource may not change."""
        if subresource == "status":
            for key in list(new):
                if key not in ("metadata", "status"):
                    del new[key]
            new.update({key: value for key, value in old.items() if key not in ("metadata", "status")})
            kept = {"labels", "annotations", "finalizers", "ownerReferences"} if self.status_keeps_metadata else set()
            for key in kept:
                if key in old["metadata"]:
                    new["metadata"][key] = old["metadata"][key]
                else:
                    new["metadata"].pop(key, None)
        elif self.has_status:
            new.pop("status", None)
            if "status" in old:
                new["status"] = old["status"]

    status_keeps_metadata = False

    def generation_changes(self, new: Json, old: Json) -> bool:
        return self.has_generation and new.get("spec") != old.get("spec")

    def validate(self, new: Json, old: Json | None, subresource: str, call: Call) -> list[Cause]:
        return []

    def name_problems(self, name: str, *, prefix: bool) -> list[str]:
        """Why this is no name for the kind; with `prefix`, why it is no generateName."""
        return subdomain_problems(name, prefix=prefix)

    def grace(self, obj: Json, asked: int | None) -> int | None:
        """The grace period in seconds with which the object is to be deleted; None if the kind knows none."""
        return None

    default_propagation = "Background"
    deletion_counts = True
    """The mark of deletion is a new generation."""
    deletion_finalizer = ""
    """What the server itself holds a deleted object with until it has cleaned up after it."""

    def holds(self, obj: Json) -> bool:
        """Whether something keeps the object after its deletion was asked for."""
        return bool(obj["metadata"].get("finalizers"))

    def mark_deleting(self, obj: Json) -> None:
        """What changes with deletionTimestamp; the default is how finalizers show."""
        obj["metadata"]["deletionGracePeriodSeconds"] = 0

    def after_write(self, record: Record, obj: Json, previous: Record | None, call: Call) -> None:
        """Follow-up writes of the server itself (not in a dry run); `obj` is what `record` holds."""

    def after_delete(self, record: Record, call: Call) -> None:
        """Follow-up when the object is gone."""

    def field(self, obj: Json, path: str) -> str | None:
        """The value of a field selector's path; None: not supported."""
        return None

    fields: frozenset[str] = frozenset()
    """Paths that field selectors may name, beside metadata.name and metadata.namespace."""

    def columns(self, version: str) -> Sequence[Column]:
        return (Column("Name", "string", "name"), Column("Age"))

    def row_conditions(self, obj: Json) -> list[Json]:
        """Conditions of a table's row, by which kubectl greys out what is finished."""
        return []

    def cells(self, obj: Json, version: str, call: Call) -> list[Any]:
        from raybus_localkube.kinds.ages import age  # noqa: PLC0415 -- printers are needed by tables only

        return [obj["metadata"]["name"], age(obj["metadata"].get("creationTimestamp"), call.env.now())]


@dataclass(slots=True)
class Resource:
    """One plural of one group, in all its served versions."""

    group: str
    versions: tuple[str, ...]
    kind: str
    plural: str
    strategy: Strategy
    singular: str = ""
    list_kind: str = ""
    namespaced: bool = True
    builtin: bool = True
    verbs: tuple[str, ...] = ALL_VERBS
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: dict[str, tuple[str, ...]] = field(default_factory=dict)
    returns_object: bool = False
    """DELETE answers with the object, not with a Status."""
    key: str = ""
    """Where objects are stored; two groups may share one store (events)."""
    discovery: Json | None = None
    """The entry of aggregated discovery, of built-in kinds as the real server gives it."""
    deprecated: dict[str, str] = field(default_factory=dict)
    """Version to the Warning that its use brings."""

    def __post_init__(self) -> None:
        self.key = self.key or errors.qualified(self.plural, self.group)
        self.singular = self.singular or self.kind.lower()
        self.list_kind = self.list_kind or f"{self.kind}List"

    def api_version(self, version: str) -> str:
        return f"{self.group}/{version}" if self.group else version

    def head(self, version: str) -> bytes:
        """The opening of an object of this version: `{"kind":...,"apiVersion":...,` to put before a body without its brace."""
        kind, api_version = orjson.dumps(self.kind), orjson.dumps(self.api_version(version))
        if self.builtin:
            return b'{"kind":' + kind + b',"apiVersion":' + api_version + b","
        return b'{"apiVersion":' + api_version + b',"kind":' + kind + b","

    def render(self, record: Record, version: str) -> bytes:
        return self.head(version) + self.strategy.encode(record, self, version)[1:]

    def subresources_of(self, version: str) -> dict[str, tuple[str, ...]]:
        """Subresource to its verbs; of custom resources it depends on the version."""
        return self.subresources

    def not_found(self, name: str) -> errors.ApiError:
        return errors.not_found(self.group, self.plural, name)

    def field_value(self, obj: Json, path: str) -> str:
        meta = obj["metadata"]
        if path == "metadata.name":
            return str(meta["name"])
        if path == "metadata.namespace":
            return str(meta.get("namespace", ""))
        return self.strategy.field(obj, path) or ""


SUBDOMAIN_HINT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
LABEL_HINT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an "
    "alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
DNS1035_HINT = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an "
    "alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
)


def _problems(name: str, limit: int, pattern: str, hint: str, *, prefix: bool) -> list[str]:
    if prefix and name.endswith("-"):
        name = name[:-1] + "a"
    found = [f"must be no more than {limit} characters"] if len(name) > limit else []
    return found if re.fullmatch(pattern, name) else [*found, hint]


LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"


def subdomain_problems(name: str, *, prefix: bool = False) -> list[str]:
    return _problems(name, 253, rf"{LABEL}(\.{LABEL})*", SUBDOMAIN_HINT, prefix=prefix)


def label_problems(name: str, *, prefix: bool = False) -> list[str]:
    return _problems(name, 63, LABEL, LABEL_HINT, prefix=prefix)


def dns1035_problems(name: str, *, prefix: bool = False) -> list[str]:
    return _problems(name, 63, r"[a-z]([-a-z0-9]*[a-z0-9])?", DNS1035_HINT, prefix=prefix)


def path_segment_problems(name: str) -> list[str]:
    if name in (".", ".."):
        return [f"may not be '{name}'"]
    return [f"may not contain '{char}'" for char in "/%" if char in name]
