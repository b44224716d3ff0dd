"""Create and update: the order of checks, what the server owns, and when nothing changes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson

from raybus_localkube.kinds import metadata
from raybus_localkube.kinds.decode import DecodeError
from raybus_localkube.kinds.resource import Call, Resource
from raybus_localkube.server import bodies, errors
from raybus_localkube.server.errors import not_supported
from raybus_localkube.server.messages import Query, Request
from raybus_localkube.server.routing import Target
from raybus_localkube.store.records import Record

Json = dict[str, Any]
NAME_ATTEMPTS = 8


@dataclass(slots=True)
class Written:
    """The outcome of a write: the record to answer with, as JSON of the request's version."""

    record: Record
    created: bool = False


def read_options(call: Call, query: Query, kind: str) -> None:
    """DryRun and fieldValidation of the query, into the call."""
    dry = list(query.all("dryRun"))
    causes = []
    if dry and dry != ["All"]:
        causes.append(not_supported("dryRun", dry, ["All"]))
    validation = query.get("fieldValidation")
    if validation not in ("", "Ignore", "Strict", "Warn"):
        causes.append(not_supported("fieldValidation", validation, ["", "Ignore", "Strict", "Warn"]))
    if causes:
        raise errors.invalid_object("meta.k8s.io", kind, "", causes)
    call.dry_run, call.validation = bool(dry), validation or "Warn"


def handled_as(resource: Resource, version: str) -> Callable[[str], errors.ApiError]:
    prefix = f'{resource.kind} in version "{version}" cannot be handled as a {resource.kind}: '
    return lambda message: errors.bad_request(prefix + message)


def read_object(request: Request, resource: Resource, version: str, call: Call) -> Json:
    """The body as an object of the resource, in stored form."""
    parsed, twice = bodies.parse(request, resource.kind)
    obj = bodies.check_type(parsed, resource, version, request.body)
    refuse = handled_as(resource, version)
    try:
        decoded, problems = resource.strategy.decode(obj, resource, version, call)
    except DecodeError as error:
        raise refuse(str(error)) from None
    if twice:
        problems = ["yaml: unmarshal errors:\n  " + "\n  ".join(twice), *problems]
    call.strict(problems, refuse)
    return decoded


def check_namespace(resource: Resource, namespace: str, obj: Json) -> None:
    given = obj["metadata"].get("namespace", "")
    if resource.namespaced and given and given != namespace:
        raise errors.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    if resource.namespaced:
        obj["metadata"]["namespace"] = namespace


def admit_namespace(call: Call, resource: Resource, namespace: str, name: str) -> None:
    """Objects are created in namespaces that exist and stay."""
    if not resource.namespaced:
        return
    record = call.store.get("namespaces", "", namespace)
    if record is None:
        raise errors.not_found("", "namespaces", namespace)
    if b'"deletionTimestamp"' in record.body and record.load()["metadata"].get("deletionTimestamp"):
        message = f"unable to create new content in namespace {namespace} because it is being terminated"
        error = errors.forbidden(resource.group, resource.plural, name, message)
        cause = {
            "reason": "NamespaceTerminating",
            "message": f"namespace {namespace} is being terminated",
            "field": "metadata.namespace",
        }
        assert error.details is not None
        error.details["causes"] = [cause]
        raise error


def create(call: Call, resource: Resource, namespace: str, obj: Json) -> Record:
    """Store a new object that `read_object` gave."""
    meta = obj["metadata"]
    check_namespace(resource, namespace, obj)
    if meta.get("resourceVersion"):
        raise errors.internal("resourceVersion should not be set on objects to be created")
    admit_namespace(call, resource, namespace, meta.get("name", ""))
    meta.pop("resourceVersion", None)
    generated = not meta.get("name") and meta.get("generateName")
    metadata.initialise(obj, resource, call.env)
    for _ in range(NAME_ATTEMPTS if generated else 1):
        if not generated or call.store.get(resource.key, meta.get("namespace", ""), meta["name"]) is None:
            break
        meta["name"] = meta["generateName"][: metadata.GENERATED_BASE_LIMIT] + call.env.suffix()
    strategy = resource.strategy
    strategy.default(obj, call)
    strategy.prepare_create(obj, call)
    existing = call.store.get(resource.key, meta.get("namespace", ""), meta.get("name", ""))
    causes = metadata.validate(meta, resource, None) + strategy.validate(obj, None, "", call)
    if causes:
        raise errors.invalid_object(resource.group, resource.kind, meta.get("name", ""), causes)
    if existing is not None:
        deleting = bool(existing.load()["metadata"].get("deletionTimestamp"))
        raise errors.already_exists(resource.group, resource.plural, meta["name"], deleting=deleting)
    if call.dry_run:
        return Record.of(obj, 0)
    record = call.store.put(resource.key, obj)
    strategy.after_write(record, obj, None, call)
    return record


