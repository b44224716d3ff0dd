"""ObjectMeta: what the server owns of it, and its rules. Time, uids and chance come from the Environment that is given."""

from __future__ import annotations

import re
from typing import Any

import orjson

from raybus_localkube.kinds.resource import Resource, label_problems, subdomain_problems
from raybus_localkube.server.environment import Environment, timestamp
from raybus_localkube.server.errors import Cause, forbidden_field, invalid, quote, required
from raybus_localkube.store.selectors import NAME, NAME_HINT, VALUE_HINT

Json = dict[str, Any]
STANDARD_FINALIZERS = ("kubernetes", "foregroundDeletion", "orphan")
GENERATED_BASE_LIMIT = 58
ANNOTATIONS_LIMIT = 256 << 10
SERVER_OWNED = (
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "selfLink",
    "managedFields",
)


def initialise(obj: Json, resource: Resource, env: Environment) -> None:
    """Make a given object's metadata that of a new one."""
    meta = obj["metadata"]
    for key in (
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "selfLink",
        "managedFields",
    ):
        meta.pop(key, None)
    meta["uid"] = env.uid()
    meta["creationTimestamp"] = timestamp(env.now())
    if resource.strategy.has_generation or not resource.builtin:
        meta["generation"] = 1
    if not resource.namespaced:
        meta.pop("namespace", None)
    if not meta.get("name") and meta.get("generateName"):
        meta["name"] = meta["generateName"][:GENERATED_BASE_LIMIT] + env.suffix()


def keep_server_owned(new: Json, old: Json) -> None:
    """A writer's words about what the server owns are passed over."""
    fresh, kept = new["metadata"], old["metadata"]
    for key in SERVER_OWNED:
        if key in kept:
            fresh[key] = kept[key]
        else:
            fresh.pop(key, None)
    if not fresh.get("uid"):
        fresh["uid"] = kept["uid"]
    if "namespace" in kept:
        fresh["namespace"] = kept["namespace"]


def validate(meta: Json, resource: Resource, old: Json | None) -> list[Cause]:
    """What is wrong with an object's metadata. On update of built-in kinds a real server runs these rules twice, and says so."""
    repeats = 2 if old is not None and resource.builtin else 1
    return _rules(meta, resource, old) * repeats


def _rules(meta: Json, resource: Resource, old: Json | None) -> list[Cause]:
    causes: list[Cause] = []
    if old is None:
        causes += _names(meta, resource)
    elif meta["uid"] != old["uid"]:
        causes.append(invalid("metadata.uid", meta["uid"], "field is immutable"))
    causes += _labels(meta.get("labels") or {}, "metadata.labels")
    causes += _annotations(meta.get("annotations") or {})
    causes += _owners(meta.get("ownerReferences") or [])
    causes += _finalizers(meta.get("finalizers") or [])
    if old is not None and old.get("deletionTimestamp"):
        added = [f for f in meta.get("finalizers") or () if f not in (old.get("finalizers") or ())]
        if added:
            listed = ", ".join(quote(name) for name in added)
            message = f"no new finalizers can be added if the object is being deleted, found new finalizers []string{{{listed}}}"
            causes.append(forbidden_field("metadata.finalizers", message))
    return causes


def _names(meta: Json, resource: Resource) -> list[Cause]:
    causes = []
    name, prefix = meta.get("name", ""), meta.get("generateName", "")
    if prefix:
        problems = resource.strategy.name_problems(prefix, prefix=True)
        causes += [invalid("metadata.generateName", prefix, problem) for problem in problems]
    if not name:
        return [*causes, required("metadata.name", "name or generateName is required")]
    return causes + [
        invalid("metadata.name", name, problem) for problem in resource.strategy.name_problems(name, prefix=False)
    ]


def qualified_name_problems(key: str) -> list[str]:
    prefix, slash, name = key.rpartition("/")
    found = []
    if slash and not prefix:
        found.append("prefix part must be non-empty")
    elif slash:
        found += [f"prefix part {problem}" for problem in subdomain_problems(prefix)]
    if not name:
        found.append("name part must be non-empty")
    elif len(name) > 63:
        found.append("name part must be no more than 63 bytes")
    if not NAME.fullmatch(name):
        found.append(NAME_HINT)
    return found


def _labels(labels: Json, field: str) -> list[Cause]:
    causes = []
    for key, value in labels.items():
        causes += [invalid(field, key, problem) for problem in qualified_name_problems(key)]
        if len(value) > 63:
            causes.append(invalid(field, value, "must be no more than 63 bytes"))
        if value and not NAME.fullmatch(value):
            causes.append(invalid(field, value, VALUE_HINT))
    return causes


label_causes = _labels


def _annotations(annotations: Json) -> list[Cause]:
    causes = []
    for key in annotations:
        causes += [invalid("metadata.annotations", key, problem) for problem in qualified_name_problems(key.lower())]
    size = sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
    if size > ANNOTATIONS_LIMIT:
        message = f"Too long: may not be more than {ANNOTATIONS_LIMIT} bytes"
        causes.append(Cause("metadata.annotations", "FieldValueTooLong", message))
    return causes


def _owners(owners: list[Json]) -> list[Cause]:
    causes = []
    field = "metadata.ownerReferences"
    controllers: list[str] = []
    for owner in owners:
        if (owner.get("apiVersion"), owner.get("kind")) == ("v1", "Event"):
            causes.append(_invalid_owners(field, ordered(owner), "/v1, Kind=Event is disallowed from being an owner"))
        if not owner.get("apiVersion"):
            causes.append(invalid(f"{field}.apiVersion", "", "version must not be empty"))
        empty = [key for key in ("kind", "name", "uid") if not owner.get(key)]
        causes += [invalid(f"{field}.{key}", "", "must not be empty") for key in empty]
        if owner.get("controller"):
            controllers.append(f"{owner.get('kind', '')}/{owner.get('name', '')}")
    if len(controllers) > 1:
        message = f'Only one reference can have Controller set to true. Found "true" in references for {" and ".join(controllers[:2])}'
        causes.append(_invalid_owners(field, [ordered(owner) for owner in owners], message))
    return causes


def ordered(owner: Json) -> Json:
    """An owner reference in the order in which Go prints it; empty strings included."""
    found = {key: owner.get(key, "") for key in ("apiVersion", "kind", "name", "uid")}
    return found | {key: owner[key] for key in ("controller", "blockOwnerDeletion") if key in owner}


def _invalid_owners(field: str, value: Any, message: str) -> Cause:
    return Cause(field, "FieldValueInvalid", f"Invalid value: {orjson.dumps(value).decode()}: {message}")


def _finalizers(finalizers: list[str]) -> list[Cause]:
    causes = []
    for index, name in enumerate(finalizers):
        field = f"metadata.finalizers[{index}]"
        problems = qualified_name_problems(name)
        causes += [invalid(field, name, problem) for problem in problems]
        if not problems and "/" not in name and name not in STANDARD_FINALIZERS:
            causes.append(invalid(field, name, "name is neither a standard finalizer name nor is it fully qualified"))
    return causes


PORT_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")

__all__ = ["label_causes", "label_problems"]
