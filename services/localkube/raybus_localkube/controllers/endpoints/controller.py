"""The controllers that keep EndpointSlices and Endpoints. Pure."""

from __future__ import annotations

from abc import abstractmethod
from datetime import datetime

from raybus.decide.tree import RootKey
from raybus.domain.kinds import ENDPOINT_SLICE, ENDPOINTS, NODE, POD, SERVICE, Kind
from raybus_localkube.controllers import work
from raybus_localkube.controllers.controller import Controller, Keys, Ref
from raybus_localkube.controllers.endpoints import legacy, slices
from raybus_localkube.controllers.endpoints.facts import pod_fact, wants_endpoints
from raybus_localkube.controllers.endpoints.index import Index
from raybus_localkube.controllers.work import NOTHING, Json, Work


class ServiceController(Controller):
    """What both have in common: keys are names of Services, and news of pods and nodes leads to the Services concerned."""

    def __init__(self) -> None:
        self._index = Index()
        self._services: dict[RootKey, str] = {}

    def changed(self, kind: Kind, obj: Json) -> Keys:
        meta = obj["metadata"]
        if kind == POD:
            return self._keys(self._index.put_pod(meta["uid"], pod_fact(obj)))
        if kind == NODE:
            if meta["name"] in self._index.nodes:
                return ()
            self._index.nodes.add(meta["name"])
            return self._keys(self._index.on_node(meta["name"]))
        if kind == SERVICE:
            self._index.put_service(obj)
            key = self.key(meta["namespace"], meta["name"])
            self._services[key] = meta["uid"]
            return (key,)
        return self._own_changed(obj)

    def gone(self, kind: Kind, ref: Ref) -> Keys:
        if kind == POD:
            return self._keys(self._index.put_pod(ref.uid, None))
        if kind == NODE:
            self._index.nodes.discard(ref.name)
            return self._keys(self._index.on_node(ref.name))
        key = self.key(ref.namespace, ref.name)
        if kind == SERVICE:
            self._index.remove_service(ref.uid)
            if self._services.get(key) == ref.uid:
                del self._services[key]
            return (key,)
        return self._own_gone(ref)

    def _service(self, key: RootKey) -> Json | None:
        service = self._index.services.get(self._services.get(key, ""))
        if service is None or "deletionTimestamp" in service["metadata"] or not wants_endpoints(service):
            return None
        return service

    def _keys(self, services: list[Json]) -> Keys:
        return [self.key(each["metadata"]["namespace"], each["metadata"]["name"]) for each in services]

    @abstractmethod
    def _own_changed(self, obj: Json) -> Keys: ...

    @abstractmethod
    def _own_gone(self, ref: Ref) -> Keys: ...


class EndpointSlices(ServiceController):
    name = "endpoint-slices"
    kinds = frozenset({SERVICE, POD, NODE, ENDPOINT_SLICE})

    def __init__(self) -> None:
        super().__init__()
        self._slices: dict[RootKey, dict[str, Json]] = {}
        self._key_of: dict[str, RootKey] = {}

    def _own_changed(self, obj: Json) -> Keys:
        meta = obj["metadata"]
        if not slices.is_ours(obj):
            return ()
        key = self.key(meta["namespace"], (meta.get("labels") or {}).get(slices.SERVICE_NAME, ""))
        self._slices.setdefault(key, {})[meta["name"]] = obj
        self._key_of[meta["uid"]] = key
        return (key,)

    def _own_gone(self, ref: Ref) -> Keys:
        key = self._key_of.pop(ref.uid, None)
        if key is None:
            return ()
        present = self._slices.get(key, {})
        if (found := present.get(ref.name)) and found["metadata"]["uid"] == ref.uid:
            del present[ref.name]
        if not present:
            self._slices.pop(key, None)
        return (key,)

    def decide(self, key: RootKey, now: datetime) -> Work:  # noqa: ARG002 - nothing here depends on time
        service = self._service(key)
        if service is None:
            return NOTHING  # its slices have it as owner
        present = {name: each for name, each in self._slices.get(key, {}).items() if _live(each)}
        return Work(steps=work.steps(slices.reconcile(service, self._index.pods_of(service), present)))


class LegacyEndpoints(ServiceController):
    name = "endpoints"
    kinds = frozenset({SERVICE, POD, NODE, ENDPOINTS})

    def __init__(self) -> None:
        super().__init__()
        self._endpoints: dict[RootKey, Json] = {}

    def _own_changed(self, obj: Json) -> Keys:
        key = self.key(obj["metadata"]["namespace"], obj["metadata"]["name"])
        self._endpoints[key] = obj
        return (key,)

    def _own_gone(self, ref: Ref) -> Keys:
        key = self.key(ref.namespace, ref.name)
        if (found := self._endpoints.get(key)) and found["metadata"]["uid"] == ref.uid:
            del self._endpoints[key]
        return (key,)

    def decide(self, key: RootKey, now: datetime) -> Work:  # noqa: ARG002 - nothing here depends on time
        service, present = self._service(key), self._endpoints.get(key)
        if service is not None:
            return Work(steps=work.steps(legacy.reconcile(service, self._index.pods_of(service), present)))
        if present is None or key in self._services or not _managed(present):
            return NOTHING
        meta = present["metadata"]  # it has no owner: with its Service it would stay
        return Work(steps=work.steps([work.delete(ENDPOINTS, meta["namespace"], meta["name"], uid=meta["uid"])]))


def _live(obj: Json) -> bool:
    return "deletionTimestamp" not in obj["metadata"]


def _managed(endpoints: Json) -> bool:
    return bool((endpoints["metadata"].get("labels") or {}).get(legacy.MANAGED_BY) == legacy.MANAGER)
