"""What endpoints are made of: a few facts of pods and Services. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from raybus.domain import conditions
from raybus_localkube.controllers.work import Json


@dataclass(frozen=True, slots=True)
class PodFact:
    """`ports` are the named container ports: (name, protocol) to number."""

    uid: str
    namespace: str
    name: str
    labels: Mapping[str, str]
    addresses: tuple[str, ...]
    node: str
    hostname: str
    subdomain: str
    ready: bool
    terminating: bool
    ports: Mapping[tuple[str, str], int] = field(default_factory=dict)


def pod_fact(pod: Json) -> PodFact | None:
    """None for a pod that has ended or has no address: it stands behind no Service."""
    meta, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
    addresses = tuple(each["ip"] for each in status.get("podIPs") or () if each.get("ip"))
    if not addresses and status.get("podIP"):
        addresses = (status["podIP"],)
    if not addresses or status.get("phase") in ("Succeeded", "Failed"):
        return None
    restartable = [each for each in spec.get("initContainers") or () if each.get("restartPolicy") == "Always"]
    return PodFact(
        uid=meta["uid"],
        namespace=meta["namespace"],
        name=meta["name"],
        labels=meta.get("labels") or {},
        addresses=addresses,
        node=spec.get("nodeName") or "",
        hostname=spec.get("hostname") or "",
        subdomain=spec.get("subdomain") or "",
        ready=conditions.is_true(status.get("conditions"), "Ready"),
        terminating="deletionTimestamp" in meta,
        ports=dict(_named_ports((*restartable, *(spec.get("containers") or ())))),
    )


def _named_ports(containers: Iterable[Json]) -> Iterable[tuple[tuple[str, str], int]]:
    for container in containers:
        for port in container.get("ports") or ():
            if port.get("name"):
                yield (port["name"], port.get("protocol") or "TCP"), port["containerPort"]


@dataclass(frozen=True, slots=True)
class Port:
    """One port of a Service as it is on a pod."""

    name: str
    protocol: str
    number: int
    app_protocol: str = ""

    def rendered(self) -> dict[str, Any]:
        rendered: dict[str, Any] = {"name": self.name, "protocol": self.protocol, "port": self.number}
        return rendered | ({"appProtocol": self.app_protocol} if self.app_protocol else {})


def resolve(ports: Iterable[Json], pod: PodFact) -> tuple[Port, ...]:
    """The ports of a Service on one pod; a named one that the pod does not have is left out."""
    found = []
    for port in ports:
        protocol = port.get("protocol") or "TCP"
        target = port.get("targetPort")
        if target in (None, 0, ""):
            target = port["port"]
        number = pod.ports.get((target, protocol)) if isinstance(target, str) else target
        if number is not None:
            found.append(Port(port.get("name") or "", protocol, number, port.get("appProtocol") or ""))
    return tuple(found)


def selects(service: Json, labels: Mapping[str, str]) -> bool:
    selector = service["spec"].get("selector") or {}
    return bool(selector) and all(labels.get(key) == value for key, value in selector.items())


def is_headless(service: Json) -> bool:
    return bool(service["spec"].get("clusterIP") == "None")


def publishes_unready(service: Json) -> bool:
    return bool(service["spec"].get("publishNotReadyAddresses"))


def wants_endpoints(service: Json) -> bool:
    """Services without selector have endpoints that somebody else writes; names of outside hosts have none."""
    return bool(service["spec"].get("selector")) and service["spec"].get("type") != "ExternalName"


def hostname_of(service: Json, pod: PodFact) -> str:
    """The host name under which DNS knows a pod of this Service."""
    meta = service["metadata"]
    return pod.hostname if pod.hostname and (pod.subdomain, pod.namespace) == (meta["name"], meta["namespace"]) else ""


def target_ref(pod: PodFact) -> Json:
    return {"kind": "Pod", "namespace": pod.namespace, "name": pod.name, "uid": pod.uid}
