"""Label and field selectors: their text, as the API takes it, to a predicate."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Labels = Mapping[str, str]
TOKEN = re.compile(r"\s*(?:(==|!=|=|,|\(|\)|!|>|<)|([^\s,()=!<>]+))")
NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
NAME_HINT = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
VALUE_HINT = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


class SelectorError(ValueError):
    """The text is no selector; the message is the API server's."""


@dataclass(frozen=True, slots=True)
class Requirement:
    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Labels) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case "exists":
                return value is not None
            case "!":
                return value is None
            case "in":
                return value is not None and value in self.values
            case "notin":
                return value is None or value not in self.values
            case _:
                return value is not None and compare(value, self.operator, int(self.values[0]))


def compare(value: str, operator: str, bound: int) -> bool:
    try:
        number = int(value)
    except ValueError:
        return False
    return number > bound if operator == ">" else number < bound


@dataclass(frozen=True, slots=True)
class LabelSelector:
    requirements: tuple[Requirement, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.requirements)

    def matches(self, labels: Labels) -> bool:
        return all(requirement.matches(labels) for requirement in self.requirements)


EVERYTHING = LabelSelector()


class LabelParser:
    def __init__(self, text: str) -> None:
        self.tokens: list[tuple[str, bool]] = []  # text, is it an identifier
        position = 0
        while position < len(text):
            found = TOKEN.match(text, position)
            if found is None:
                break
            self.tokens.append((found[1], False) if found[1] else (found[2], True))
            position = found.end()
        self.position = 0

    def peek(self) -> tuple[str, bool]:
        return self.tokens[self.position] if self.position < len(self.tokens) else ("", False)

    def take(self) -> tuple[str, bool]:
        token = self.peek()
        self.position += 1
        return token

    def parse(self) -> LabelSelector:
        found: list[Requirement] = []
        text, identifier = self.peek()
        if text and not identifier and text != "!":
            raise SelectorError(f"found '{text}', expected: !, identifier, or 'end of string'")
        while self.peek()[0]:
            found.append(self.requirement())
            text, _ = self.take()
            if text == "":
                break
            if text != ",":
                raise SelectorError(f"found '{text}', expected: ',' or 'end of string'")
            text, identifier = self.peek()
            if not identifier and text != "!":
                raise SelectorError(f"found '{text}', expected: identifier after ','")
        return LabelSelector(tuple(found))

    def requirement(self) -> Requirement:
        text, identifier = self.take()
        if text == "!":
            key = self.key(*self.take())
            return Requirement(key, "!")
        key = self.key(text, identifier)
        operator, _ = self.peek()
        if operator in ("", ","):
            return Requirement(key, "exists")
        self.take()
        match operator:
            case "=" | "==":
                return Requirement(key, "in", (self.value(key),))
            case "!=":
                return Requirement(key, "notin", (self.value(key),))
            case "in" | "notin":
                return Requirement(key, operator, self.values(key))
            case ">" | "<":
                return Requirement(key, operator, (self.number(key),))
        raise SelectorError(f"unable to parse requirement: found '{operator}', expected: in, notin, =, ==, !=, gt, lt")

    def key(self, text: str, identifier: bool) -> str:
        if not identifier:
            raise SelectorError(f"unable to parse requirement: found '{text}', expected: identifier")
        name = text.rpartition("/")[2]
        if not NAME.fullmatch(name):
            raise SelectorError(f'unable to parse requirement: <nil>: Invalid value: "{text}": {NAME_HINT}')
        return text

    def value(self, key: str) -> str:
        text, identifier = self.peek()
        if text in ("", ","):
            return ""
        if not identifier:
            raise SelectorError(f"unable to parse requirement: found '{text}', expected: identifier")
        self.take()
        return self.checked(key, text, 0)

    def checked(self, key: str, text: str, index: int) -> str:
        problem = "" if NAME.fullmatch(text) or not text else VALUE_HINT
        if len(text) > 63:
            problem = "must be no more than 63 bytes"
        if problem:
            raise SelectorError(
                f'unable to parse requirement: values[{index}][{key}]: Invalid value: "{text}": {problem}'
            )
        return text

    def values(self, key: str) -> tuple[str, ...]:
        text, _ = self.take()
        if text != "(":
            raise SelectorError(f"unable to parse requirement: found '{text}' expected: '('")
        found: list[str] = []
        while True:
            text, identifier = self.peek()
            if identifier:
                self.take()
                found.append(self.checked(key, text, len(found)))
                text, identifier = self.peek()
            else:
                found.append("")
            self.take()
            if text == ")":
                return tuple(found)
            if text != ",":
                raise SelectorError(f"unable to parse requirement: found '{text}', expected: ',' or ')'")

    def number(self, key: str) -> str:
        text, _ = self.take()
        try:
            int(text)
        except ValueError:
            raise SelectorError(
                f'unable to parse requirement: values[0][{key}]: Invalid value: "{text}": '
                "for 'Gt', 'Lt' operators, the value must be an integer"
            ) from None
        return text


def parse_labels(text: str) -> LabelSelector:
    return LabelParser(text).parse() if text else EVERYTHING


@dataclass(frozen=True, slots=True)
class FieldRequirement:
    path: str
    value: str
    equal: bool


@dataclass(frozen=True, slots=True)
class FieldSelector:
    requirements: tuple[FieldRequirement, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.requirements)

    @property
    def name(self) -> str | None:
        """The one name that can match, if the selector says so."""
        return next((r.value for r in self.requirements if r.path == "metadata.name" and r.equal), None)

    @property
    def only_metadata(self) -> bool:
        return all(r.path in ("metadata.name", "metadata.namespace") for r in self.requirements)

    def matches(self, value_of: Callable[[str], str]) -> bool:
        return all((value_of(r.path) == r.value) == r.equal for r in self.requirements)


def split_terms(text: str) -> Sequence[str]:
    r"""Split at commas that are not escaped with a backslash."""
    return [term for term in re.split(r"(?<!\\),", text) if term]


def parse_fields(text: str) -> FieldSelector:
    found = []
    for term in split_terms(text):
        parsed = re.match(r"([^=!]+)(!=|==|=)(.*)", term, re.DOTALL)
        if parsed is None:
            raise SelectorError(f"invalid selector: '{text}'; can't understand '{term}'")
        value = re.sub(r"\\([\\,=])", r"\1", parsed[3])
        found.append(FieldRequirement(parsed[1], value, parsed[2] != "!="))
    return FieldSelector(tuple(found))
