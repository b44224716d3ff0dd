"""CEL rules of a schema (x-kubernetes-validations): compiled once, evaluated where their value changed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from raybus_localkube.kinds.custom import engine
from raybus_localkube.kinds.custom.validation import MISSING, Validator
from raybus_localkube.server.errors import REASONS, Cause

Json = dict[str, Any]
OLD_SELF = re.compile(r"\boldSelf\b")


class RuleError(ValueError):
    """A rule that cannot be compiled."""


@dataclass(frozen=True, slots=True)
class Rule:
    program: Any
    text: str
    transition: bool
    message: str
    expression: Any
    """Program of messageExpression, or None."""
    field_path: str
    reason: str

    def evaluate(self, value: Any, old: Any, path: str) -> Cause | None:
        """The cause if the rule does not hold."""
        if self.transition and old is MISSING:
            return None
        scope = {"self": value} if old is MISSING else {"self": value, "oldSelf": old}
        field = (path + self.field_path).lstrip(".") if self.field_path else path
        try:
            if self.program.execute(scope) is True:
                return None
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            return Cause(field or "<nil>", self.reason, f"Invalid value: rule evaluation error: {error}")
        label = REASONS.get(self.reason, "Invalid value")
        return Cause(field or "<nil>", self.reason, f"{label}: {self.words(scope)}")

    def words(self, scope: Json) -> str:
        if self.expression is not None:
            try:
                return str(self.expression.execute(scope))
            except (KeyError, TypeError, ValueError, RuntimeError):
                pass  # the fixed message is what a real server falls back to
        return self.message or f"failed rule: {self.text}"


def compile_expression(text: str) -> Any:
    try:
        return engine.compile_expression(text)
    except (ValueError, RuntimeError) as error:
        raise RuleError(f"compilation failed: {error}") from error


def compile_rule(given: Json) -> Rule:
    text = given["rule"].strip()
    expression = given.get("messageExpression")
    return Rule(
        compile_expression(text), text, bool(OLD_SELF.search(text)), given.get("message", ""),
        compile_expression(expression) if expression else None, given.get("fieldPath", ""), given.get("reason") or "FieldValueInvalid",
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Node:
    """The part of a schema below which there are rules."""

    rules: tuple[Rule, ...]
    properties: dict[str, Node]
    items: Node | None
    additional: Node | None
    schema: Json

    def evaluate(self, value: Any, old: Any, path: str, causes: list[Cause]) -> None:
        if value is None:
            return
        for rule in self.rules:
            if rule.transition or old is MISSING or old != value:
                cause = rule.evaluate(value, old, path)
                if cause is not None:
                    causes.append(cause)
        if isinstance(value, dict):
            before = old if isinstance(old, dict) else {}
            for key, node in self.properties.items():
                if key in value:
                    node.evaluate(value[key], before.get(key, MISSING), f"{path}.{key}" if path else key, causes)
            if self.additional is not None:
                for key, item in value.items():
                    self.additional.evaluate(item, before.get(key, MISSING), f"{path}[{key}]", causes)
        elif isinstance(value, list) and self.items is not None:
            known = Validator.correlate(old, self.schema)
            keys = self.schema.get("x-kubernetes-list-map-keys") or ()
            for index, item in enumerate(value):
                mark = tuple(item.get(k) for k in keys) if keys and isinstance(item, dict) else None
                self.items.evaluate(item, known.get(mark, MISSING), f"{path}[{index}]", causes)


def build(schema: Any, known: dict[int, Node | None] | None = None) -> Node | None:
    """The rules of a schema, or None if there are none. RuleError if one does not compile.

    `known` holds what was built of parts that stand more than once (see sharing.py).
    """
    if not isinstance(schema, dict):
        return None
    known = {} if known is None else known
    if id(schema) not in known:
        known[id(schema)] = _build(schema, known)
    return known[id(schema)]


def _build(schema: Json, known: dict[int, Node | None]) -> Node | None:
    rules = tuple(compile_rule(rule) for rule in schema.get("x-kubernetes-validations") or ())
    properties = {
        key: node
        for key, inner in (schema.get("properties") or {}).items()
        if (node := build(inner, known)) is not None
    }
    items, additional = build(schema.get("items"), known), build(schema.get("additionalProperties"), known)
    if not (rules or properties or items or additional):
        return None
    return Node(rules, properties, items, additional, schema)


def evaluate(node: Node | None, value: Json, old: Any) -> list[Cause]:
    causes: list[Cause] = []
    if node is not None:
        node.evaluate(value, old, "", causes)
    return causes
