"""Request bodies in Kubernetes' protobuf form: kubectl's typed create commands send nothing else.

A table of field numbers for the kinds those commands make; values are read as proto2 writes them. What the table does not know
is refused with a way out.
"""

from __future__ import annotations

import base64
from typing import Any

from raybus_localkube.server import errors

Json = dict[str, Any]
MAGIC = b"k8s\x00"
# Field number to name and type: s string, i integer, b boolean, B bytes, t Time message; a name of a message below; a leading
# "*" is a list, a leading "%" a map from string.
MESSAGES: dict[str, dict[int, tuple[str, str]]] = {
    "Meta": {
        1: ("name", "s"), 2: ("generateName", "s"), 3: ("namespace", "s"), 5: ("uid", "s"), 6: ("resourceVersion", "s"),
        11: ("labels", "%s"), 12: ("annotations", "%s"), 14: ("finalizers", "*s"),
    },
    "ConfigMap": {1: ("metadata", "Meta"), 2: ("data", "%s"), 3: ("binaryData", "%B"), 4: ("immutable", "b")},
    "Secret": {1: ("metadata", "Meta"), 2: ("data", "%B"), 3: ("type", "s"), 4: ("stringData", "%s"), 5: ("immutable", "b")},
    "Namespace": {1: ("metadata", "Meta")},
    "ServiceAccount": {1: ("metadata", "Meta")},
    "IntOrString": {1: ("type", "i"), 2: ("int", "i"), 3: ("str", "s")},
    "ServicePort": {1: ("name", "s"), 2: ("protocol", "s"), 3: ("port", "i"), 4: ("targetPort", "IntOrString"), 5: ("nodePort", "i")},
    "ServiceSpec": {
        1: ("ports", "*ServicePort"), 2: ("selector", "%s"), 3: ("clusterIP", "s"), 4: ("type", "s"), 10: ("externalName", "s"),
    },
    "Service": {1: ("metadata", "Meta"), 2: ("spec", "ServiceSpec")},
    "ContainerPort": {1: ("name", "s"), 2: ("hostPort", "i"), 3: ("containerPort", "i"), 4: ("protocol", "s")},
    "EnvVar": {1: ("name", "s"), 2: ("value", "s")},
    "Container": {
        1: ("name", "s"), 2: ("image", "s"), 3: ("command", "*s"), 4: ("args", "*s"), 5: ("workingDir", "s"),
        6: ("ports", "*ContainerPort"), 7: ("env", "*EnvVar"), 14: ("imagePullPolicy", "s"),
    },
    "PodSpec": {2: ("containers", "*Container"), 3: ("restartPolicy", "s"), 8: ("serviceAccountName", "s")},
    "PodTemplate": {1: ("metadata", "Meta"), 2: ("spec", "PodSpec")},
    "JobSpec": {
        1: ("parallelism", "i"), 2: ("completions", "i"), 3: ("activeDeadlineSeconds", "i"), 6: ("template", "PodTemplate"),
        7: ("backoffLimit", "i"),
    },
    "Job": {1: ("metadata", "Meta"), 2: ("spec", "JobSpec")},
    "PolicyRule": {
        1: ("verbs", "*s"), 2: ("apiGroups", "*s"), 3: ("resources", "*s"), 4: ("resourceNames", "*s"), 5: ("nonResourceURLs", "*s"),
    },
    "Role": {1: ("metadata", "Meta"), 2: ("rules", "*PolicyRule")},
    "ClusterRole": {1: ("metadata", "Meta"), 2: ("rules", "*PolicyRule")},
    "Subject": {1: ("kind", "s"), 2: ("apiGroup", "s"), 3: ("name", "s"), 4: ("namespace", "s")},
    "RoleRef": {1: ("apiGroup", "s"), 2: ("kind", "s"), 3: ("name", "s")},
    "RoleBinding": {1: ("metadata", "Meta"), 2: ("subjects", "*Subject"), 3: ("roleRef", "RoleRef")},
    "ClusterRoleBinding": {1: ("metadata", "Meta"), 2: ("subjects", "*Subject"), 3: ("roleRef", "RoleRef")},
    "TokenRequestSpec": {1: ("audiences", "*s"), 4: ("expirationSeconds", "i")},
    "TokenRequest": {1: ("metadata", "Meta"), 2: ("spec", "TokenRequestSpec")},
    "Preconditions": {1: ("uid", "s"), 2: ("resourceVersion", "s")},
    "DeleteOptions": {
        1: ("gracePeriodSeconds", "i"), 2: ("preconditions", "Preconditions"), 3: ("orphanDependents", "b"),
        4: ("propagationPolicy", "s"), 5: ("dryRun", "*s"),
    },
}  # fmt: skip


