"""The node's pure parts: DNS, names, proxy heads, root file systems, log lines, addresses."""

from __future__ import annotations

import ipaddress
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybus_localkube.node import dns, httphead, logs, network, rootfs
from raybus_localkube.node.httphead import BadRequest
from raybus_localkube.node.names import Names, Service
from raybus_localkube.node.rootfs import HostLayout, PodFiles, Sizing

NAMES = Names()
NAMES.update(
    {
        "ns/vip": Service("10.96.0.9", ("10.244.0.2",), {}, {80: (("10.244.0.2", 8000),), 81: ()}),
        "ns/head": Service("", ("10.244.0.2", "10.244.0.3"), {"h3": "10.244.0.3"}),
        "ns/empty": Service(),
        "ns/other": Service(external_name="vip.ns.svc.cluster.local"),
    },
    (),
    reset=True,
)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("vip.ns.svc.cluster.local", ("10.96.0.9",)),
        ("VIP.ns.svc.cluster.local.", ("10.96.0.9",)),
        ("head.ns.svc.cluster.local", ("10.244.0.2", "10.244.0.3")),
        ("h3.head.ns.svc.cluster.local", ("10.244.0.3",)),
        ("h4.head.ns.svc.cluster.local", None),
        ("empty.ns.svc.cluster.local", ()),
        ("other.ns.svc.cluster.local", ("10.96.0.9",)),
        ("no.ns.svc.cluster.local", None),
        ("vip.no.svc.cluster.local", None),
        ("ns.svc.cluster.local", ()),
        ("svc.cluster.local", ()),
        ("10-244-0-7.ns.pod.cluster.local", ("10.244.0.7",)),
        ("x.ns.pod.cluster.local", None),
        ("vip.ns.svc", None),
        ("example.com", None),
        ("", None),
    ],
)
def test_names(name: str, found: tuple[str, ...] | None) -> None:
    assert NAMES.lookup(name) == found


def test_names_as_people_write_them() -> None:
    assert NAMES.search("vip.ns") == NAMES.search("vip.ns.svc") == ("10.96.0.9",)
    assert NAMES.search("10.1.2.3") == ("10.1.2.3",)
    assert NAMES.search("vip", "ns") == ("10.96.0.9",)
    assert NAMES.search("nope") == ()


def test_backends() -> None:
    assert NAMES.backends("10.96.0.9", 80) == (("10.244.0.2", 8000),)
    assert NAMES.backends("10.96.0.9", 81) == NAMES.backends("10.96.0.9", 99) == ()
    assert NAMES.backends("10.244.0.2", 80) is None
    assert NAMES.virtual_addresses() == {"10.96.0.9": frozenset({80, 81})}


def test_a_dropped_service_is_gone() -> None:
    names = Names()
    names.update({"a/b": Service("10.96.0.5")}, (), reset=False)
    names.update({}, ["a/b"], reset=False)
    assert names.lookup("b.a.svc.cluster.local") is None
    assert names.virtual_addresses() == {}


def query(name: str, kind: int = 1, edns: int = 0) -> bytes:
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0"
    extra = struct.pack(">BHHIH", 0, 41, edns, 0, 0) if edns else b""
    return struct.pack(">HHHHHH", 7, 0x0100, 1, 0, 0, 1 if edns else 0) + labels + struct.pack(">HH", kind, 1) + extra


def ask(name: str, kind: int = 1, edns: int = 0) -> tuple[int, list[str]]:
    """(response code, addresses)"""
    reply = dns.answer(query(name, kind, edns), NAMES.lookup)
    assert reply is not None
    number, flags, _, count, _, _ = struct.unpack_from(">HHHHHH", reply)
    assert number == 7
    assert flags & 0x8000
    tail = reply[len(reply) - 16 * count :]
    return flags & 0xF, [str(ipaddress.IPv4Address(tail[16 * n + 12 : 16 * n + 16])) for n in range(count)]


def test_dns_answers() -> None:
    assert ask("head.ns.svc.cluster.local") == (0, ["10.244.0.2", "10.244.0.3"])
    assert ask("head.ns.svc.cluster.local", kind=28) == (0, [])  # no AAAA, but the name exists
    assert ask("no.ns.svc.cluster.local") == (3, [])
    assert ask("no.ns.svc.cluster.local", kind=28) == (3, [])
    assert ask("empty.ns.svc.cluster.local") == (0, [])


def test_long_answers_fit() -> None:
    many = tuple(f"10.244.1.{n}" for n in range(200))
    plain = dns.answer(query("a.b"), lambda _: many)
    assert plain is not None
    assert len(plain) <= 512
    wide = dns.answer(query("a.b", edns=1232), lambda _: many)
    assert wide is not None
    assert 512 < len(wide) <= 1232


@given(st.binary(max_size=80))
def test_no_bytes_break_the_dns_server(data: bytes) -> None:
    reply = dns.answer(data, NAMES.lookup)
    assert reply is None or reply[:2] == data[:2]


def test_answers_get_no_answer() -> None:
    reply = dns.answer(query("head.ns.svc.cluster.local"), NAMES.lookup)
    assert reply is not None
    assert dns.answer(reply, NAMES.lookup) is None


# The HTTP proxy


def test_a_plain_request_goes_on_alone() -> None:
    head = b"POST http://h.ns:8265/api/jobs/?a=1 HTTP/1.1\r\nHost: h.ns:8265\r\nProxy-Connection: keep-alive\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\n"
    target = httphead.proxy_target(head)
    assert (target.host, target.port, target.tunnel) == ("h.ns", 8265, False)
    assert (
        target.head
        == b"POST /api/jobs/?a=1 HTTP/1.1\r\nHost: h.ns:8265\r\nContent-Length: 2\r\nConnection: close\r\n\r\n"
    )


