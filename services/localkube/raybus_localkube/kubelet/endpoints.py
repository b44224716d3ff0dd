"""What the node must know of Services: names, addresses, and backends of ports.

Pure. From Service and EndpointSlice objects to the node's own form (raybus_localkube.node.names.Service).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Json = Mapping[str, Any]
SERVICE_LABEL = "kubernetes.io/service-name"


def service_of(slice_: Json) -> str:
    """namespace/name of the Service that a slice belongs to, "" for none."""
    name = (slice_["metadata"].get("labels") or {}).get(SERVICE_LABEL)
    return f"{slice_['metadata']['namespace']}/{name}" if name else ""


def node_service(service: Json, slices: Iterable[Json]) -> dict[str, Any]:
    """A Service as the node wants it."""
    spec = service["spec"]
    if spec.get("type") == "ExternalName":
        return {"external_name": spec.get("externalName") or ""}
    addresses: list[str] = []
    hosts: dict[str, str] = {}
    backends: dict[str, list[tuple[str, int]]] = {}
    for slice_ in slices:
        if slice_.get("addressType", "IPv4") != "IPv4":
            continue
        for endpoint in slice_.get("endpoints") or ():
            if (endpoint.get("conditions") or {}).get("ready") is False:
                continue
            found = [str(address) for address in endpoint.get("addresses") or ()]
            addresses += found
            if endpoint.get("hostname") and found:
                hosts[endpoint["hostname"]] = found[0]
            for port in slice_.get("ports") or ():
                if port.get("port"):
                    backends.setdefault(port.get("name") or "", []).extend((ip, int(port["port"])) for ip in found)
    headless = spec.get("clusterIP") in (None, "", "None")
    ports = {str(port["port"]): sorted(set(backends.get(port.get("name") or "", ()))) for port in _tcp_ports(spec)}
    return {
        "cluster_ip": "" if headless else spec["clusterIP"],
        "addresses": sorted(set(addresses)),
        "hosts": hosts,
        "ports": {} if headless else ports,
    }


def _tcp_ports(spec: Json) -> list[Json]:
    return [port for port in spec.get("ports") or () if (port.get("protocol") or "TCP") == "TCP"]