class Malformed(ValueError):
    """The bytes are no protobuf message."""


def varint(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(raw) or shift > 63:
            raise Malformed("truncated number")
        byte = raw[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def fields(raw: bytes) -> list[tuple[int, int | bytes]]:
    """Field numbers and raw values of a message."""
    found: list[tuple[int, int | bytes]] = []
    at = 0
    while at < len(raw):
        key, at = varint(raw, at)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, at = varint(raw, at)
            found.append((number, value))
        elif wire == 2:
            size, at = varint(raw, at)
            if at + size > len(raw):
                raise Malformed("truncated field")
            found.append((number, raw[at : at + size]))
            at += size
        elif wire in (1, 5):
            at += 8 if wire == 1 else 4
        else:
            raise Malformed(f"unknown wire type {wire}")
    return found


def scalar(kind: str, value: int | bytes) -> Any:
    if isinstance(value, int):
        if kind == "b":
            return bool(value)
        return value - (1 << 64) if value >= 1 << 63 else value
    if kind == "B":
        return base64.b64encode(value).decode()
    if kind == "s":
        return value.decode()
    return message(kind, value)


def message(name: str, raw: bytes) -> Any:
    if name == "IntOrString":
        parts = dict(fields(raw))
        text = parts.get(3, b"")
        return text.decode() if parts.get(1) == 1 and isinstance(text, bytes) else parts.get(2, 0)
    table = MESSAGES[name]
    out: Json = {}
    for number, value in fields(raw):
        if number not in table:
            continue  # what kubectl's commands cannot set is empty
        key, kind = table[number]
        if kind.startswith("*"):
            out.setdefault(key, []).append(scalar(kind[1:], value))
        elif kind.startswith("%"):
            pair = dict(fields(value)) if isinstance(value, bytes) else {}
            out.setdefault(key, {})[scalar("s", pair.get(1, b""))] = scalar(kind[1:], pair.get(2, b""))
        else:
            read = scalar(kind, value)
            if read not in ("", {}, None):
                out[key] = read
    return out


def section(message: dict[int, int | bytes], number: int) -> bytes:
    found = message.get(number, b"")
    if isinstance(found, int):
        raise Malformed(f"field {number} is a number")
    return found


def decode(raw: bytes, kind: str) -> Json:
    """The object of a protobuf body, with kind and apiVersion. ApiError 400 or 415."""
    if not raw.startswith(MAGIC):
        raise errors.bad_request("the body is not in Kubernetes' protobuf form")
    try:
        unknown = dict(fields(raw[len(MAGIC) :]))
        meta = dict(fields(section(unknown, 1)))
        api_version, named = scalar("s", meta.get(1, b"")), scalar("s", meta.get(2, b"")) or kind
        if named not in MESSAGES:
            hint = (
                f"localkube does not read {named} in protobuf form; use JSON, such as: "
                "kubectl create ... --dry-run=client -o yaml | kubectl apply -f -"
            )
            raise errors.ApiError(415, "UnsupportedMediaType", hint)
        body = message(named, section(unknown, 2))
    except (Malformed, UnicodeDecodeError, TypeError) as error:
        raise errors.bad_request(f"the body is not in Kubernetes' protobuf form: {error}") from None
    found: Json = {"kind": named, "apiVersion": api_version} | body
    return {key: value for key, value in found.items() if value != ""}
