"""Heads of HTTP/1.1 messages, as far as a proxy and a probe need them.

Pure. What may live here: parsing and writing of request lines, status lines and headers.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

HEAD_MAX = 64 * 1024
_HOP_BY_HOP = (b"proxy-connection", b"proxy-authorization", b"keep-alive")


class BadRequest(Exception):
    """The head is not one that a proxy can serve; the text says why."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where a proxied request goes. `head` is what to send there first, empty for a tunnel (CONNECT)."""

    host: str
    port: int
    head: bytes
    tunnel: bool


def proxy_target(head: bytes) -> Target:
    """What a proxy does with a request whose head (up to and with the empty line) this is. Raises BadRequest.

    A plain request goes on with `Connection: close`: one request per connection keeps the proxy out of message framing.
    An upgrade (WebSocket) keeps its Connection header.
    """
    first, _, rest = head.partition(b"\r\n")
    try:
        method, url, version = first.decode("ascii").split(" ")
    except (UnicodeDecodeError, ValueError):
        raise BadRequest("not an HTTP request") from None
    if method == "CONNECT":
        host, port = _split(url, 443)
        return Target(host, port, b"", tunnel=True)
    if not url.lower().startswith("http://"):
        raise BadRequest("this is an HTTP proxy: give http://HOST:PORT/PATH, or CONNECT HOST:PORT")
    parts = urlsplit(url)
    host, port = _split(parts.netloc.rpartition("@")[2], 80)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    lines = [line for line in rest.split(b"\r\n") if line]
    names = [line.partition(b":")[0].strip().lower() for line in lines]
    upgrade = b"upgrade" in names
    dropped = _HOP_BY_HOP if upgrade else (*_HOP_BY_HOP, b"connection")
    kept = [line for line, name in zip(lines, names, strict=True) if name not in dropped]
    if not upgrade:
        kept.append(b"Connection: close")
    return Target(host, port, f"{method} {path} {version}\r\n".encode() + b"\r\n".join([*kept, b"", b""]), tunnel=False)


def _split(authority: str, default: int) -> tuple[str, int]:
    host, separator, port = authority.rpartition(":")
    if not separator:
        host, port = authority, str(default)
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise BadRequest(f"not HOST:PORT: {authority!r}")
    return host.strip("[]"), int(port)


def refusal(code: int, reason: str, text: str) -> bytes:
    body = (text + "\n").encode()
    head = f"HTTP/1.1 {code} {reason}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body


def probe_request(host: str, port: int, path: str, headers: list[tuple[str, str]]) -> bytes:
    """A GET as a kubelet's HTTP probe sends it; given headers replace the usual ones of the same name."""
    given = {name.lower() for name, _ in headers}
    usual = [("Host", f"{host}:{port}"), ("User-Agent", "kube-probe/1.36"), ("Accept", "*/*"), ("Connection", "close")]
    lines = [f"{name}: {value}" for name, value in [*(u for u in usual if u[0].lower() not in given), *headers]]
    if not path.startswith("/"):
        path = "/" + path
    return "\r\n".join([f"GET {path} HTTP/1.1", *lines, "", ""]).encode()


def status_of(head: bytes) -> int:
    """The status code of an answer's first line. Raises BadRequest."""
    parts = head.split(b" ", 2)
    if len(parts) < 2 or not parts[0].startswith(b"HTTP/") or not parts[1][:3].isdigit():
        raise BadRequest("the answer is not HTTP")
    return int(parts[1][:3])
