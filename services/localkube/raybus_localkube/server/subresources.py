"""Subresources: status, scale, and those of pods, namespaces and service accounts that localkube serves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from raybus_localkube.kinds import jsonpath
from raybus_localkube.kinds.custom.strategy import CustomStrategy
from raybus_localkube.kinds.decode import DecodeError, Decoder
from raybus_localkube.kinds.resource import Call, Resource
from raybus_localkube.patches import PatchError, json_patch, merge_patch
from raybus_localkube.server import bodies, deleting, errors, negotiation, patching, writing
from raybus_localkube.server.environment import timestamp
from raybus_localkube.server.messages import Answer, Request, Response, json_response
from raybus_localkube.server.nodes import Nodes
from raybus_localkube.server.representation import Presenter
from raybus_localkube.server.routing import Target
from raybus_localkube.server.tokens import AUDIENCE, Tokens
from raybus_localkube.store.records import Record

Json = dict[str, Any]
CREATED = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
WRITTEN = frozenset({"status", "finalize", "resize", "ephemeralcontainers"})
"""Subresources that are other views of the object: read and written as it."""
SHORTEST_TOKEN_S, LONGEST_TOKEN_S = 600, 1 << 32
NOT_ALLOWED = "the server does not allow this method on the requested resource"


class Subresources:
    """`nodes` reaches kubelets, `tokens` makes service-account tokens; without them their subresources are refused."""

    def __init__(self) -> None:
        self.nodes: Nodes | None = None
        self.tokens: Tokens | None = None

    def answer(self, request: Request, call: Call, resource: Resource, target: Target) -> Answer | Awaitable[Answer]:
        self.check(request, resource, target)
        name = target.subresource
        special: dict[str, Callable[[Request, Call, Resource, Target], Answer | Awaitable[Answer]]] = {
            "scale": self.scale, "log": self.log, "binding": self.binding, "eviction": self.eviction, "token": self.token,
            "exec": self.streamed, "attach": self.streamed, "portforward": self.streamed,
        }  # fmt: skip
        if name in special:
            return special[name](request, call, resource, target)
        if name not in WRITTEN:
            raise errors.ApiError(501, "NotImplemented", f"localkube does not serve {resource.plural}/{name}", {})
        return self.view(request, call, resource, target)

    @staticmethod
    def check(request: Request, resource: Resource, target: Target) -> None:
        verbs = resource.subresources_of(target.version).get(target.subresource)
        if verbs is None:
            raise errors.no_such_resource() if resource.builtin else resource.not_found(target.name)
        verb = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch"}.get(
            request.method, "delete"
        )
        if verb not in verbs and not (verb == "get" and target.subresource == "log"):
            if resource.builtin:
                raise errors.method_not_allowed(NOT_ALLOWED)
            kind = errors.qualified(resource.plural, resource.group)
            raise errors.method_not_allowed(f'{verb} is not supported on resources of kind "{kind}"')

    @staticmethod
    def view(request: Request, call: Call, resource: Resource, target: Target) -> Answer:
        present = Presenter(call, resource, target.version, negotiation.negotiate(request.accept))
        if request.method in ("GET", "HEAD"):
            return present.one(found(call, resource, target))
        put = request.method == "PUT"
        writing.read_options(call, request.query, "UpdateOptions" if put else "PatchOptions")
        act = writing.replace if put else patching.patch
        written = act(call, request, resource, target)
        return present.one(written.record)

    def scale(self, request: Request, call: Call, resource: Resource, target: Target) -> Answer:
        strategy = resource.strategy
        assert isinstance(strategy, CustomStrategy)
        paths = strategy.versions[target.version].scale
        assert paths is not None
        record = found(call, resource, target)
        obj = record.load()
        if request.method not in ("GET", "HEAD"):
            writing.read_options(call, request.query, "UpdateOptions")
            record = self.write_scale(request, call, resource, record, paths)
            obj = record.load()
        shown = scale_of(obj, paths)
        if negotiation.negotiate(request.accept).form == "table":
            return json_response(scale_table(shown, call))
        return json_response(shown)

    @staticmethod
    def write_scale(request: Request, call: Call, resource: Resource, record: Record, paths: Json) -> Record:
        obj = record.load()
        current = scale_of(obj, paths)
        if request.method == "PATCH":
            media = bodies.media_type(request.content_type)
            parsed = patching.parse_patch(request, media)
            try:
                given = (
                    json_patch.apply(current, parsed)
                    if media == patching.JSON_PATCH
                    else merge_patch.apply(current, parsed)
                )
            except PatchError as error:
                raise error.refusal() from None
        else:
            given, _ = bodies.parse(request, "Scale")
        meta = (given.get("metadata") or {}) if isinstance(given, dict) else {}
        writing.check_version(resource, record, writing.parse_version(meta.get("resourceVersion", "")))
        replicas = (given.get("spec") or {}).get("replicas", current["spec"]["replicas"])
        put(obj, paths["specReplicasPath"], replicas)
        try:
            return writing.update(call, resource, record, obj, "")
        except errors.ApiError as error:
            if error.code == 422 and isinstance(replicas, int) and replicas < 0:
                raise negative(error, resource, record, paths["specReplicasPath"], replicas) from None
            raise

    def log(self, request: Request, call: Call, resource: Resource, target: Target) -> Answer | Awaitable[Answer]:
        pod = found(call, resource, target).load()
        container = choose_container(pod, request.query.get("container"), target.name)
        node = (pod.get("spec") or {}).get("nodeName")
        if not node:
            return Response(204, b"", "text/plain")
        record = call.store.get("nodes", "", node)
        if record is None or self.nodes is None:
            raise errors.not_found("", "nodes", node)
        return self.nodes.logs(record.load(), pod, container, request.query)

    @staticmethod
    def streamed(_: Request, call: Call, resource: Resource, target: Target) -> Answer:
        pod = found(call, resource, target).load()
        if not (pod.get("spec") or {}).get("nodeName"):
            raise errors.bad_request(f"pod {target.name} does not have a host assigned")
        raise errors.ApiError(501, "NotImplemented", f"localkube does not serve pods/{target.subresource}", {})

    @staticmethod
    def binding(request: Request, call: Call, resource: Resource, target: Target) -> Answer:
        writing.read_options(call, request.query, "CreateOptions")
        body = read(request, "Binding")
        node = (body.get("target") or {}).get("name", "")
        if not node:
            raise errors.internal("target.name: Required value")
        record = found(call, resource, target)
        pod = record.load()
        assigned = pod["spec"].get("nodeName")
        if assigned or pod["metadata"].get("deletionTimestamp"):
            what = (
                f'is already assigned to node "{assigned}"'
                if assigned
                else "is being deleted, cannot be assigned to a host"
            )
            raise errors.conflict("", "pods/binding", target.name, f"pod {target.name} {what}")
        pod["spec"]["nodeName"] = node
        pod["metadata"].setdefault("annotations", {}).update(body["metadata"].get("annotations") or {})
        if not pod["metadata"]["annotations"]:
            del pod["metadata"]["annotations"]
        scheduled = {
            "type": "PodScheduled",
            "status": "True",
            "lastProbeTime": None,
            "lastTransitionTime": timestamp(call.env.now()),
        }
        conditions = [c for c in pod["status"].get("conditions") or () if c["type"] != "PodScheduled"]
        pod["status"]["conditions"] = [*conditions, scheduled]
        if not call.dry_run:
            call.store.put(resource.key, pod)
        return json_response(CREATED, 201)

    @staticmethod
    def eviction(request: Request, call: Call, resource: Resource, target: Target) -> Answer:
        writing.read_options(call, request.query, "CreateOptions")
        body = read(request, "Eviction")
        if body["metadata"].get("name") != target.name:
            raise errors.bad_request("name in URL does not match name in Eviction object")
        found(call, resource, target)
        given = body.get("deleteOptions") or {}
        conditions = given.get("preconditions") or {}
        options = deleting.DeleteOptions(
            given.get("gracePeriodSeconds"), given.get("propagationPolicy", ""), conditions.get("uid", ""),
            conditions.get("resourceVersion", ""),
        )  # fmt: skip
        deleting.delete(call, resource, target.namespace or "", target.name, options)
        return json_response(CREATED, 201)

    def token(self, request: Request, call: Call, resource: Resource, target: Target) -> Answer:
        body = read(request, "TokenRequest")
        record = found(call, resource, target)
        spec = body.get("spec") or {}
        seconds = spec.get("expirationSeconds") or 3600
        audiences = spec.get("audiences") or [AUDIENCE]
        if not SHORTEST_TOKEN_S <= seconds <= LONGEST_TOKEN_S:
            text = "may not specify a duration less than 10 minutes"
            if seconds > LONGEST_TOKEN_S:
                text = "may not specify a duration larger than 2^32 seconds"
            cause = errors.invalid("spec.expirationSeconds", seconds, text)
            raise errors.invalid_object("authentication.k8s.io", "TokenRequest", "", [cause])
        bound = spec.get("boundObjectRef")
        if bound and bound.get("kind") == "Pod":
            pod = call.store.get("pods", record.namespace, bound.get("name", ""))
            if pod is None:
                raise errors.not_found("", "pods", bound.get("name", ""))
            bound = bound | {"uid": pod.uid}
        if self.tokens is None:
            raise errors.method_not_allowed(NOT_ALLOWED)
        now = call.env.now()
        issued = self.tokens.issue(record, audiences, now, seconds, bound)
        meta = {
            "name": record.name,
            "namespace": record.namespace,
            "uid": record.uid,
            "creationTimestamp": timestamp(now),
        }
        status = {"token": issued, "expirationTimestamp": timestamp(now + timedelta(seconds=seconds))}
        shown = {"audiences": audiences, "expirationSeconds": seconds, "boundObjectRef": bound}
        head = {"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "metadata": meta}
        return json_response(head | {"spec": shown, "status": status}, 201)


def bound_pod(request: Request, target: Target) -> Target:
    """A Binding may also be posted to its own collection; it means the subresource of the pod it names."""
    name = read(request, "Binding")["metadata"].get("name", "")
    return replace(target, plural="pods", name=name, subresource="binding")


def found(call: Call, resource: Resource, target: Target) -> Record:
    record = call.store.get(resource.key, target.namespace or "", target.name)
    if record is None:
        raise resource.not_found(target.name)
    return record


def read(request: Request, kind: str) -> Json:
    """A body of a kind that is not stored, checked by its schema."""
    parsed, _ = bodies.parse(request, kind)
    try:
        return Decoder().decode(parsed or {}, kind)
    except DecodeError as error:
        raise errors.bad_request(f'{kind} in version "v1" cannot be handled as a {kind}: {error}') from None


def choose_container(pod: Json, wanted: str, name: str) -> str:
    spec = pod.get("spec") or {}
    names = [
        c["name"] for kind in ("containers", "initContainers", "ephemeralContainers") for c in spec.get(kind) or ()
    ]
    if wanted:
        if wanted not in names:
            raise errors.bad_request(f"container {wanted} is not valid for pod {name}")
        return wanted
    main = [c["name"] for c in spec.get("containers") or ()]
    if len(main) == 1 and len(names) == 1:
        return str(main[0])
    default = (pod["metadata"].get("annotations") or {}).get("kubectl.kubernetes.io/default-container")
    if default in names:
        return str(default)
    init = [c["name"] for c in spec.get("initContainers") or ()]
    text = f"a container name must be specified for pod {name}, choose one of: [{' '.join(main)}]"
    raise errors.bad_request(text + (f" or one of the init containers: [{' '.join(init)}]" if init else ""))


def scale_of(obj: Json, paths: Json) -> Json:
    """The autoscaling/v1 Scale of an object."""

    def at(key: str) -> Any:
        return next(iter(jsonpath.find(obj, paths[key])), None) if paths.get(key) else None

    meta = {
        key: obj["metadata"][key]
        for key in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
        if key in obj["metadata"]
    }
    status: Json = {"replicas": at("statusReplicasPath") or 0}
    if selector := at("labelSelectorPath"):
        status["selector"] = selector
    spec = {"replicas": at("specReplicasPath") or 0}
    return {"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": meta, "spec": spec, "status": status}


def scale_table(shown: Json, call: Call) -> Json:
    from raybus_localkube.kinds.ages import age  # noqa: PLC0415 -- only here

    columns = (
        ("Name", "string", "name"),
        ("Desired", "integer", ""),
        ("Available", "integer", ""),
        ("Age", "date", ""),
    )
    definitions = [{"name": n, "type": t, "format": f, "description": n, "priority": 0} for n, t, f in columns]
    meta = shown["metadata"]
    cells = [
        meta["name"],
        shown["spec"]["replicas"],
        shown["status"]["replicas"],
        age(meta["creationTimestamp"], call.env.now()),
    ]
    partial = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": meta}
    head: Json = {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": meta["resourceVersion"]},
    }
    return head | {"columnDefinitions": definitions, "rows": [{"cells": cells, "object": partial}]}


def put(obj: Json, path: str, value: Any) -> None:
    *parents, last = path.strip(".").split(".")
    for part in parents:
        obj = obj.setdefault(part, {})
    obj[last] = value


def negative(error: errors.ApiError, resource: Resource, record: Record, path: str, replicas: int) -> errors.ApiError:
    given = [errors.Cause(c["field"], c["reason"], c["message"]) for c in (error.details or {}).get("causes", ())]
    given.append(errors.invalid(path, replicas, "should be a non-negative integer"))
    return errors.invalid_object(resource.group, resource.kind, record.name, given)
