"""The EndpointSlices of a Service. Pure.

Pods with the same ports share a slice, up to LIMIT of them. A slice's name follows from the Service and a number, so that a
repeated creation finds the first one. A Service without pods has one empty slice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from raybus.domain import identity, owners
from raybus.domain.kinds import ENDPOINT_SLICE
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
from raybus_localkube.controllers.work import Call, Json

LIMIT = 1000
SERVICE_NAME = "kubernetes.io/service-name"
MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
MANAGER = "endpointslice-controller.k8s.io"
HEADLESS = "service.kubernetes.io/headless"
CONTENT = ("endpoints", "ports")


def is_ours(slice_: Json) -> bool:
    return bool((slice_["metadata"].get("labels") or {}).get(MANAGED_BY) == MANAGER)


def contents(service: Json, pods: Sequence[PodFact]) -> list[dict[str, Any]]:
    """What the slices should hold: endpoints and ports, one entry per slice; null for none, as Kubernetes writes it."""
    groups: dict[tuple[Port, ...], list[PodFact]] = {}
    for pod in pods:
        groups.setdefault(resolve(service["spec"].get("ports") or (), pod), []).append(pod)
    found = []
    for ports, members in sorted(groups.items(), key=lambda group: [port.number for port in group[0]]):
        for begin in range(0, len(members), LIMIT):
            endpoints = [_endpoint(service, pod) for pod in members[begin : begin + LIMIT]]
            found.append({"endpoints": endpoints, "ports": [port.rendered() for port in ports]})
    return found or [{"endpoints": None, "ports": None}]


def _endpoint(service: Json, pod: PodFact) -> Json:
    ready = publishes_unready(service) or (pod.ready and not pod.terminating)
    endpoint: dict[str, Any] = {
        "addresses": [pod.addresses[0]],
        "conditions": {"ready": ready, "serving": pod.ready, "terminating": pod.terminating},
        "targetRef": target_ref(pod),
    }
    if hostname := hostname_of(service, pod):
        endpoint["hostname"] = hostname
    if pod.node:
        endpoint["nodeName"] = pod.node
    return endpoint


def labels(service: Json) -> dict[str, str]:
    own = {MANAGED_BY: MANAGER, SERVICE_NAME: service["metadata"]["name"]}
    return {**(service["metadata"].get("labels") or {}), **own} | ({HEADLESS: ""} if is_headless(service) else {})


def reconcile(service: Json, pods: Sequence[PodFact], present: Mapping[str, Json]) -> list[Call]:
    """What makes the slices of the Service what they should be. `present`: ours, by name."""
    calls = []
    names = set()
    for number, content in enumerate(contents(service, pods)):
        name = f"{service['metadata']['name'][:57]}-{identity.suffix(service['metadata']['uid'], 'slice', number)}"
        names.add(name)
        wanted = _slice(service, name, content)
        old = present.get(name)
        if old is None:
            calls.append(work.create(ENDPOINT_SLICE, wanted))
        elif not _same(old, wanted):
            kept = {"uid": old["metadata"]["uid"], "resourceVersion": old["metadata"]["resourceVersion"]}
            calls.append(work.replace(ENDPOINT_SLICE, {**wanted, "metadata": {**wanted["metadata"], **kept}}))
    for name, old in present.items():
        if name not in names:
            meta = old["metadata"]
            calls.append(work.delete(ENDPOINT_SLICE, meta["namespace"], name, uid=meta["uid"]))
    return calls


def _slice(service: Json, name: str, content: Json) -> dict[str, Any]:
    meta = service["metadata"]
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": name,
            "generateName": f"{meta['name']}-",
            "namespace": meta["namespace"],
            "labels": labels(service),
            "ownerReferences": [
                owners.controller_reference({"apiVersion": "v1", "kind": "Service", "metadata": meta}),
            ],
        },
        "addressType": "IPv4",
        **content,
    }


def _same(old: Json, wanted: Json) -> bool:
    """Empty and null say the same; what others added to metadata is theirs."""
    return (old["metadata"].get("labels") or {}) == wanted["metadata"]["labels"] and all(
        (old.get(key) or []) == (wanted[key] or []) for key in CONTENT
    )
