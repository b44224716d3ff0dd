"""Which pods a Service selects and which Services select a pod, without looking at all of either. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from raybus_localkube.controllers.endpoints.facts import PodFact, selects
from raybus_localkube.controllers.work import Json

Pair = tuple[str, str, str]
"""namespace, label, value"""


class Index:
    """Pods are found by their rarest label; each Service waits under one pair of its selector, the least crowded when it came."""

    def __init__(self) -> None:
        self.pods: dict[str, PodFact] = {}
        self.services: dict[str, Json] = {}
        self.nodes: set[str] = set()
        self._pods_by_label: dict[Pair, dict[str, None]] = {}
        self._services_by_label: dict[Pair, dict[str, None]] = {}
        self._place: dict[str, Pair] = {}

    def put_pod(self, uid: str, fact: PodFact | None) -> list[Json]:
        """The Services that must be looked at: those that select the pod as it is or as it was; none if no fact has changed."""
        old = self.pods.pop(uid, None)
        if old is not None:
            for pair in _pairs(old.namespace, old.labels):
                _drop(self._pods_by_label, pair, uid)
        if fact is not None:
            self.pods[uid] = fact
            for pair in _pairs(fact.namespace, fact.labels):
                self._pods_by_label.setdefault(pair, {})[uid] = None
        if old == fact:
            return []
        found: dict[str, Json] = {}
        for each in (old, fact):
            if each is not None:
                found |= {
                    service["metadata"]["uid"]: service for service in self._selecting(each.namespace, each.labels)
                }
        return list(found.values())

    def put_service(self, service: Json) -> None:
        meta, selector = service["metadata"], service["spec"].get("selector") or {}
        self.remove_service(meta["uid"])
        self.services[meta["uid"]] = service
        if selector:
            pairs = list(_pairs(meta["namespace"], selector))
            place = min(pairs, key=lambda pair: len(self._services_by_label.get(pair, ())))
            self._place[meta["uid"]] = place
            self._services_by_label.setdefault(place, {})[meta["uid"]] = None

    def remove_service(self, uid: str) -> None:
        self.services.pop(uid, None)
        place = self._place.pop(uid, None)
        if place is not None:
            _drop(self._services_by_label, place, uid)

    def pods_of(self, service: Json) -> list[PodFact]:
        """The pods it selects that have an address and whose node exists, by name."""
        selector = service["spec"].get("selector") or {}
        if not selector:
            return []
        sets = [self._pods_by_label.get(pair, {}) for pair in _pairs(service["metadata"]["namespace"], selector)]
        candidates = [self.pods[uid] for uid in min(sets, key=len)]
        found = [pod for pod in candidates if selects(service, pod.labels) and (not pod.node or pod.node in self.nodes)]
        return sorted(found, key=lambda pod: pod.name)

    def on_node(self, node: str) -> list[Json]:
        """Services that select a pod of this node."""
        found: dict[str, Json] = {}
        for pod in self.pods.values():
            if pod.node == node:
                found |= {service["metadata"]["uid"]: service for service in self._selecting(pod.namespace, pod.labels)}
        return list(found.values())

    def _selecting(self, namespace: str, labels: Mapping[str, str]) -> Iterable[Json]:
        for pair in _pairs(namespace, labels):
            for uid in self._services_by_label.get(pair, ()):
                if selects(self.services[uid], labels):
                    yield self.services[uid]


def _pairs(namespace: str, labels: Mapping[str, str]) -> Iterable[Pair]:
    return ((namespace, key, value) for key, value in labels.items())


def _drop(places: dict[Pair, dict[str, None]], pair: Pair, uid: str) -> None:
    entries = places.get(pair)
    if entries is not None:
        entries.pop(uid, None)
        if not entries:
            del places[pair]
