"""The pods' network: a bridge in the node's namespace, and per pod its own namespaces with an address on that bridge.

A pod's network, host name and IPC namespaces are kept by open descriptors; no process is needed to hold them.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Collection
from dataclasses import dataclass

from raybus_localkube.node import syscalls
from raybus_localkube.node.netlink import Netlink

BRIDGE = "br0"
POD_NETWORK = ipaddress.IPv4Network("10.244.0.0/16")
GATEWAY = str(POD_NETWORK.network_address + 1)
_KINDS = (("net", syscalls.CLONE_NEWNET), ("uts", syscalls.CLONE_NEWUTS), ("ipc", syscalls.CLONE_NEWIPC))


class NoAddress(Exception):
    """Every address of the pods' network is taken."""


@dataclass(slots=True)
class PodNetwork:
    """An address, the node's end of the pair, and (descriptor, kind) of the pod's namespaces."""

    ip: str
    link: str
    namespaces: tuple[tuple[int, int], ...]


def next_address(taken: Collection[str], last: str) -> str:
    """The first free address after `last`, so that an address is used again as late as possible. Raises NoAddress."""
    first, count = int(POD_NETWORK.network_address) + 2, POD_NETWORK.num_addresses - 3
    start = int(ipaddress.IPv4Address(last)) - first + 1 if last else 0
    for offset in range(count):
        candidate = str(ipaddress.IPv4Address(first + (start + offset) % count))
        if candidate not in taken:
            return candidate
    raise NoAddress(f"all {count} addresses of {POD_NETWORK} are taken by pods")


def set_up_node() -> None:
    """The loopback and the bridge, in the namespace this process is in."""
    with Netlink() as net:
        net.set_up("lo")
        net.add_bridge(BRIDGE)
        net.add_address(BRIDGE, GATEWAY, POD_NETWORK.prefixlen)
        net.set_up(BRIDGE)


def add_virtual_address(address: str) -> None:
    with Netlink() as net:
        net.add_address("lo", address, 32)


def delete_virtual_address(address: str) -> None:
    with Netlink() as net:
        net.delete_address("lo", address, 32)


def create(ip: str, hostname: str) -> PodNetwork:
    """New namespaces for a pod, connected to the bridge. This process is in them only while this call runs."""
    link = f"v{int(ipaddress.IPv4Address(ip)) & 0xFFFF:x}"
    own = [(os.open(f"/proc/self/ns/{name}", os.O_RDONLY), kind) for name, kind in _KINDS]
    try:
        syscalls.unshare(sum(kind for _, kind in _KINDS))
        theirs = tuple((os.open(f"/proc/self/ns/{name}", os.O_RDONLY), kind) for name, kind in _KINDS)
        syscalls.set_hostname(hostname)
        syscalls.setns(*own[0])
        try:
            _connect(ip, link, theirs[0])
        except OSError:
            for fd, _ in theirs:
                os.close(fd)
            raise
    finally:
        for fd, kind in own:
            syscalls.setns(fd, kind)
            os.close(fd)
    return PodNetwork(ip, link, theirs)


def _connect(ip: str, link: str, pod: tuple[int, int]) -> None:
    with Netlink() as net:
        net.delete_link(link)
        net.add_veth(link, "eth0", pod[0], BRIDGE)
    syscalls.setns(*pod)
    with Netlink() as net:
        net.set_up("lo")
        net.add_address("eth0", ip, POD_NETWORK.prefixlen)
        net.set_up("eth0")
        net.add_default_route(GATEWAY)


def destroy(network: PodNetwork) -> None:
    """Let go of the namespaces; the kernel removes them with the last process in them."""
    with Netlink() as net:
        net.delete_link(network.link)
    for fd, _ in network.namespaces:
        os.close(fd)
