"""Reading a built-in object as Go would: types checked, unknown fields told, what Go leaves out left out. Pure."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import orjson

from raybus_localkube.data import builtin
from raybus_localkube.kinds import scalars

Json = dict[str, Any]

# Go has pointers here, so the zero value is a value; the schema does not say so.
KEEP_EMPTY = frozenset({"storageClassName", "ingressClassName", "volumeName", "appProtocol", "holderIdentity"})
# Go has plain fields with omitempty here, so the zero value is not printed.
DROP_FALSE = frozenset(
    {"hostNetwork", "hostPID", "hostIPC", "readOnly", "stdin", "stdinOnce", "tty", "publishNotReadyAddresses", "unschedulable",
     "preserveUnknownFields", "deprecated", "nullable", "exclusiveMinimum", "exclusiveMaximum", "uniqueItems",
     "x-kubernetes-embedded-resource", "x-kubernetes-int-or-string"}
)  # fmt: skip
DROP_ZERO = frozenset(
    {"hostPort", "nodePort", "healthCheckNodePort", "initialDelaySeconds", "active", "succeeded", "failed", "generation",
     "observedGeneration", "count", "deprecatedCount", "signal", "priority"}
)  # fmt: skip
# Times that Go holds by value: printed as null when they are not set.
NULL_TIMES = {
    "PodCondition": ("lastProbeTime", "lastTransitionTime"), "JobCondition": ("lastProbeTime", "lastTransitionTime"),
    "NodeCondition": ("lastHeartbeatTime", "lastTransitionTime"), "ContainerStateRunning": ("startedAt",),
    "ContainerStateTerminated": ("startedAt", "finishedAt"),
}  # fmt: skip
GO_SCALARS = {"s": "string", "i": "int32", "I": "int64", "n": "float64", "b": "bool"}


class DecodeError(ValueError):
    """The body is not of the kind's type; the message is Go's."""


class Pairs(dict[str, Any]):
    """A JSON object that knows which of its keys were given twice."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        seen: set[str] = set()
        self.twice = [key for key, _ in pairs if key in seen or seen.add(key)]  # type: ignore[func-returns-value] # set.add


def with_duplicates(raw: bytes, parsed: Any) -> Any:
    """`parsed`, or the same with Pairs where a key is given twice. The slow parser runs only where the number of colons allows it."""
    if raw.count(b'":') + raw.count(b'" :') <= count_keys(parsed):
        return parsed
    return json.loads(raw, object_pairs_hook=Pairs)


def count_keys(value: Any) -> int:
    if isinstance(value, dict):
        return len(value) + sum(count_keys(item) for item in value.values() if isinstance(item, (dict, list)))
    if isinstance(value, list):
        return sum(count_keys(item) for item in value if isinstance(item, (dict, list)))
    return 0


def go_kind(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, (int, float)):
        return "number"
    return (
        "string"
        if isinstance(value, str)
        else "array"
        if isinstance(value, list)
        else "object"
        if isinstance(value, dict)
        else "null"
    )


@cache
def schemas() -> dict[str, Json]:
    found: dict[str, Json] = builtin()["schemas"]
    return found


