"""What kubelet and node say to each other on `D/node.sock`: one JSON object per line.

Pure. A request is `{"v": 1, "id": n, "op": NAME, ...}`; the answer carries the same id and either the result or
`{"error": TEXT}`. After `subscribe` the node also sends `{"event": NAME, ...}`. Unknown fields are ignored; VERSION changes only when an
old kubelet would misread a new node.

    hello              -> {boot, dns, gateway, ...}          who this node process is
    pod-ensure         {uid, name, namespace, hostname, search, tmpfs: [{name, size}], host_aliases} -> {ip}
    pod-remove         {uid}                                 ends what still runs in it
    container-start    ContainerSpec -> ContainerRecord
    container-signal   {id, signal}
    container-forget   {id}                                  removes the root of a container that has ended
    exec               {id, argv, timeout_s} -> {code, output, timed_out}
    http-get           {address, port, path, scheme, headers, timeout_s} -> {status, body} | {failure}
    tcp-connect        {address, port, timeout_s} -> {failure?}
    list               -> {pods: [...], containers: [ContainerRecord]}
    services           {reset, put: {"ns/name": Service}, drop: ["ns/name"]}
    api-server         {host, port, vip, vip_port}           where pods find the API server
    subscribe          events `exited` {container: ContainerRecord}
"""

from __future__ import annotations

from typing import Any, TypedDict

import orjson

VERSION = 1
LINE_LIMIT = 8 * 1024 * 1024


class Mount(TypedDict):
    """Bind `source` (a path of the host) at `target` in the container."""

    source: str
    target: str
    read_only: bool


class ContainerSpec(TypedDict):
    """What to run. `cpu` in cores and `memory` in bytes are what programs are told, not enforced."""

    pod: str
    name: str
    attempt: int
    argv: list[str]
    env: dict[str, str]
    cwd: str
    mounts: list[Mount]
    cpu: float
    memory: int
    log: str
    init: bool
    message_path: str


class ContainerRecord(TypedDict):
    """A container as the node knows it; times in seconds since the epoch, `finished` 0.0 while it runs."""

    id: str
    pod: str
    name: str
    attempt: int
    running: bool
    started: float
    finished: float
    exit_code: int
    signal: int
    reason: str
    message: str


class NodeError(Exception):
    """The node refused or failed; the text says what."""


def encode(message: dict[str, Any]) -> bytes:
    return orjson.dumps(message) + b"\n"


def decode(line: bytes) -> dict[str, Any]:
    """ValueError for what is not a JSON object."""
    message = orjson.loads(line)
    if not isinstance(message, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 -- what is wrong is the text, not how this was called
    return message


def container_id(pod_uid: str, name: str, attempt: int) -> str:
    """The same container asked for twice is one container."""
    return f"{pod_uid}/{name}/{attempt}"