def test_an_upgrade_keeps_its_headers() -> None:
    head = b"GET http://h/ws HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    assert (
        httphead.proxy_target(head).head
        == b"GET /ws HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    )
    assert httphead.proxy_target(head).port == 80


def test_a_tunnel() -> None:
    target = httphead.proxy_target(b"CONNECT h.ns:443 HTTP/1.1\r\nHost: h\r\n\r\n")
    assert (target.host, target.port, target.head, target.tunnel) == ("h.ns", 443, b"", True)


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET https://h/ HTTP/1.1\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"CONNECT h:99999 HTTP/1.1\r\n\r\n",
        b"\xff \xff \xff\r\n\r\n",
    ],
)
def test_what_is_no_proxy_request(head: bytes) -> None:
    with pytest.raises(BadRequest):
        httphead.proxy_target(head)


def test_probe_requests() -> None:
    request = httphead.probe_request("10.0.0.1", 80, "x", [("Host", "mine"), ("A", "b")]).decode()
    assert request.startswith("GET /x HTTP/1.1\r\n")
    assert "Host: mine\r\n" in request
    assert request.count("Host:") == 1
    assert request.endswith("A: b\r\n\r\n")
    assert httphead.status_of(b"HTTP/1.1 404 Not Found\r\n") == 404
    with pytest.raises(BadRequest):
        httphead.status_of(b"SSH-2.0-x\r\n")


# Root file systems

HOST = HostLayout({"usr": "", "bin": "usr/bin"}, ("/env", "/tmp/venv"), ("ssl",), {"passwd": "x"}, "/D/bin")
FILES = PodFiles("/D/hosts", "/D/hostname", "/D/resolv.conf")


def test_a_root_in_order() -> None:
    mounts = [
        {"source": "/v/inner", "target": "/data/sub/", "read_only": True}, {"source": "/v/outer", "target": "/data", "read_only": False},
        {"source": "/v/shm", "target": "/dev/shm", "read_only": False},
    ]  # fmt: skip
    steps = rootfs.plan(HOST, FILES, Sizing(1.5, 1 << 30), mounts, "/dev/termination-log")
    targets = [step.target for step in steps]
    assert targets.index("/data") < targets.index("/data/sub")
    assert targets.index("/tmp") < targets.index("/tmp/venv")
    assert targets.index("/dev") < targets.index("/dev/termination-log") < len(targets)
    assert max(n for n, target in enumerate(targets) if target == "/dev/shm") > targets.index("/dev")
    read_only = {step.target for step in steps if step.kind == "bind" and step.read_only}
    assert {"/usr", "/env", "/tmp/venv", "/opt/raybus/etc", "/data/sub"} <= read_only
    assert "/data" not in read_only
    assert [step.source for step in steps if step.target == "/bin"] == ["usr/bin"]


def test_what_programs_are_told_of_cpu_and_memory() -> None:
    files = rootfs.cgroup_files(Sizing(1.5, 2147483648))
    assert files["cpu.max"] == "150000 100000\n"
    assert files["memory.max"] == "2147483648\n"
    assert files["memory.current"] == "0\n"


def test_prefixes() -> None:
    assert rootfs.minimal_prefixes(["/usr", "/home/u/venv", "/home/u/venv/x", "/opt/py/", "relative"]) == (
        "/home/u/venv",
        "/opt/py",
    )


def test_files_of_a_pod() -> None:
    assert (
        rootfs.hosts_file("p", "10.244.0.2", [("1.2.3.4", ["a", "b"])])
        == "127.0.0.1\tlocalhost\n10.244.0.2\tp\n1.2.3.4\ta b\n"
    )
    assert (
        rootfs.resolv_conf("10.244.0.1", ["a", "b"], ["ndots:5"])
        == "nameserver 10.244.0.1\nsearch a b\noptions ndots:5\n"
    )
    assert rootfs.passwd_file("root:x:0:0:r:/root:/bin/sh\nme:x:1000:1000::/home/me:/bin/sh\n") == (
        "root:x:0:0:root:/home/ray:/bin/bash\nme:x:1000:1000::/home/me:/bin/sh\n"
    )


# Addresses and logs


def test_an_address_is_used_again_as_late_as_possible() -> None:
    assert network.next_address((), "") == "10.244.0.2"
    assert network.next_address({"10.244.0.2"}, "10.244.0.2") == "10.244.0.3"
    assert network.next_address((), "10.244.255.254") == "10.244.0.2"
    every = {str(ipaddress.IPv4Address(int(network.POD_NETWORK.network_address) + n)) for n in range(2, 65535)}
    with pytest.raises(network.NoAddress):
        network.next_address(every, "")


@given(st.lists(st.binary(max_size=40), max_size=20))
def test_log_lines_give_back_the_output(chunks: list[bytes]) -> None:
    lines, rest = b"", b""
    for chunk in [*chunks, b""]:
        more, rest = logs.frame(chunk, rest, "stdout", 0.0, end=not chunk)
        lines += more
    text = b""
    for line in lines.split(b"\n")[:-1]:
        _, _, tag, piece = line.split(b" ", 3)
        text += piece + (b"\n" if tag == b"F" else b"")
    assert text == b"".join(chunks)


def test_a_long_line_comes_in_pieces() -> None:
    lines, rest = logs.frame(b"x" * (logs.PIECE_MAX + 5) + b"\n", b"", "stdout", 0.0)
    assert [line.split(b" ", 3)[2] for line in lines.splitlines()] == [b"P", b"F"]
    assert rest == b""
