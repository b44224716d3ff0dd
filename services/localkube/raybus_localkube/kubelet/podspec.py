"""Reading a Pod: its containers, policies, quality class, and what of it this kubelet cannot do.

Pure. What may live here: questions about one Pod object as the API server gives it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Pod = Mapping[str, Any]
Container = Mapping[str, Any]

DEFAULT_GRACE_S = 30
_VOLUMES = ("emptyDir", "configMap", "secret", "projected", "downwardAPI", "hostPath")
_SOURCES = ("configMap", "secret", "downwardAPI", "serviceAccountToken")
_HANDLERS = ("exec", "httpGet", "tcpSocket", "sleep")


def uid(pod: Pod) -> str:
    return str(pod["metadata"]["uid"])


def key(pod: Pod) -> str:
    """namespace/name."""
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def containers(pod: Pod) -> Sequence[Container]:
    return pod["spec"].get("containers") or ()


def init_containers(pod: Pod) -> Sequence[Container]:
    return pod["spec"].get("initContainers") or ()


def all_containers(pod: Pod) -> Iterator[Container]:
    yield from init_containers(pod)
    yield from containers(pod)


def is_init(pod: Pod, name: str) -> bool:
    return any(container["name"] == name for container in init_containers(pod))


def hostname(pod: Pod) -> str:
    return str(pod["spec"].get("hostname") or pod["metadata"]["name"])[:63].rstrip("-.")


def grace_s(pod: Pod) -> int:
    """The grace that a running deletion gives, else the Pod's own."""
    given = pod["metadata"].get("deletionGracePeriodSeconds")
    if given is None:
        given = pod["spec"].get("terminationGracePeriodSeconds")
    return DEFAULT_GRACE_S if given is None else int(given)


def restarts(pod: Pod, container: Container, exit_code: int) -> bool:
    """Does a container that ended with this code start again? A container's own rules and policy go before the Pod's."""
    for rule in container.get("restartPolicyRules") or ():
        codes = rule.get("exitCodes") or {}
        if (exit_code in (codes.get("values") or ())) == (codes.get("operator") != "NotIn"):
            return bool(rule.get("action") == "Restart")
    policy = container.get("restartPolicy") or pod["spec"].get("restartPolicy") or "Always"
    if is_init(pod, container["name"]):
        return policy != "Never" and exit_code != 0
    return policy == "Always" or (policy == "OnFailure" and exit_code != 0)


def unsupported(pod: Pod) -> list[str]:
    """Fields that this kubelet cannot honour; running the Pod without them would be a lie."""
    spec = pod["spec"]
    found = [f"spec.{name}" for name in ("hostNetwork", "hostPID", "hostIPC") if spec.get(name)]
    for index, container in enumerate(init_containers(pod)):
        if container.get("restartPolicy") == "Always":
            found.append(f"spec.initContainers[{index}].restartPolicy Always (a sidecar)")
        found += _bad_handlers(container, f"spec.initContainers[{index}]")
    for index, container in enumerate(containers(pod)):
        found += _bad_handlers(container, f"spec.containers[{index}]")
    for index, volume in enumerate(spec.get("volumes") or ()):
        found += _bad_volume(volume, f"spec.volumes[{index}]")
    return found


def _bad_handlers(container: Container, path: str) -> Iterator[str]:
    for name in ("startupProbe", "readinessProbe", "livenessProbe"):
        probe = container.get(name)
        if probe and not any(handler in probe for handler in _HANDLERS[:3]):
            yield f"{path}.{name}.grpc" if "grpc" in probe else f"{path}.{name} without a handler"
    for name, hook in (container.get("lifecycle") or {}).items():
        if isinstance(hook, Mapping) and not any(handler in hook for handler in _HANDLERS):
            yield f"{path}.lifecycle.{name}"
    if container.get("volumeDevices"):
        yield f"{path}.volumeDevices"


def _bad_volume(volume: Mapping[str, Any], path: str) -> Iterator[str]:
    kinds = [name for name, value in volume.items() if name != "name" and value is not None]
    for kind in kinds:
        if kind not in _VOLUMES:
            yield f"{path}.{kind}"
    for index, source in enumerate((volume.get("projected") or {}).get("sources") or ()):
        for kind in source:
            if kind not in _SOURCES:
                yield f"{path}.projected.sources[{index}].{kind}"


def qos_class(pod: Pod) -> str:
    """Guaranteed, Burstable or BestEffort, by CPU and memory of all containers."""
    every = list(all_containers(pod))
    amounts = [
        (container.get("resources") or {}).get(side, {}).get(name)
        for container in every
        for side in ("limits", "requests")
        for name in ("cpu", "memory")
    ]
    if not any(amounts):
        return "BestEffort"
    for container in every:
        resources = container.get("resources") or {}
        limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
        for name in ("cpu", "memory"):
            if not limits.get(name) or requests.get(name, limits[name]) != limits[name]:
                return "Burstable"
    return "Guaranteed"


def has_token(pod: Pod) -> bool:
    """Does a volume hold a service account token, which has to be renewed?"""
    volumes = pod["spec"].get("volumes") or ()
    sources = [source for volume in volumes for source in (volume.get("projected") or {}).get("sources") or ()]
    return any("serviceAccountToken" in source for source in sources)