def parse_version(text: str) -> int:
    """A resourceVersion in an object's metadata; 0 stands for none."""
    if not text:
        return 0
    if not re.fullmatch(r"\d+", text):
        message = f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
        raise errors.internal(message)
    return int(text)


def replace(call: Call, request: Request, resource: Resource, target: Target) -> Written:
    """PUT."""
    namespace, name = target.namespace or "", target.name
    obj = read_object(request, resource, target.version, call)
    meta = obj["metadata"]
    if not meta.get("name"):
        raise errors.bad_request(
            f"the name of the object ({name} based on URL) was undeterminable: name must be provided"
        )
    check_name(meta["name"], name)
    check_namespace(resource, namespace, obj)
    record = call.store.get(resource.key, namespace, name)
    if record is None:
        if resource.strategy.creates_on_update and not target.subresource:
            meta.pop("resourceVersion", None)
            return Written(create(call, resource, namespace, obj), created=True)
        raise resource.not_found(name)
    given = parse_version(meta.get("resourceVersion", ""))
    check_uid(resource, record, meta.get("uid", ""))
    if not given and not resource.strategy.accepts_no_version and meta.get("resourceVersion") != "0":
        cause = errors.invalid("metadata.resourceVersion", 0, "must be specified for an update")
        raise errors.invalid_object(resource.group, resource.plural, name, [cause])
    check_version(resource, record, given)
    return Written(update(call, resource, record, obj, target.subresource))


def check_name(given: str, name: str) -> None:
    if given != name:
        raise errors.bad_request(f"the name of the object ({given}) does not match the name on the URL ({name})")


def check_version(resource: Resource, record: Record, given: int) -> None:
    if given and given != record.rv:
        message = "the object has been modified; please apply your changes to the latest version and try again"
        raise errors.conflict(resource.group, resource.plural, record.name, message)


def check_uid(resource: Resource, record: Record, given: str) -> None:
    if given and given != record.uid:
        message = f"Precondition failed: UID in precondition: {given}, UID in object meta: {record.uid}"
        raise errors.conflict(resource.group, resource.plural, record.name, message)


def update(call: Call, resource: Resource, record: Record, new: Json, subresource: str) -> Record:
    """Store `new` over the object of `record`, unless nothing changes."""
    old = record.load()
    strategy = resource.strategy
    metadata.keep_server_owned(new, old)
    new["metadata"].pop("resourceVersion", None)
    strategy.default(new, call)
    strategy.prepare_update(new, old, subresource, call)
    if strategy.generation_changes(new, old):
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
    causes = metadata.validate(new["metadata"], resource, old["metadata"]) + strategy.validate(
        new, old, subresource, call
    )
    if causes:
        raise errors.invalid_object(resource.group, resource.kind, record.name, causes)
    new["metadata"]["resourceVersion"] = str(record.rv)
    if same(new, old):
        return record
    if call.dry_run:
        return Record.of(new, record.rv)
    if released(resource, new, old):
        answer = Record.of(new, record.rv)
        gone = call.store.remove(resource.key, record, old)
        strategy.after_delete(gone, call)
        return answer
    stored = call.store.put(resource.key, new)
    strategy.after_write(stored, new, record, call)
    return stored


def same(new: Json, old: Json) -> bool:
    return new == old and orjson.dumps(new, option=orjson.OPT_SORT_KEYS) == orjson.dumps(
        old, option=orjson.OPT_SORT_KEYS
    )


def released(resource: Resource, new: Json, old: Json) -> bool:
    """Whether this write takes away the last thing that kept an object whose deletion was asked for."""
    meta = new["metadata"]
    if not meta.get("deletionTimestamp") or meta.get("deletionGracePeriodSeconds"):
        return False
    return resource.strategy.holds(old) and not resource.strategy.holds(new)
