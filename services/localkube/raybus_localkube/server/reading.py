"""Get and list: selection, pages that are a snapshot, resourceVersion semantics."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Any

import orjson

from raybus_localkube.kinds.resource import Call, Resource
from raybus_localkube.server import errors
from raybus_localkube.server.messages import Query
from raybus_localkube.store import selectors
from raybus_localkube.store.records import Record

Json = dict[str, Any]
SELECTABLE = frozenset({"metadata.name", "metadata.namespace"})


@dataclass(frozen=True, slots=True)
class Selection:
    """Which objects of a resource: label and field selector."""

    resource: Resource
    labels: selectors.LabelSelector
    fields: selectors.FieldSelector

    def __bool__(self) -> bool:
        return bool(self.labels) or bool(self.fields)

    def matches(self, record: Record) -> bool:
        if not self.labels.matches(record.labels):
            return False
        if not self.fields:
            return True
        if self.fields.only_metadata:
            names = {"metadata.name": record.name, "metadata.namespace": record.namespace}
            return self.fields.matches(names.__getitem__)
        obj = record.load()
        return self.fields.matches(lambda path: self.resource.field_value(obj, path))


def read_selection(query: Query, resource: Resource) -> Selection:
    try:
        labels = selectors.parse_labels(query.get("labelSelector"))
        fields = selectors.parse_fields(query.get("fieldSelector"))
    except selectors.SelectorError as error:
        raise errors.bad_request(str(error)) from None
    for requirement in fields.requirements:
        if requirement.path not in SELECTABLE and requirement.path not in resource.strategy.fields:
            raise errors.bad_request(f"field label not supported: {requirement.path}")
    return Selection(resource, labels, fields)


def read_number(query: Query, key: str) -> int:
    text = query.get(key)
    if not text:
        return 0
    try:
        return int(text)
    except ValueError:
        raise errors.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from None


@dataclass(slots=True)
class Page:
    records: list[Record]
    rv: int
    cont: str = ""
    remaining: int | None = None

    def meta(self, *, builtin: bool) -> Json:
        """ListMeta; lists of custom resources always carry `continue`."""
        meta: Json = {"resourceVersion": str(self.rv)}
        if self.cont or not builtin:
            meta["continue"] = self.cont
        if self.remaining is not None:
            meta["remainingItemCount"] = self.remaining
        return meta


def parse_rv(text: str, code: int) -> int:
    if text and not text.isdigit():
        message = f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
        raise errors.bad_request(message) if code == 400 else errors.internal(message)
    return int(text or 0)


def check_match(query: Query, given: str) -> str:
    """ResourceVersionMatch of a list."""
    match = query.get("resourceVersionMatch")
    causes = []
    if match and match not in ("Exact", "NotOlderThan"):
        causes.append(errors.not_supported("resourceVersionMatch", match, ["Exact", "NotOlderThan", ""]))
    elif match and not given:
        causes.append(
            errors.forbidden_field(
                "resourceVersionMatch", "resourceVersionMatch is forbidden unless resourceVersion is provided"
            )
        )
    elif match == "Exact" and given == "0":
        message = 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
        causes.append(errors.forbidden_field("resourceVersionMatch", message))
    if causes:
        raise errors.invalid_object("meta.k8s.io", "ListOptions", "", causes)
    return match


def list_page(call: Call, resource: Resource, namespace: str | None, query: Query, selection: Selection) -> Page:
    limit = max(0, read_number(query, "limit"))
    given, token = query.get("resourceVersion"), query.get("continue")
    match = check_match(query, given)
    rv = parse_rv(given, 400)
    store = call.store
    start = None
    at = store.rv
    if token:
        if given and given != "0":
            raise errors.bad_request("specifying resource version is not allowed when using continue")
        at, start = read_token(token)
    elif rv > store.rv:
        raise errors.too_large_version(rv, store.rv)
    elif match == "Exact":
        at = rv
    if at == store.rv:
        records = store.records(resource.key, namespace)
    else:
        found = store.snapshot(resource.key, namespace, at) if at <= store.rv else None
        if found is None:
            if token:
                raise errors.expired(
                    "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter."
                )
            raise errors.expired("The resourceVersion for the provided list is too old.")
        records = found
    if selection:
        records = [record for record in records if selection.matches(record)]
    if start is not None:
        records = [record for record in records if (record.namespace, record.name) > start]
    if given == "0" and not token:
        limit = 0  # served from the watch cache, which knows no pages
    if not limit or len(records) <= limit:
        return Page(records, at)
    page = records[:limit]
    remaining = None if selection else len(records) - limit
    return Page(page, at, make_token(at, page[-1]), remaining)


def make_token(rv: int, last: Record) -> str:
    return base64.urlsafe_b64encode(
        orjson.dumps({"v": "meta.k8s.io/v1", "rv": rv, "start": [last.namespace, last.name]})
    ).decode()


def read_token(token: str) -> tuple[int, tuple[str, str]]:
    def refuse(problem: str) -> errors.ApiError:
        return errors.bad_request(f"invalid continue token: continue key is not valid: {problem}")

    try:
        raw = base64.b64decode(token, altchars=b"-_", validate=True)
    except binascii.Error:
        raise refuse(f"illegal base64 data at input byte {len(token) // 4 * 4}") from None
    try:
        parsed = orjson.loads(raw)
        namespace, name = parsed["start"]
        return int(parsed["rv"]), (str(namespace), str(name))
    except (ValueError, KeyError, TypeError):
        raise refuse("encoded start key is not a list position") from None


def only_name(selection: Selection, name: str) -> Selection:
    """The selection, narrowed to one name."""
    requirement = selectors.FieldRequirement("metadata.name", name, equal=True)
    fields = selectors.FieldSelector((*selection.fields.requirements, requirement))
    return Selection(selection.resource, selection.labels, fields)
