"""What the node is told to run for a container: environment, command, mounts, sizes.

Pure. From a Pod and what was fetched for it to the node's ContainerSpec.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from raybus_localkube.kubelet import environment, podspec, sizing, volumes
from raybus_localkube.kubelet.environment import ConfigError, Facts, Sources
from raybus_localkube.kubelet.podspec import Container, Pod
from raybus_localkube.kubelet.resources import Machine
from raybus_localkube.node import rootfs
from raybus_localkube.node.protocol import ContainerSpec

DRAIN_MAX_S = 3
MESSAGE_PATH = "/dev/termination-log"
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class Place:
    """What is the same for all pods of this node."""

    prefix: str  # of the Python environment
    has_ray: bool
    cluster_domain: str = "cluster.local"
    api_server: tuple[str, int] = ("10.96.0.1", 443)
    extra: Mapping[str, str] = field(default_factory=dict)


def spec(  # noqa: PLR0917 -- all of it is needed
    pod: Pod, container: Container, attempt: int, facts: Facts, sources: Sources, place: Place, folder: str, log: str
) -> ContainerSpec:
    """The node's orders. Raises ConfigError."""
    init = podspec.is_init(pod, container["name"])
    env = environment.environment(pod, container, facts, sources, _given(pod, place), _defaults(pod, init=init))
    argv = environment.command(container, env)
    if not place.has_ray and _needs_ray(argv):
        raise ConfigError(
            'the command needs Ray, which this Python environment does not have: pip install "raybus[local]"'
        )
    cpu, memory = sizing.size(container, env, facts.machine)
    return ContainerSpec(
        pod=podspec.uid(pod),
        name=container["name"],
        attempt=attempt,
        argv=argv,
        env=env,
        cwd=container.get("workingDir") or rootfs.HOME,
        mounts=volumes.mounts(pod, container, folder, env),
        cpu=cpu,
        memory=memory,
        log=log,
        init=init,
        message_path=container.get("terminationMessagePath") or MESSAGE_PATH,
    )


def _given(pod: Pod, place: Place) -> dict[str, str]:
    host, port = place.api_server
    return {
        "PATH": f"{rootfs.TOOLS}:{place.prefix}/bin:{_SYSTEM_PATH}",
        "HOME": rootfs.HOME,
        "HOSTNAME": podspec.hostname(pod),
        "LANG": "C.UTF-8",
        "KUBERNETES_SERVICE_HOST": host,
        "KUBERNETES_SERVICE_PORT": str(port),
        "KUBERNETES_SERVICE_PORT_HTTPS": str(port),
        "KUBERNETES_PORT": f"tcp://{host}:{port}",
        **place.extra,
    }


def _defaults(pod: Pod, *, init: bool) -> dict[str, str]:
    """What a pod may set otherwise. Ray's own drain time is longer than the usual grace, which would end in a SIGKILL."""
    grace = podspec.grace_s({**pod, "metadata": {}})
    defaults = {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": str(min(DRAIN_MAX_S, max(grace - 5, 0))),
    }
    if init:
        defaults["RAYBUS_CONTAINER_TYPE"] = "init"
    return defaults


def _needs_ray(argv: list[str]) -> bool:
    words = " ".join(argv).replace(";", " ").replace("&", " ").replace("|", " ").split()
    return any(word == "ray" or word.endswith("/ray") for word in words)


def pod_request(pod: Pod, machine: Machine, place: Place) -> dict[str, Any]:
    """The node's order to make the pod's place."""
    namespace = pod["metadata"]["namespace"]
    domain = place.cluster_domain
    config = pod["spec"].get("dnsConfig") or {}
    search = [] if pod["spec"].get("dnsPolicy") == "None" else [f"{namespace}.svc.{domain}", f"svc.{domain}", domain]
    options = ["ndots:5"] + [
        option["name"] + (f":{option['value']}" if option.get("value") else "")
        for option in config.get("options") or ()
    ]
    memory = max(sizing.size(container, {}, machine)[1] for container in podspec.containers(pod))
    return {
        "uid": podspec.uid(pod),
        "name": pod["metadata"]["name"],
        "namespace": namespace,
        "hostname": podspec.hostname(pod),
        "search": [*search, *(config.get("searches") or ())],
        "options": options,
        "host_aliases": [
            {"ip": alias["ip"], "names": alias.get("hostnames") or []} for alias in pod["spec"].get("hostAliases") or ()
        ],
        "tmpfs": [{"name": v.name, "size": v.size} for v in volumes.memory_volumes(pod, memory)],
    }
