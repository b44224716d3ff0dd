"""Validation by a structural schema, in the server's words, with ratcheting. Pure."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import orjson

from raybus_localkube.kinds import scalars
from raybus_localkube.server.errors import Cause, duplicate, invalid, not_supported, quote, required, too_long

Json = dict[str, Any]
MISSING = object()
SKIPPED = Cause(
    "<nil>", "FieldValueInvalid",
    "Invalid value: null: some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation",
)  # fmt: skip
BLOCKING = frozenset({"FieldValueRequired", "FieldValueNotSupported", "FieldValueTypeInvalid"})
"""After such an error the CEL rules are not evaluated."""
EMAIL = re.compile(r"[^@\s]+@[^@\s]+")


@lru_cache(maxsize=512)
def pattern(text: str) -> re.Pattern[str] | None:
    try:
        return re.compile(text)
    except re.error:
        return None


def type_of(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    return "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"


def fits(value: Any, wanted: str) -> bool:
    found = type_of(value)
    return found == wanted or (wanted == "number" and found == "integer")


class Validator:
    """Gathers the causes of one object."""

    def __init__(self) -> None:
        self.causes: list[Cause] = []

    def check(self, value: Any, schema: Json, path: str, old: Any = MISSING) -> None:
        """`old` is the value it replaces; what did not change is not held to value rules again."""
        unchanged = old is not MISSING and old == value
        if value is None and schema.get("nullable"):
            return
        if not self.typed(value, schema, path, unchanged=unchanged):
            return
        if not unchanged:
            self.value_rules(value, schema, path)
        if isinstance(value, dict):
            self.object_rules(value, schema, path, old, unchanged=unchanged)
        elif isinstance(value, list):
            self.list_rules(value, schema, path, old, unchanged=unchanged)
        elif isinstance(value, str) and not unchanged:
            self.string_rules(value, schema, path)
        elif isinstance(value, (int, float)) and not isinstance(value, bool) and not unchanged:
            self.number_rules(value, schema, path)

    def typed(self, value: Any, schema: Json, path: str, *, unchanged: bool) -> bool:
        wanted = schema.get("type")
        if schema.get("x-kubernetes-int-or-string"):
            if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
                return True
            wanted = "integer,string"
        elif not wanted or fits(value, wanted):
            return True
        if not unchanged:
            self.wrong_type(value, path, wanted)
        return False

    def wrong_type(self, value: Any, path: str, wanted: str) -> None:
        found = type_of(value)
        message = f"Invalid value: {quote(found)}: {path} in body must be of type {wanted}: {quote(found)}"
        self.causes.append(Cause(path, "FieldValueTypeInvalid", message))

    def value_rules(self, value: Any, schema: Json, path: str) -> None:
        options = schema.get("enum")
        if options is not None and value not in options:
            shown = [option if isinstance(option, str) else orjson.dumps(option).decode() for option in options]
            self.causes.append(not_supported(path, value, shown))
        for group, problem in (
            ("anyOf", "must validate at least one schema (anyOf)"),
            ("oneOf", "must validate one and only one schema (oneOf)"),
        ):
            branches = schema.get(group)
            if branches and not self.branch(value, branches, path, exactly_one=group == "oneOf"):
                self.causes.append(
                    invalid(
                        path, type_of(value) if isinstance(value, (dict, list)) else value, f"{path} in body {problem}"
                    )
                )
        for branch in schema.get("allOf") or ():
            self.check(value, branch, path)
        if "not" in schema and passes(value, schema["not"], path):
            self.causes.append(invalid(path, value, f"{path} in body must not validate the schema (not)"))

    @staticmethod
    def branch(value: Any, branches: list[Json], path: str, *, exactly_one: bool) -> bool:
        hits = sum(passes(value, branch, path) for branch in branches)
        return hits == 1 if exactly_one else hits > 0

    def object_rules(self, value: Json, schema: Json, path: str, old: Any, *, unchanged: bool) -> None:
        before = old if isinstance(old, dict) else {}
        prefix = f"{path}." if path else ""
        for key in schema.get("required") or ():
            if key not in value:
                self.causes.append(required(prefix + key))
        if schema.get("x-kubernetes-embedded-resource") and path:
            self.causes += [required(prefix + key) for key in ("apiVersion", "kind") if not value.get(key)]
        if not unchanged:
            self.counts(value, schema, path, "Properties", "properties")
        properties, additional = schema.get("properties") or {}, schema.get("additionalProperties")
        for key, item in value.items():
            inner = properties.get(key) or (additional if isinstance(additional, dict) else None)
            if inner:
                self.check(item, inner, prefix + key, before.get(key, MISSING))

    def counts(self, value: Any, schema: Json, path: str, noun: str, word: str) -> None:
        least, most = schema.get(f"min{noun}"), schema.get(f"max{noun}")
        if most is not None and len(value) > most:
            message = f"Too many: {len(value)}: must have at most {most} item{'' if most == 1 else 's'}"
            self.causes.append(Cause(path, "FieldValueTooMany", message))
        if least is not None and len(value) < least:
            self.causes.append(invalid(path, len(value), f"{path} in body should have at least {least} {word}"))

    def list_rules(self, value: list[Any], schema: Json, path: str, old: Any, *, unchanged: bool) -> None:
        if not unchanged:
            self.counts(value, schema, path, "Items", "items")
            self.unique(value, schema, path)
        items = schema.get("items")
        if not items:
            return
        before = self.correlate(old, schema)
        keys = schema.get("x-kubernetes-list-map-keys") or ()
        for index, item in enumerate(value):
            key = tuple(item.get(k) for k in keys) if keys and isinstance(item, dict) else None
            known = before.get(key, MISSING) if key is not None else (item if unchanged else MISSING)
            self.check(item, items, f"{path}[{index}]", known)

    @staticmethod
    def correlate(old: Any, schema: Json) -> dict[Any, Any]:
        keys = schema.get("x-kubernetes-list-map-keys")
        if schema.get("x-kubernetes-list-type") != "map" or not keys or not isinstance(old, list):
            return {}
        return {tuple(item.get(k) for k in keys): item for item in old if isinstance(item, dict)}

    def unique(self, value: list[Any], schema: Json, path: str) -> None:
        kind = schema.get("x-kubernetes-list-type")
        keys = schema.get("x-kubernetes-list-map-keys") or ()
        if kind not in ("set", "map"):
            return
        seen: set[str] = set()
        for index, item in enumerate(value):
            shown = {k: item.get(k) for k in keys if k in item} if kind == "map" and isinstance(item, dict) else item
            mark = quote(shown)
            if mark in seen:
                self.causes.append(duplicate(f"{path}[{index}]", shown))
            seen.add(mark)

    def string_rules(self, value: str, schema: Json, path: str) -> None:
        least, most, text = schema.get("minLength"), schema.get("maxLength"), schema.get("pattern")
        if most is not None and len(value) > most:
            self.causes.append(too_long(path, most))
        if least is not None and len(value) < least:
            self.causes.append(invalid(path, value, f"{path} in body should be at least {least} chars long"))
        if text is not None:
            compiled = pattern(text)
            if compiled is not None and not compiled.search(value):
                self.causes.append(invalid(path, value, f"{path} in body should match '{text}'"))
        name = schema.get("format")
        if name and not well_formed(value, name):
            message = f"Invalid value: {quote(value)}: {path} in body must be of type {name}: {quote(value)}"
            self.causes.append(Cause(path, "FieldValueInvalid", message))

    def number_rules(self, value: float, schema: Json, path: str) -> None:
        least, most, step = schema.get("minimum"), schema.get("maximum"), schema.get("multipleOf")
        if most is not None and (value > most or (schema.get("exclusiveMaximum") and value == most)):
            word = "less than" if schema.get("exclusiveMaximum") else "less than or equal to"
            self.causes.append(invalid(path, value, f"{path} in body should be {word} {number(most)}"))
        if least is not None and (value < least or (schema.get("exclusiveMinimum") and value == least)):
            word = "greater than" if schema.get("exclusiveMinimum") else "greater than or equal to"
            self.causes.append(invalid(path, value, f"{path} in body should be {word} {number(least)}"))
        if step and not float(value / step).is_integer():
            self.causes.append(invalid(path, value, f"{path} in body should be a multiple of {number(step)}"))
        limit = {"int32": 1 << 31, "int64": 1 << 63}.get(schema.get("format") or "")
        if limit and schema.get("type") == "integer" and not -limit <= value < limit:
            message = (
                f"Invalid value: {quote(value)}: {path} in body must be of type {schema['format']}: {quote(value)}"
            )
            self.causes.append(Cause(path, "FieldValueInvalid", message))


def passes(value: Any, schema: Json, path: str) -> bool:
    trial = Validator()
    trial.check(value, schema, path)
    return not trial.causes


def number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(value)


def well_formed(value: str, name: str) -> bool:
    try:
        if name == "date-time":
            scalars.parse_time(value)
        elif name == "byte":
            scalars.base64_bytes(value)
        elif name == "email":
            return EMAIL.fullmatch(value) is not None
    except ValueError:
        return False
    return True


def validate(value: Json, schema: Json, old: Any = MISSING) -> list[Cause]:
    """The causes why an object does not fit its schema, without CEL."""
    validator = Validator()
    validator.check(value, schema, "", old)
    return validator.causes


def blocks_rules(causes: list[Cause]) -> bool:
    return any(cause.reason in BLOCKING for cause in causes)
