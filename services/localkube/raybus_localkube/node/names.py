"""Names, virtual addresses and backends of Services, as the kubelet last told them.

Pure. What may live here: lookups in that table. Sockets are in resolver.py, relay.py and virtual.py.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

NODATA: tuple[str, ...] = ()
_POD_LABEL = re.compile(r"^\d{1,3}(?:-\d{1,3}){3}$")


@dataclass(frozen=True, slots=True)
class Service:
    """`cluster_ip` "" for a headless one. `addresses` are the ready pods'; `hosts` their names; `ports` service port -> backends."""

    cluster_ip: str = ""
    addresses: tuple[str, ...] = ()
    hosts: Mapping[str, str] = field(default_factory=dict)
    ports: Mapping[int, tuple[tuple[str, int], ...]] = field(default_factory=dict)
    external_name: str = ""

    @classmethod
    def of(cls, message: Mapping[str, Any]) -> Service:
        return cls(
            cluster_ip=message.get("cluster_ip", ""),
            addresses=tuple(message.get("addresses", ())),
            hosts=dict(message.get("hosts", {})),
            ports={int(port): tuple((ip, int(p)) for ip, p in ends) for port, ends in message.get("ports", {}).items()},
            external_name=message.get("external_name", ""),
        )


class Names:
    """The table. Changes return nothing; `generation` grows with each."""

    def __init__(self, domain: str = "cluster.local") -> None:
        self.domain = domain
        self.generation = 0
        self._services: dict[str, Service] = {}
        self._by_vip: dict[str, Service] = {}

    def update(self, put: Mapping[str, Service], drop: Iterable[str], *, reset: bool) -> None:
        if reset:
            self._services.clear()
        for key in drop:
            self._services.pop(key, None)
        self._services.update(put)
        self._by_vip = {service.cluster_ip: service for service in self._services.values() if service.cluster_ip}
        self.generation += 1

    def lookup(self, name: str) -> tuple[str, ...] | None:
        """The addresses of a full name (no search list); () where the name exists without one, None where it does not."""
        labels = name.rstrip(".").lower().split(".")
        tail = self.domain.split(".")
        if labels[-len(tail) :] != tail:
            return None
        labels = labels[: -len(tail)]
        if not labels or labels[-1] not in ("svc", "pod"):
            return NODATA if not labels else None
        kind = labels.pop()
        if not labels:
            return NODATA
        namespace = labels.pop()
        if kind == "pod":
            return _pod_address(labels)
        if not labels:
            return NODATA if any(key.startswith(namespace + "/") for key in self._services) else None
        service = self._services.get(f"{namespace}/{labels.pop()}")
        if service is None:
            return None
        return self._addresses(service, labels)

    def _addresses(self, service: Service, labels: list[str]) -> tuple[str, ...] | None:
        if labels:  # <host name>.<service>.<namespace>.svc
            address = service.hosts.get(".".join(labels))
            return (address,) if address else None
        if service.external_name:
            return self.lookup(service.external_name)
        return (service.cluster_ip,) if service.cluster_ip else service.addresses

    def virtual_addresses(self) -> dict[str, frozenset[int]]:
        """Every ClusterIP with the ports of its Service."""
        return {vip: frozenset(service.ports) for vip, service in self._by_vip.items()}

    def backends(self, address: str, port: int) -> tuple[tuple[str, int], ...] | None:
        """Where a connection to `address:port` goes; None where the address is not a Service's."""
        service = self._by_vip.get(address)
        return None if service is None else service.ports.get(port, ())

    def search(self, name: str, namespace: str = "default") -> tuple[str, ...]:
        """The addresses of a name as somebody in `namespace` would write it, or of an address."""
        try:
            return (str(ipaddress.IPv4Address(name)),)
        except ValueError:
            pass
        suffixes = ("", f".{namespace}.svc.{self.domain}", f".svc.{self.domain}", f".{self.domain}")
        for suffix in suffixes:
            found = self.lookup(name + suffix)
            if found:
                return found
        return ()


def _pod_address(labels: list[str]) -> tuple[str, ...] | None:
    if len(labels) != 1 or not _POD_LABEL.match(labels[0]):
        return None
    try:
        return (str(ipaddress.IPv4Address(labels[0].replace("-", "."))),)
    except ValueError:
        return None
