"""Delete: preconditions, propagation, grace and finalizers; one object or a collection."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import orjson

from raybus_localkube.kinds import scalars
from raybus_localkube.kinds.resource import Call, Resource
from raybus_localkube.server import bodies, errors
from raybus_localkube.server.environment import timestamp
from raybus_localkube.server.errors import invalid, not_supported
from raybus_localkube.server.messages import Request
from raybus_localkube.store.records import Record

Json = dict[str, Any]
PROPAGATIONS = ("Background", "Foreground", "Orphan")
FINALIZER_OF = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}
JOB_WARNING = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set "
    "propagationPolicy=Orphan to suppress this warning"
)


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    grace: int | None = None
    propagation: str = ""
    uid: str = ""
    rv: str = ""


def read_options(call: Call, request: Request) -> DeleteOptions:
    """DeleteOptions from the body, or else from the query."""
    body: Json = {}
    if request.body:
        media = bodies.media_type(request.content_type)
        if media in (bodies.PROTOBUF, bodies.YAML):
            parsed, _ = bodies.parse(request, "DeleteOptions")
        else:
            try:
                parsed = orjson.loads(request.body)
            except orjson.JSONDecodeError:
                problem = f"couldn't get version/kind; json parse error: {bodies.go_json_error(request.body)}"
                raise bodies.unrecognized("DeleteOptions", problem, request.body) from None
        body = parsed if isinstance(parsed, dict) else {}
        kind = body.get("kind")
        if kind not in (None, "", "DeleteOptions"):
            raise errors.bad_request(f"decoded object cannot be converted to DeleteOptions: {kind}")
    query = request.query
    given = body or {}
    dry = given.get("dryRun") or list(query.all("dryRun"))
    grace = given.get("gracePeriodSeconds")
    if grace is None and "gracePeriodSeconds" in query:
        grace = number(query.get("gracePeriodSeconds"))
    propagation = given.get("propagationPolicy") or query.get("propagationPolicy")
    orphan = given.get("orphanDependents")
    if orphan is None and "orphanDependents" in query:
        orphan = query.flag("orphanDependents")
    causes = []
    if dry and dry != ["All"]:
        causes.append(not_supported("dryRun", dry, ["All"]))
    if propagation and propagation not in PROPAGATIONS:
        causes.append(not_supported("propagationPolicy", propagation, [*PROPAGATIONS, "nil"]))
    if orphan is not None and propagation:
        causes.append(
            invalid("propagationPolicy", propagation, "orphanDependents and deletionPropagation cannot be both set")
        )
    if causes:
        raise errors.invalid_object("meta.k8s.io", "DeleteOptions", "", causes)
    if orphan is not None:
        propagation = "Orphan" if orphan else "Background"
    call.dry_run = bool(dry)
    preconditions = given.get("preconditions") or {}
    return DeleteOptions(grace, propagation, preconditions.get("uid") or "", preconditions.get("resourceVersion") or "")


def number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise errors.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from None


def check_preconditions(resource: Resource, record: Record, options: DeleteOptions) -> None:
    def refuse(what: str, given: str, found: str, guess: str) -> errors.ApiError:
        text = (
            f"the {what} in the precondition ({given}) does not match the {what} in record ({found}). "
            f"The object might have been {guess}"
        )
        error = errors.conflict(resource.group, resource.plural, record.name, text)
        error.message = f'Operation cannot be fulfilled on {resource.kind} "{record.name}": {text}'
        error.details = errors.details("", resource.kind, record.name)
        return error

    if options.uid and options.uid != record.uid:
        raise refuse("UID", options.uid, record.uid, "deleted and then recreated")
    if options.rv and options.rv != str(record.rv):
        raise refuse("ResourceVersion", options.rv, str(record.rv), "modified")


def finalizers_after(obj: Json, resource: Resource, options: DeleteOptions) -> list[str]:
    """The finalizers that the propagation policy leaves on the object."""
    present = list(obj["metadata"].get("finalizers") or ())
    policy = options.propagation
    if not policy:
        if any(name in present for name in FINALIZER_OF.values()):
            return present
        policy = resource.strategy.default_propagation
    kept = [name for name in present if name not in FINALIZER_OF.values()]
    wanted = FINALIZER_OF.get(policy) or resource.strategy.deletion_finalizer
    if not wanted:
        return kept
    return present if wanted in present else [*kept, wanted]


def delete(call: Call, resource: Resource, namespace: str, name: str, options: DeleteOptions) -> tuple[Record, bool]:
    """Delete one object. The record to answer with, and whether it is gone."""
    record = call.store.get(resource.key, namespace, name)
    if record is None:
        raise resource.not_found(name)
    check_preconditions(resource, record, options)
    obj = record.load()
    meta = obj["metadata"]
    strategy = resource.strategy
    finalizers = finalizers_after(obj, resource, options)
    if finalizers:
        meta["finalizers"] = finalizers
    else:
        meta.pop("finalizers", None)
    if not options.propagation and strategy.default_propagation == "Orphan" and "orphan" in finalizers:
        call.warnings.append(JOB_WARNING)
    began = bool(meta.get("deletionTimestamp"))
    grace = strategy.grace(obj, options.grace)
    if not began:
        start(obj, resource, call, grace)
    elif grace is not None:
        shorten(obj, grace, options)
    waits = bool(meta.get("deletionGracePeriodSeconds"))
    if strategy.holds(obj) or waits:
        return keep(call, resource, record, obj)
    if call.dry_run:
        return record, True
    return remove(call, resource, record, obj, forced=grace == 0), True


def start(obj: Json, resource: Resource, call: Call, grace: int | None) -> None:
    """Mark an object as being deleted, if that will be seen."""
    meta = obj["metadata"]
    strategy = resource.strategy
    if grace is None and not strategy.holds(obj):
        return
    meta["deletionTimestamp"] = timestamp(call.env.now() + timedelta(seconds=grace or 0))
    strategy.mark_deleting(obj)
    if grace is not None:
        meta["deletionGracePeriodSeconds"] = grace
    if meta.get("generation") and strategy.deletion_counts:
        meta["generation"] += 1


def shorten(obj: Json, grace: int, options: DeleteOptions) -> None:
    """A later delete may only bring the end nearer."""
    meta = obj["metadata"]
    current = meta.get("deletionGracePeriodSeconds") or 0
    if options.grace is None or grace >= current:
        return
    ends = scalars.parse_time(meta["deletionTimestamp"]) - timedelta(seconds=current - grace)
    meta["deletionTimestamp"] = timestamp(ends)
    meta["deletionGracePeriodSeconds"] = grace


def keep(call: Call, resource: Resource, record: Record, obj: Json) -> tuple[Record, bool]:
    if obj == record.load() or call.dry_run:
        return (record if obj == record.load() else Record.of(obj, record.rv)), False
    stored = call.store.put(resource.key, obj)
    resource.strategy.after_write(stored, obj, record, call)
    return stored, False


def remove(call: Call, resource: Resource, record: Record, obj: Json, *, forced: bool) -> Record:
    """Take the object out of the store. A pod on a node shows its end first, as a real server's does."""
    if forced and (obj.get("spec") or {}).get("nodeName") and not record.load()["metadata"].get("deletionTimestamp"):
        record = call.store.put(resource.key, obj)
    gone = call.store.remove(resource.key, record, obj)
    resource.strategy.after_delete(gone, call)
    return gone


def success(resource: Resource, record: Record) -> Json:
    """The Status that answers a completed delete."""
    found = errors.details(resource.group, resource.plural, record.name) | {"uid": record.uid}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": found}
