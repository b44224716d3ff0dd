"""The Endpoints object of a Service, of the same name: the form from before EndpointSlices. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from raybus.domain.kinds import ENDPOINTS
from raybus_localkube.controllers import work
from raybus_localkube.controllers.endpoints.facts import (
    PodFact,
    Port,
    hostname_of,
    is_headless,
    publishes_unready,
    resolve,
    target_ref,
)
from raybus_localkube.controllers.endpoints.slices import HEADLESS
from raybus_localkube.controllers.work import Call, Json

LIMIT = 1000
MANAGED_BY = "endpoints.kubernetes.io/managed-by"
MANAGER = "endpoint-controller"


def subsets(service: Json, pods: Sequence[PodFact]) -> list[Json]:
    """Pods with the same ports together, ready and unready ones apart; ports by number."""
    groups: dict[tuple[Port, ...], tuple[list[Json], list[Json]]] = {}
    for pod in pods[:LIMIT]:
        unready_too = publishes_unready(service)
        if pod.terminating and not unready_too:
            continue
        ports = resolve(service["spec"].get("ports") or (), pod)
        if not ports and not is_headless(service):
            continue
        ready, unready = groups.setdefault(ports, ([], []))
        (ready if pod.ready or unready_too else unready).append(_address(service, pod))
    found: list[Json] = []
    for ports, (ready, unready) in groups.items():
        subset: dict[str, Any] = {}
        if ready:
            subset["addresses"] = ready
        if unready:
            subset["notReadyAddresses"] = unready
        if ports:
            subset["ports"] = [_port(port) for port in sorted(ports, key=lambda port: (port.number, port.name))]
        found.append(subset)
    return found


def _address(service: Json, pod: PodFact) -> Json:
    address: dict[str, Any] = {"ip": pod.addresses[0], "targetRef": target_ref(pod)}
    if hostname := hostname_of(service, pod):
        address["hostname"] = hostname
    if pod.node:
        address["nodeName"] = pod.node
    return address


def _port(port: Port) -> Json:
    return {key: value for key, value in port.rendered().items() if value != ""}


def reconcile(service: Json, pods: Sequence[PodFact], present: Json | None) -> list[Call]:
    """What makes the Endpoints object of the Service what it should be."""
    meta = service["metadata"]
    labels = {**(meta.get("labels") or {}), MANAGED_BY: MANAGER} | ({HEADLESS: ""} if is_headless(service) else {})
    wanted = subsets(service, pods)
    metadata: dict[str, Any] = {"name": meta["name"], "namespace": meta["namespace"], "labels": labels}
    body = {"apiVersion": "v1", "kind": "Endpoints", "metadata": metadata, "subsets": wanted}
    if present is None:
        return [work.create(ENDPOINTS, body)]
    old = present["metadata"]
    if (present.get("subsets") or []) == wanted and (old.get("labels") or {}) == labels:
        return []
    metadata |= {"uid": old["uid"], "resourceVersion": old["resourceVersion"]}
    return [work.replace(ENDPOINTS, body)]
