"""The server without its transport: a request in, an answer out.

Everything that decides runs synchronously between reading the request and the commit; only the commit, watches and what other
processes answer are awaited.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import orjson
import yaml

from raybus_localkube.kinds.builtin import catalog
from raybus_localkube.kinds.custom import definitions
from raybus_localkube.kinds.registry import Registry
from raybus_localkube.kinds.resource import Call, Resource
from raybus_localkube.server import (
    access,
    deleting,
    errors,
    negotiation,
    nonresource,
    patching,
    reading,
    routing,
    subresources,
    watching,
    writing,
)  # fmt: skip
from raybus_localkube.server.environment import Environment, RealEnvironment
from raybus_localkube.server.messages import Answer, Request, Response, Stream, User, json_response
from raybus_localkube.server.representation import Presenter
from raybus_localkube.server.routing import Target
from raybus_localkube.server.watching import Watcher
from raybus_localkube.store.store import Store

log = logging.getLogger(__name__)
VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}
LISTED = frozenset({"POST", "DELETE", "GET"})


class Core:
    """An API server over one store. `address` is what discovery tells clients (host:port)."""

    def __init__(
        self, store: Store, environment: Environment | None = None, *, address: str = "127.0.0.1:6443"
    ) -> None:
        self.store, self.env, self.address = store, environment or RealEnvironment(), address
        self.registry = Registry(catalog.resources())
        self.ready: Callable[[], bool] = lambda: True
        self.subresources = subresources.Subresources()
        self.plain = nonresource.Documents(self.registry)
        self._serve_definitions()

    def _serve_definitions(self) -> None:
        call = self.call(User("system:apiserver"))
        for record in self.store.records(definitions.KEY):
            definition = record.load()
            definitions.serve(call, definition)
            resource = self.registry.named(definition["spec"]["group"], definition["spec"]["names"]["plural"])
            if resource is not None and definition["metadata"].get("deletionTimestamp"):
                definitions.DefinitionStrategy.clean(record, definition, call)

    def call(self, user: User, warnings: list[str] | None = None) -> Call:
        return Call(self.store, self.registry, self.env, user, warnings if warnings is not None else [])

    async def handle(self, request: Request) -> Answer:
        """Answer any request; never raises but for cancellation."""
        try:
            found = self.dispatch(request)
            answer: Answer = found if isinstance(found, (Response, Stream)) else await found
            await self.store.committed()
        except errors.ApiError as error:
            answer = refusal(error, request)
        except Exception:
            log.exception("request failed", extra={"method": request.method, "path": request.path})
            answer = refusal(errors.ApiError(500, "InternalError", "Internal error occurred", {}), request)
        answer.headers += [("Warning", f'299 - "{escape(text)}"') for text in dict.fromkeys(request.warnings)]
        return answer

    def dispatch(self, request: Request) -> Answer | Awaitable[Answer]:
        target = routing.parse(request.path)
        if target is None or target.is_version:
            access.check_path(request)
            return self.plain.answer(request, self)
        verb = self.verb(request, target)
        access.check(request.user, verb, target)
        if target.plural == "bindings" and target.group == "" and request.method == "POST":
            target = subresources.bound_pod(request, target)
        resource = self.find(target)
        call = self.call(request.user, request.warnings)
        call.version = target.version
        if target.version in resource.deprecated:
            request.warnings.append(resource.deprecated[target.version])
        if target.subresource:
            return self.subresources.answer(request, call, resource, target)
        if verb not in resource.verbs:
            raise not_allowed(request, resource)
        if resource.namespaced and target.namespace is None and (target.name or verb == "create"):
            raise errors.no_such_resource() if resource.builtin else errors.page_not_found()
        return self.act(request, call, resource, target, verb)

    @staticmethod
    def verb(request: Request, target: Target) -> str:
        method = request.method
        if method in ("GET", "HEAD"):
            if request.query.flag("watch") or target.watch:
                return "watch"
            return "get" if target.name else "list"
        if method == "DELETE":
            return "delete" if target.name else "deletecollection"
        return VERBS.get(method, method.lower())

    def find(self, target: Target) -> Resource:
        resource = self.registry.find(target.group, target.version, target.plural)
        if resource is not None and (resource.namespaced or target.namespace is None):
            return resource
        if self.registry.is_builtin_group(target.group) and any(
            r.group == target.group and target.version in r.versions for r in self.registry.all()
        ):
            raise errors.no_such_resource()
        raise errors.page_not_found()

    def act(self, request: Request, call: Call, resource: Resource, target: Target, verb: str) -> Answer:
        if verb == "watch":
            return self.watch(request, call, resource, target)
        listing = verb in ("list", "deletecollection")
        representation = negotiation.negotiate(request.accept, listing=listing)
        if representation.form == "table":
            negotiation.check_include(request.query.get("includeObject"))
        present = Presenter(call, resource, target.version, representation, request.query.get("includeObject"))
        namespace = target.namespace or ""
        if verb == "get":
            record = self.store.get(resource.key, namespace, target.name)
            if record is None:
                raise resource.not_found(target.name)
            return present.one(record)
        if verb == "list":
            selection = reading.read_selection(request.query, resource)
            return present.page(reading.list_page(call, resource, target.namespace, request.query, selection))
        if verb == "create":
            if target.name:
                raise not_allowed(request, resource)
            return self.create(request, call, resource, target, present)
        if verb in ("update", "patch"):
            writing.read_options(call, request.query, f"{verb.capitalize()}Options")
            act = writing.replace if verb == "update" else patching.patch
            written = act(call, request, resource, target)
            return present.one(written.record, 201 if written.created else 200)
        options = deleting.read_options(call, request)
        if verb == "delete":
            record, gone = deleting.delete(call, resource, namespace, target.name, options)
            if gone and not resource.returns_object:
                return json_response(deleting.success(resource, record))
            return present.one(record)
        return self.delete_collection(request, call, target, options, present)

    def create(self, request: Request, call: Call, resource: Resource, target: Target, present: Presenter) -> Answer:
        writing.read_options(call, request.query, "CreateOptions")
        obj = writing.read_object(request, resource, target.version, call)
        return present.one(writing.create(call, resource, target.namespace or "", obj), 201)

    def delete_collection(
        self, request: Request, call: Call, target: Target, options: deleting.DeleteOptions, present: Presenter
    ) -> Answer:
        resource = present.resource
        selection = reading.read_selection(request.query, resource)
        records = [r for r in self.store.records(resource.key, target.namespace) if selection.matches(r)]
        rv = self.store.rv
        for record in records:
            deleting.delete(call, resource, record.namespace, record.name, options)
        return present.page(reading.Page(records, rv))

    def watch(self, request: Request, call: Call, resource: Resource, target: Target) -> Answer:
        representation = negotiation.negotiate(request.accept, watch=True, listing=True)
        if target.name and self.store.get(resource.key, target.namespace or "", target.name) is None:
            raise resource.not_found(target.name)
        selection = reading.read_selection(request.query, resource)
        if target.name:
            selection = reading.only_name(selection, target.name)
        options = watching.read_options(call, request.query)
        present = Presenter(call, resource, target.version, representation, request.query.get("includeObject"))
        watcher = Watcher(present, target.namespace, selection, options)
        return Stream(watcher.stream(watcher.start()))


def not_allowed(request: Request, resource: Resource) -> errors.ApiError:
    if resource.builtin:
        return errors.method_not_allowed("the server does not allow this method on the requested resource")
    verb = VERBS.get(request.method, request.method.lower())
    name = errors.qualified(resource.plural, resource.group)
    return errors.method_not_allowed(f'{verb} is not supported on resources of kind "{name}"')


def escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")


def refusal(error: errors.ApiError, request: Request) -> Response:
    headers = [("Retry-After", str(error.retry_after))] if error.retry_after else []
    if error.plain:
        return Response(error.code, error.message.encode(), "text/plain; charset=utf-8", headers)
    status = error.status()
    if request.accept.startswith("application/yaml"):
        text = yaml.dump(status, Dumper=yaml.CSafeDumper, sort_keys=True, default_flow_style=False)
        return Response(error.code, text.encode(), "application/yaml", headers)
    return Response(error.code, orjson.dumps(status), headers=headers)
