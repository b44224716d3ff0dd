# ruff: noqa: T201, S606 -- a program of its own: it prints, and becomes the real one
"""`ray` on a pod's PATH: answers `ray health-check --address HOST:PORT` itself and leaves everything else to the real one.

The real check costs two seconds of CPU for importing Ray. This one asks the same server the same question (is the GCS there, does it
run our version) with one gRPC call written by hand. In an init container, which can only wait, it also tries again for a while: the
usual script sleeps five seconds after each failure.
"""

import os
import socket
import struct
import sys
import time

RAY_VERSION = ""
RAY_PROGRAM = ""
TIMEOUT_S = 5.0
INIT_WAIT_S = 30.0
RETRY_S = 0.2
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS, PING, GOAWAY, RESET = 0, 1, 4, 6, 7, 3
METHOD = "/ray.rpc.NodeInfoGcsService/CheckAlive"
# What changes how Ray talks to the GCS: then the real program must ask.
SPECIAL = ("RAY_USE_TLS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_ENABLE_K8S_TOKEN_AUTH")


def target(arguments: list[str]) -> tuple[str, int] | None:
    """Host and port if this is the plain health check of an explicit address, else None."""
    if arguments[:1] != ["health-check"] or any(os.environ.get(name) for name in SPECIAL):
        return None
    rest = arguments[1:]
    if len(rest) == 2 and rest[0] == "--address":
        address = rest[1]
    elif len(rest) == 1 and rest[0].startswith("--address="):
        address = rest[0].partition("=")[2]
    else:
        return None
    host, _, port = address.rpartition(":")
    return (host, int(port)) if host and port.isdigit() and "/" not in host and ":" not in host else None


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def header(name: str, value: str) -> bytes:
    """A header without compression (RFC 7541, 6.2.2: literal, not indexed, new name)."""
    return b"\0" + bytes((len(name),)) + name.encode() + bytes((len(value),)) + value.encode()


def request(host: str, port: int) -> bytes:
    fields = ((":method", "POST"), (":scheme", "http"), (":path", METHOD), (":authority", f"{host}:{port}"),
              ("content-type", "application/grpc"), ("te", "trailers"))  # fmt: skip
    block = b"".join(header(name, value) for name, value in fields)
    empty_message = b"\0\0\0\0\0"
    return PREFACE + frame(SETTINGS, 0, 0, b"") + frame(HEADERS, 4, 1, block) + frame(DATA, 1, 1, empty_message)


def check_alive(host: str, port: int, timeout: float) -> str:
    """The version that a living GCS says. Raises OSError."""
    deadline = time.monotonic() + timeout
    with socket.create_connection((host, port), timeout) as connection:
        connection.sendall(request(host, port))
        message = b""
        while True:
            connection.settimeout(max(0.01, deadline - time.monotonic()))
            length, kind, flags, stream = read_head(connection)
            payload = read(connection, length)
            if kind == SETTINGS and not flags & 1:
                connection.sendall(frame(SETTINGS, 1, 0, b""))
            elif kind == PING and not flags & 1:
                connection.sendall(frame(PING, 1, 0, payload))
            elif kind == DATA and stream == 1:
                message += payload
                if len(message) >= 5 and len(message) >= 5 + struct.unpack(">I", message[1:5])[0]:
                    return version_in(message[5:])
            elif kind in (GOAWAY, RESET) or (kind == HEADERS and flags & 1):
                raise ConnectionError("the GCS refused the call")


def read_head(connection: socket.socket) -> tuple[int, int, int, int]:
    head = read(connection, 9)
    (stream,) = struct.unpack(">I", head[5:])
    return int.from_bytes(head[:3], "big"), head[3], head[4], stream & 0x7FFFFFFF


def read(connection: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        piece = connection.recv(length - len(data))
        if not piece:
            raise ConnectionError("the GCS closed the connection")
        data += piece
    return data


def version_in(message: bytes) -> str:
    """Field 2 of a CheckAliveReply; "" where the GCS says none. Raises ConnectionError if field 1, the status, has a code."""
    version, at = "", 0
    while at < len(message):
        tag, at = varint(message, at)
        if tag & 7 == 0:
            _, at = varint(message, at)
            continue
        if tag & 7 != 2:
            break
        length, at = varint(message, at)
        value, at = message[at : at + length], at + length
        if tag >> 3 == 1 and value[:1] == b"\x08" and value[1:2] != b"\0":
            raise ConnectionError("the GCS says that it is not well")
        if tag >> 3 == 2:
            version = value.decode()
    return version


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def health_check(host: str, port: int, wait: float) -> int:
    began = time.monotonic()
    while True:
        try:
            version = check_alive(host, port, TIMEOUT_S)
            break
        except (OSError, IndexError) as error:
            if time.monotonic() - began + RETRY_S >= wait:
                print(f"GCS at {host}:{port} is not healthy: {error}", file=sys.stderr)
                return 1
            time.sleep(RETRY_S)
    if version and version != RAY_VERSION:
        print(
            f"Ray version mismatch: cluster has Ray version {version} but local Ray version is {RAY_VERSION}",
            file=sys.stderr,
        )
        return 1
    return 0


def main(arguments: list[str]) -> int:
    found = target(arguments)
    if found is None:
        os.execv(RAY_PROGRAM, [RAY_PROGRAM, *arguments])
    init = os.environ.get("RAYBUS_CONTAINER_TYPE") == "init"
    return health_check(*found, INIT_WAIT_S if init else 0.0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