class Decoder:
    """One reading of one object; `strict` gathers unknown and duplicate fields in order of appearance."""

    def __init__(self) -> None:
        self.strict: list[str] = []

    def decode(self, obj: Any, schema: str) -> Json:
        return self.struct(obj, schema, schema, "", "")

    def struct(self, value: Any, schema: str, owner: str, path: str, go_path: str) -> Json:
        if not isinstance(value, dict):
            raise self.mismatch(value, owner, go_path, f"v1.{schema}")
        fields = schemas()[schema]["p"]
        out: Json = {}
        if type(value) is Pairs:
            self.strict += [f'duplicate field "{path}{key}"' for key in value.twice]
        for key, item in value.items():
            kind = fields.get(key)
            if kind is None:
                self.strict.append(f'unknown field "{path}{key}"')
            elif item is not None:
                read = self.value(item, kind, schema, f"{path}{key}", f"{go_path}.{key}" if go_path else key)
                if read or self.kept(key, read, kind):
                    out[key] = read
        self.complete(out, schema)
        return out

    @staticmethod
    def kept(key: str, value: Any, kind: Any) -> bool:
        """Whether Go prints this zero value."""
        if isinstance(value, bool):
            return key not in DROP_FALSE
        if isinstance(value, (int, float)):
            return key not in DROP_ZERO
        if isinstance(value, str):
            return key in KEEP_EMPTY
        return kind == "o" or (isinstance(kind, dict) and "r" in kind)

    def complete(self, out: Json, schema: str) -> None:
        """Add what Go always prints: empty structs held by value, and required fields."""
        entry = schemas()[schema]
        for key, kind in entry["p"].items():
            if key not in out and isinstance(kind, dict) and kind.get("z"):
                fresh: Json = {}
                out[key] = fresh
                self.complete(fresh, kind["r"])
        for key in NULL_TIMES.get(schema, ()):
            out.setdefault(key, None)
        for key in entry.get("req", ()):
            if key not in out:
                kind = entry["p"][key]
                if isinstance(kind, str):
                    out[key] = {"s": "", "i": 0, "I": 0, "n": 0, "b": False}.get(kind)
                elif "r" not in kind:
                    out[key] = None

    def value(self, value: Any, kind: Any, owner: str, path: str, go_path: str) -> Any:
        if isinstance(kind, str):
            return self.scalar(value, kind, owner, go_path)
        if "r" in kind:
            return self.struct(value, kind["r"], owner, f"{path}.", go_path)
        if "a" in kind:
            if not isinstance(value, list):
                raise self.mismatch(value, owner, go_path, self.type_name(kind))
            return [
                self.element(item, kind["a"], owner, f"{path}[{index}]", go_path) for index, item in enumerate(value)
            ]
        if not isinstance(value, dict):
            raise self.mismatch(value, owner, go_path, self.type_name(kind))
        if type(value) is Pairs:
            self.strict += [f'duplicate field "{path}.{key}"' for key in value.twice]
        inner = kind["m"]
        return {key: self.element(item, inner, owner, f"{path}.{key}", go_path) for key, item in value.items()}

    def element(self, value: Any, kind: Any, owner: str, path: str, go_path: str) -> Any:
        """An item of a list or map: null is the zero value."""
        if value is None:
            if isinstance(kind, dict) and "r" in kind:
                value = {}
            else:
                return {"s": "", "B": ""}.get(kind) if isinstance(kind, str) else None
        return self.value(value, kind, owner, path, go_path)

    def scalar(self, value: Any, kind: str, owner: str, go_path: str) -> Any:
        match kind:
            case "o":
                return plain(value)
            case "s" if isinstance(value, str):
                return value
            case "b" if isinstance(value, bool):
                return value
            case "i" | "I" if isinstance(value, (int, float)) and not isinstance(value, bool):
                return self.integer(value, kind, owner, go_path)
            case "n" if isinstance(value, (int, float)) and not isinstance(value, bool):
                return value
            case "x" if isinstance(value, (int, str)) and not isinstance(value, bool):
                return value
            case "t" | "T" | "B" | "q":
                return self.formed(value, kind, owner, go_path)
        raise self.mismatch(value, owner, go_path, GO_SCALARS.get(kind, "intstr.IntOrString"))

    def integer(self, value: float, kind: str, owner: str, go_path: str) -> int:
        limit = 1 << (31 if kind == "i" else 63)
        if value != int(value) or not -limit <= value < limit:
            text = orjson.dumps(value).decode()
            raise DecodeError(
                f"json: cannot unmarshal number {text} into Go struct field {owner}.{go_path} of type {GO_SCALARS[kind]}"
            )
        return int(value)

    def formed(self, value: Any, kind: str, owner: str, go_path: str) -> Any:
        if kind == "q" and isinstance(value, (str, int, float)) and not isinstance(value, bool):
            try:
                return scalars.quantity(value)
            except ValueError as error:
                raise DecodeError(str(error)) from None
        if not isinstance(value, str):
            names = {"t": "string", "T": "string", "B": "[]uint8", "q": "string"}
            raise self.mismatch(value, owner, go_path, names[kind])
        try:
            if kind == "B":
                scalars.base64_bytes(value)
                return value
            return scalars.time(value) if kind == "t" else scalars.micro_time(value)
        except ValueError as error:
            raise DecodeError(str(error)) from None

    @staticmethod
    def type_name(kind: Any) -> str:
        if isinstance(kind, str):
            return {"B": "[]uint8", "q": "resource.Quantity", "x": "intstr.IntOrString"}.get(
                kind, GO_SCALARS.get(kind, "interface {}")
            )
        if "r" in kind:
            return f"v1.{kind['r']}"
        if "a" in kind:
            return "[]" + Decoder.type_name(kind["a"])
        return "map[string]" + Decoder.type_name(kind["m"])

    @staticmethod
    def mismatch(value: Any, owner: str, go_path: str, expected: str) -> DecodeError:
        if not go_path:
            return DecodeError(f"json: cannot unmarshal {go_kind(value)} into Go value of type {expected}")
        return DecodeError(
            f"json: cannot unmarshal {go_kind(value)} into Go struct field {owner}.{go_path} of type {expected}"
        )


def plain(value: Any) -> Any:
    """Free-form JSON as given."""
    return dict(value) if type(value) is Pairs else value
