"""CustomResourceDefinitions: their defaults and rules, and how they become served resources."""

from __future__ import annotations

from typing import Any

from raybus_localkube.kinds.custom.rules import RuleError
from raybus_localkube.kinds.custom.strategy import CustomResource, CustomStrategy, Version
from raybus_localkube.kinds.registry import Registry, preference
from raybus_localkube.kinds.resource import Call, Column
from raybus_localkube.kinds.typed import TypedStrategy
from raybus_localkube.server.environment import timestamp
from raybus_localkube.server.errors import Cause, invalid, required
from raybus_localkube.store.records import Json, Record

KEY = "customresourcedefinitions.apiextensions.k8s.io"
CLEANUP = "customresourcecleanup.apiextensions.k8s.io"


def resource_of(definition: Json, versions: dict[str, Version] | None = None) -> CustomResource:
    """The resource that a definition describes; `versions` if they are prepared already."""
    spec = definition["spec"]
    names = spec["names"]
    served = sorted((v["name"] for v in spec["versions"] if v["served"]), key=preference)
    api = spec["group"]
    deprecated = {}
    for version in spec["versions"]:
        if version.get("deprecated"):
            text = version.get("deprecationWarning") or f"{api}/{version['name']} {names['kind']} is deprecated"
            deprecated[version["name"]] = text
    return CustomResource(
        group=api, versions=tuple(served), kind=names["kind"], plural=names["plural"], strategy=CustomStrategy(definition, versions),
        singular=names.get("singular", ""), list_kind=names.get("listKind", ""), namespaced=spec["scope"] == "Namespaced",
        builtin=False, short_names=tuple(names.get("shortNames") or ()), categories=tuple(names.get("categories") or ()),
        deprecated=deprecated,
    )  # fmt: skip


def is_established(definition: Json) -> bool:
    conditions = (definition.get("status") or {}).get("conditions") or ()
    return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)


