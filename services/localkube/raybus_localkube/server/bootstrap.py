"""What a cluster has from its first moment: namespaces, and the Service of the API server itself."""

from __future__ import annotations

from typing import Any

from raybus_localkube.kinds.resource import Call
from raybus_localkube.server import writing
from raybus_localkube.server.certificates import SERVICE_ADDRESS
from raybus_localkube.server.core import Core
from raybus_localkube.server.messages import User

Json = dict[str, Any]
NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
APISERVER = User("system:apiserver", ("system:masters",))


def ensure(core: Core, port: int) -> None:
    """Create what is missing; called at every start."""
    call = core.call(APISERVER)
    for name in NAMESPACES:
        create(core, call, "namespaces", {"metadata": {"name": name}})
    service = {
        "metadata": {"name": "kubernetes", "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {"clusterIP": SERVICE_ADDRESS, "ports": [{"name": "https", "port": 443, "targetPort": port}]},
    }
    create(core, call, "services", service, "default")
    publish_endpoint(core, call, port)


def create(core: Core, call: Call, plural: str, obj: Json, namespace: str = "") -> None:
    resource = core.registry.find("", "v1", plural)
    assert resource is not None
    if core.store.get(resource.key, namespace, obj["metadata"]["name"]) is None:
        decoded, _ = resource.strategy.decode(obj, resource, "v1", call)
        writing.create(call, resource, namespace, decoded)


def publish_endpoint(core: Core, call: Call, port: int) -> None:
    """The slice of Service `kubernetes` names the port that this run listens on."""
    labels = {"kubernetes.io/service-name": "kubernetes"}
    body: Json = {
        "metadata": {"name": "kubernetes", "labels": labels}, "addressType": "IPv4",
        "endpoints": [{"addresses": ["127.0.0.1"], "conditions": {"ready": True}}],
        "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
    }  # fmt: skip
    resource = core.registry.find("discovery.k8s.io", "v1", "endpointslices")
    assert resource is not None
    record = core.store.get(resource.key, "default", "kubernetes")
    decoded, _ = resource.strategy.decode(body, resource, "v1", call)
    if record is None:
        writing.create(call, resource, "default", decoded)
    else:
        writing.update(call, resource, record, decoded, "")
