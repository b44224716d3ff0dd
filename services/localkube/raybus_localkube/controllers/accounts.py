"""Each namespace has a service account `default` and a config map with the certificate of the API server. Pure."""

from __future__ import annotations

from datetime import datetime

from raybus.decide.tree import RootKey
from raybus.domain.kinds import CONFIG_MAP, NAMESPACE, SERVICE_ACCOUNT, Kind
from raybus_localkube.controllers import work
from raybus_localkube.controllers.controller import Controller, Keys, Ref
from raybus_localkube.controllers.work import NOTHING, Json, Work

ACCOUNT = "default"
ROOT_CA = "kube-root-ca.crt"
# Kubernetes' own words: a client may compare them.
ROOT_CA_DESCRIPTION = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service "
    "IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters."
)


class Accounts(Controller):
    """`root_ca` is the PEM text; without it there is no config map."""

    name = "service-accounts"
    kinds = frozenset({NAMESPACE, SERVICE_ACCOUNT, CONFIG_MAP})

    def __init__(self, root_ca: str = "") -> None:
        self._root_ca = root_ca
        self._active: set[str] = set()
        self._accounts: set[str] = set()
        self._bundles: dict[str, tuple[str, str, str]] = {}  # uid, resourceVersion, content

    def changed(self, kind: Kind, obj: Json) -> Keys:
        meta = obj["metadata"]
        namespace = meta.get("namespace", "")
        if kind == NAMESPACE:
            ending = "deletionTimestamp" in meta
            (self._active.discard if ending else self._active.add)(meta["name"])
            return () if ending else (self.key(meta["name"], ""),)
        if kind == SERVICE_ACCOUNT and meta["name"] == ACCOUNT:
            self._accounts.add(namespace)
        elif kind == CONFIG_MAP and meta["name"] == ROOT_CA:
            content = (obj.get("data") or {}).get("ca.crt", "")
            self._bundles[namespace] = (meta["uid"], meta["resourceVersion"], content)
            return (self.key(namespace, ""),)
        return ()

    def gone(self, kind: Kind, ref: Ref) -> Keys:
        if kind == NAMESPACE:
            self._active.discard(ref.name)
            return ()
        if kind == SERVICE_ACCOUNT and ref.name == ACCOUNT:
            self._accounts.discard(ref.namespace)
        elif kind == CONFIG_MAP and ref.name == ROOT_CA:
            self._bundles.pop(ref.namespace, None)
        else:
            return ()
        return (self.key(ref.namespace, ""),)

    def decide(self, key: RootKey, now: datetime) -> Work:  # noqa: ARG002 - nothing here depends on time
        namespace = key.namespace
        if namespace not in self._active:
            return NOTHING
        calls = []
        if namespace not in self._accounts:
            calls.append(work.create(SERVICE_ACCOUNT, _account(namespace)))
        if self._root_ca:
            uid, version, content = self._bundles.get(namespace, ("", "", ""))
            if not uid:
                calls.append(work.create(CONFIG_MAP, _bundle(namespace, self._root_ca)))
            elif content != self._root_ca:
                data = {"data": {"ca.crt": self._root_ca}}
                calls.append(work.patch(CONFIG_MAP, namespace, ROOT_CA, data, uid=uid, version=version))
        return Work(steps=work.steps(calls))


def _account(namespace: str) -> Json:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": namespace}}


def _bundle(namespace: str, content: str) -> Json:
    annotations = {"kubernetes.io/description": ROOT_CA_DESCRIPTION}
    metadata = {"name": ROOT_CA, "namespace": namespace, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"ca.crt": content}}
