"""Just enough of the kernel's rtnetlink to make bridges, veth pairs, addresses and routes; no program `ip` is needed.

`Netlink` speaks for the network namespace in which it was opened.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from types import TracebackType
from typing import Self

_NEWLINK, _DELLINK, _NEWADDR, _DELADDR, _NEWROUTE = 16, 17, 20, 21, 24
_REQUEST, _ACK, _EXCL, _CREATE = 0x1, 0x4, 0x200, 0x400
_ERROR = 2
_IFLA_IFNAME, _IFLA_MASTER, _IFLA_LINKINFO, _IFLA_NET_NS_FD = 3, 10, 18, 28
_INFO_KIND, _INFO_DATA, _VETH_PEER = 1, 2, 1
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_RTA_GATEWAY = 5
_IFF_UP = 1
_TIMEOUT_S = 5.0


def attribute(kind: int, payload: bytes) -> bytes:
    """One attribute: length, type, payload, padded to 4 bytes."""
    length = 4 + len(payload)
    return struct.pack("=HH", length, kind) + payload + b"\0" * (-length % 4)


def _name(name: str) -> bytes:
    return attribute(_IFLA_IFNAME, name.encode() + b"\0")


def _link(index: int = 0, flags: int = 0, change: int = 0) -> bytes:
    return struct.pack("=BBHiII", socket.AF_UNSPEC, 0, 0, index, flags, change)


class Netlink:
    """`with Netlink() as net`; every call waits for the kernel's answer and raises OSError."""

    def __enter__(self) -> Self:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        self._socket.settimeout(_TIMEOUT_S)
        self._socket.bind((0, 0))
        self._sequence = 0
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def add_bridge(self, name: str) -> None:
        info = attribute(_IFLA_LINKINFO, attribute(_INFO_KIND, b"bridge"))
        self._send(_NEWLINK, _CREATE | _EXCL, _link() + _name(name) + info, f"add bridge {name}")

    def add_veth(self, name: str, peer: str, namespace_fd: int, master: str) -> None:
        """A veth pair: `name` here on bridge `master`, `peer` in the other network namespace."""
        there = attribute(
            _VETH_PEER, _link() + _name(peer) + attribute(_IFLA_NET_NS_FD, struct.pack("=i", namespace_fd))
        )
        info = attribute(_IFLA_LINKINFO, attribute(_INFO_KIND, b"veth") + attribute(_INFO_DATA, there))
        self._send(_NEWLINK, _CREATE | _EXCL, _link() + _name(name) + info, f"add veth {name}")
        owner = attribute(_IFLA_MASTER, struct.pack("=I", socket.if_nametoindex(master)))
        link = _link(socket.if_nametoindex(name), _IFF_UP, _IFF_UP)
        self._send(_NEWLINK, 0, link + owner, f"put {name} on {master}")

    def set_up(self, name: str) -> None:
        self._send(_NEWLINK, 0, _link(socket.if_nametoindex(name), _IFF_UP, _IFF_UP), f"set {name} up")

    def delete_link(self, name: str) -> None:
        """Delete it if it is there."""
        try:
            index = socket.if_nametoindex(name)
        except OSError:
            return
        self._send(_DELLINK, 0, _link(index), f"delete link {name}")

    def add_address(self, name: str, address: str, prefix: int) -> None:
        """Add an address; one that is there already is fine."""
        self._address(_NEWADDR, _CREATE, name, address, prefix)

    def delete_address(self, name: str, address: str, prefix: int) -> None:
        self._address(_DELADDR, 0, name, address, prefix)

    def _address(self, kind: int, flags: int, name: str, address: str, prefix: int) -> None:
        packed = socket.inet_aton(address)
        head = struct.pack("=BBBBi", socket.AF_INET, prefix, 0, 0, socket.if_nametoindex(name))
        body = head + attribute(_IFA_LOCAL, packed) + attribute(_IFA_ADDRESS, packed)
        self._send(kind, flags, body, f"address {address}/{prefix} on {name}")

    def add_default_route(self, gateway: str) -> None:
        # Family, no prefix lengths, main table, protocol static, scope global, type unicast.
        head = struct.pack("=BBBBBBBBI", socket.AF_INET, 0, 0, 0, 254, 4, 0, 1, 0)
        body = head + attribute(_RTA_GATEWAY, socket.inet_aton(gateway))
        self._send(_NEWROUTE, _CREATE | _EXCL, body, f"default route via {gateway}")

    def _send(self, kind: int, flags: int, body: bytes, what: str) -> None:
        self._sequence += 1
        header = struct.pack("=IHHII", 16 + len(body), kind, _REQUEST | _ACK | flags, self._sequence, 0)
        self._socket.sendall(header + body)
        answer = self._socket.recv(65536)
        _, answered, _, sequence, _ = struct.unpack_from("=IHHII", answer)
        if answered != _ERROR or sequence != self._sequence:
            raise OSError(errno.EPROTO, f"{what}: unexpected netlink message {answered}")
        (code,) = struct.unpack_from("=i", answer, 16)
        if code:
            raise OSError(-code, f"{what}: {os.strerror(-code)}")