class DefinitionStrategy(TypedStrategy):
    """A definition is accepted and served in the write that creates it."""

    has_generation = True
    has_status = True
    accepts_no_version = False
    deletion_finalizer = CLEANUP
    deletion_counts = False

    def default(self, obj: Json, call: Call) -> None:
        spec = obj.get("spec") or {}
        names = spec.get("names") or {}
        if names.get("kind"):
            names.setdefault("singular", names["kind"].lower())
            names.setdefault("listKind", f"{names['kind']}List")
        spec.setdefault("conversion", {"strategy": "None"})
        obj["spec"] = spec

    def prepare_create(self, obj: Json, call: Call) -> None:
        stored = [v["name"] for v in obj["spec"].get("versions") or () if v.get("storage")]
        obj["status"] = {"conditions": None, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": stored}

    def prepare_update(self, new: Json, old: Json, subresource: str, call: Call) -> None:
        super().prepare_update(new, old, subresource, call)
        if subresource:
            return
        stored = list(old["status"].get("storedVersions") or ())
        added = [v["name"] for v in new["spec"].get("versions") or () if v.get("storage") and v["name"] not in stored]
        if added:
            new["status"] = new["status"] | {"storedVersions": stored + added}

    def validate(self, new: Json, old: Json | None, subresource: str, call: Call) -> list[Cause]:
        spec, names = new["spec"], new["spec"].get("names") or {}
        causes: list[Cause] = []
        group, plural = spec.get("group", ""), names.get("plural", "")
        if new["metadata"]["name"] != f"{plural}.{group}":
            causes.append(invalid("metadata.name", new["metadata"]["name"], 'must be spec.names.plural+"."+spec.group'))
        causes += [required(f"spec.{key}") for key in ("group", "scope") if not spec.get(key)]
        causes += [required(f"spec.names.{key}") for key in ("plural", "kind") if not names.get(key)]
        if old is not None and is_established(old):
            causes = self.immutable(new, old)
        versions = spec.get("versions") or []
        if sum(bool(v.get("storage")) for v in versions) != 1:
            causes.append(invalid("spec.versions", versions, "must have exactly one version marked as storage version"))
        prepared: dict[str, Version] = {}
        for index, version in enumerate(versions):
            causes += self.version_causes(version, f"spec.versions[{index}]", prepared)
        call.memo[KEY] = prepared
        return causes + self.stored_causes(new, versions)

    @staticmethod
    def immutable(new: Json, old: Json) -> list[Cause]:
        causes = []
        for path in (("scope",), ("group",), ("names", "kind"), ("names", "plural")):
            fresh: Any = new["spec"]
            before: Any = old["spec"]
            for part in path:
                fresh, before = fresh.get(part), before.get(part)
            if fresh != before:
                causes.append(invalid("spec." + ".".join(path), fresh, "field is immutable"))
        return causes

    @staticmethod
    def version_causes(version: Json, path: str, prepared: dict[str, Version]) -> list[Cause]:
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        if not schema:
            return [required(f"{path}.schema.openAPIV3Schema", "schemas are required")]
        field = f"{path}.schema.openAPIV3Schema"
        if schema.get("type") != "object":
            message = "must be object at the root" if schema.get("type") else "must not be empty at the root"
            return [
                invalid(f"{field}.type", schema.get("type", ""), message)
                if schema.get("type")
                else required(f"{field}.type", message)
            ]
        try:
            prepared[version["name"]] = Version(version)
        except RuleError as error:
            return [invalid(f"{field}.x-kubernetes-validations", "", str(error))]
        return []

    @staticmethod
    def stored_causes(new: Json, versions: list[Json]) -> list[Cause]:
        causes = []
        names = {v.get("name") for v in versions}
        for index, stored in enumerate(new["status"].get("storedVersions") or ()):
            if stored not in names:
                message = (
                    f"missing from spec.versions; {stored} was previously a storage version, and must remain in spec.versions until a "
                    f"storage migration ensures no data remains persisted in {stored} and removes {stored} from status.storedVersions"
                )
                causes.append(invalid(f"status.storedVersions[{index}]", stored, message))
        return causes

    def after_write(self, record: Record, obj: Json, previous: Record | None, call: Call) -> None:
        """Accept the names, establish, serve. A second write, as a real server's controllers make it."""
        if obj["metadata"].get("deletionTimestamp"):
            self.clean(record, obj, call)
            return
        status = judged(obj, call)
        if status != obj.get("status"):
            call.store.put(KEY, obj | {"status": status, "metadata": dict(obj["metadata"])})
        if previous is None or previous.load().get("spec") != obj["spec"] or not served(call.registry, obj):
            serve(call, obj | {"status": status}, call.memo.get(KEY))

    @staticmethod
    def clean(record: Record, obj: Json, call: Call) -> None:
        """Delete the objects of a definition that goes, then let it go once none is held by a finalizer."""
        from raybus_localkube.server import deleting  # noqa: PLC0415 -- verbs stand above kinds

        resource = call.registry.named(obj["spec"]["group"], obj["spec"]["names"]["plural"])
        if resource is not None:
            assert isinstance(resource.strategy, CustomStrategy)
            resource.strategy.terminating = record.name
            for item in call.store.records(resource.key):
                deleting.delete(call, resource, item.namespace, item.name, deleting.DeleteOptions())
        if resource is None or not call.store.records(resource.key):
            release(call, record.name)

    def mark_deleting(self, obj: Json) -> None:
        """No grace period shows on a definition, but what comes next does."""
        status = obj["status"]
        message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"
        when = obj["metadata"]["deletionTimestamp"]
        fresh = condition(said("Terminating", "True", "InstanceDeletionPending", message), status, when)
        obj["status"] = status | {"conditions": [*(status.get("conditions") or ()), fresh]}

    def after_delete(self, record: Record, call: Call) -> None:
        spec = record.load()["spec"]
        call.registry.remove(spec["group"], spec["names"]["plural"])

    def columns(self, version: str) -> tuple[Column, ...]:
        return (Column("Name", "string", "name"), Column("Created At", "date"))

    def cells(self, obj: Json, version: str, call: Call) -> list[Any]:
        return [obj["metadata"]["name"], obj["metadata"]["creationTimestamp"]]


def release(call: Call, name: str) -> None:
    """Take the clean-up finalizer from a definition without objects; with the last finalizer it is gone."""
    record = call.store.get(KEY, "", name)
    if record is None:
        return
    obj = record.load()
    kept = [f for f in obj["metadata"].get("finalizers") or () if f != CLEANUP]
    if kept:
        obj["metadata"]["finalizers"] = kept
        call.store.put(KEY, obj)
        return
    obj["metadata"].pop("finalizers", None)
    call.store.remove(KEY, record, obj)
    spec = obj["spec"]
    call.registry.remove(spec["group"], spec["names"]["plural"])


def served(registry: Registry, obj: Json) -> bool:
    return registry.named(obj["spec"]["group"], obj["spec"]["names"]["plural"]) is not None


def serve(call: Call, definition: Json, versions: dict[str, Version] | None = None) -> None:
    """Put the definition's resource into the registry, and bring stored objects into its form."""
    if not is_established(definition):
        return
    resource = resource_of(definition, versions)
    old = call.registry.named(resource.group, resource.plural)
    call.registry.add(resource)
    if old is None:
        return
    strategy = resource.strategy
    assert isinstance(strategy, CustomStrategy)
    for record in call.store.records(resource.key):
        obj = record.load()
        strategy.reshape(obj)
        fresh = Record.of(obj, record.rv)
        if fresh.body != record.body:
            call.store.rewrite(resource.key, fresh)


def condition(fresh: Json, old: Json, now: str) -> Json:
    """A condition with the time of its last change."""
    before = next((c for c in (old.get("conditions") or ()) if c["type"] == fresh["type"]), None)
    same = before is not None and before["status"] == fresh["status"]
    return fresh | {"lastTransitionTime": before["lastTransitionTime"] if same and before else now}


def said(kind: str, status: str, reason: str, message: str) -> Json:
    return {"type": kind, "status": status, "reason": reason, "message": message}


def judged(obj: Json, call: Call) -> Json:
    """The status after names were looked at."""
    names, old, now = obj["spec"]["names"], obj.get("status") or {}, timestamp(call.env.now())
    clash = conflict(obj, call.registry)
    stored = old.get("storedVersions")
    if clash is not None:
        reason, message = clash
        conditions = [
            condition(said("NamesAccepted", "False", reason, message), old, now),
            condition(said("Established", "False", "NotAccepted", "not all names are accepted"), old, now),
        ]
        accepted = {"plural": names["plural"], "kind": ""}
    else:
        conditions = [
            condition(said("NamesAccepted", "True", "NoConflicts", "no conflicts found"), old, now),
            condition(
                said("Established", "True", "InitialNamesAccepted", "the initial names have been accepted"), old, now
            ),
        ]
        accepted = dict(names)
    known = {c["type"] for c in conditions}
    conditions += [c for c in old.get("conditions") or () if c["type"] not in known]
    return {"conditions": conditions, "acceptedNames": accepted, "storedVersions": stored}


def conflict(obj: Json, registry: Registry) -> tuple[str, str] | None:
    """Why the names cannot be accepted: another definition of the group has them."""
    spec = obj["spec"]
    names = spec["names"]
    others = [r for r in registry.all() if r.group == spec["group"] and r.plural != names["plural"]]
    for other in others:
        if other.list_kind == names.get("listKind"):
            return "ListKindConflict", f'"{names["listKind"]}" is already in use'
        if other.kind == names["kind"]:
            return "KindConflict", f'"{names["kind"]}" is already in use'
        if other.singular == names.get("singular"):
            return "SingularConflict", f'"{names["singular"]}" is already in use'
    return None
