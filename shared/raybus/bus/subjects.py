"""Subjects: how a message's address is built and read (docs/contracts.md, "Subjects"). Pure.

A `.` parts a subject's tokens and may stand in Kubernetes names, where `_` may not: each `.` of a name becomes `_`.
"""

from __future__ import annotations

from typing import NamedTuple

from raybus.decide.tree import RootKey
from raybus.domain.identity import partition

CONTROLLERS = ("raycluster", "rayjob", "rayservice")
HISTORY_FILTER = "ray.hist.>"
ANY = "*"
_NO_NAMESPACE = "_"


class ObjectAddress(NamedTuple):
    controller: str
    generation: int
    partition: int
    key: RootKey
    kind: str
    name: str


class HistoryAddress(NamedTuple):
    writer: str
    namespace: str
    kind: str
    name: str


def escape(name: str) -> str:
    """A name as one token. An empty one (no namespace) is a lone `_`, which no name can be."""
    return name.replace(".", "_") if name else _NO_NAMESPACE


def unescape(token: str) -> str:
    return "" if token == _NO_NAMESPACE else token.replace("_", ".")


def object_subject(  # noqa: PLR0917 - the tokens of the subject, in their order
    controller: str,
    generation: int,
    part: int,
    key: RootKey,
    kind: str,
    name: str,
) -> str:
    """Where an object of `kind` lies in the tree `key`; `part` is partition_of(key, P)."""
    root = f"{escape(key.namespace)}.{key.kind}.{escape(key.name)}"
    return f"ray.{controller}.{generation}.obj.{part}.{root}.{kind}.{escape(name)}"


def partition_of(key: RootKey, partitions: int) -> int:
    return partition(key.namespace, key.name, partitions)


def parse_object(subject: str) -> ObjectAddress:
    """Raises ValueError if it is not an object's subject."""
    tokens = subject.split(".")
    if len(tokens) != 10 or tokens[0] != "ray" or tokens[3] != "obj":
        raise ValueError(f"not an object subject: {subject}")
    key = RootKey(tokens[6], unescape(tokens[5]), unescape(tokens[7]))
    return ObjectAddress(tokens[1], int(tokens[2]), int(tokens[4]), key, tokens[8], unescape(tokens[9]))


def marker_subject(controller: str, generation: int, kind: str) -> str:
    return f"ray.{controller}.{generation}.mark.{kind}"


def parse_marker(subject: str) -> str:
    """The kind that a completeness marker is about. Raises ValueError if it is not a marker's subject."""
    tokens = subject.split(".")
    if len(tokens) != 5 or tokens[0] != "ray" or tokens[3] != "mark":
        raise ValueError(f"not a marker subject: {subject}")
    return tokens[4]


def is_marker(subject: str) -> bool:
    return subject.split(".", 4)[3:4] == ["mark"]


def history_subject(writer: str, namespace: str, kind: str, name: str) -> str:
    return f"ray.hist.{writer}.{escape(namespace)}.{kind}.{escape(name)}"


def parse_history(subject: str) -> HistoryAddress:
    tokens = subject.split(".")
    if len(tokens) != 6 or tokens[:2] != ["ray", "hist"]:
        raise ValueError(f"not a history subject: {subject}")
    return HistoryAddress(tokens[2], unescape(tokens[3]), tokens[4], unescape(tokens[5]))


def partition_filter(controller: str, generation: int, part: int) -> str:
    return f"ray.{controller}.{generation}.obj.{part}.>"


def objects_filter(controller: str, generation: int | str) -> str:
    return f"ray.{controller}.{generation}.obj.>"


def markers_filter(controller: str, generation: int | str) -> str:
    return f"ray.{controller}.{generation}.mark.*"


def controller_filter(controller: str) -> str:
    """All that a controller's object stream takes."""
    return f"ray.{controller}.>"


def history_filter(writer: str) -> str:
    return f"ray.hist.{writer}.>"


def lease_subject(bucket: str, key: str) -> str:
    """A key of a lease bucket; `bucket` is "lease-rayjob", `key` "session.<replica>" or "part.<p>"."""
    return f"$KV.{bucket}.{key}"
