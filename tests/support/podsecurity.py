"""A checker of the Pod Security level `restricted`, and of what our own pods promise beyond it. Reads any manifest with a pod in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Json = Mapping[str, Any]

VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
TEMPLATES = {"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job"}


def pod_of(manifest: Json) -> Json | None:
    """The pod spec in a manifest, whatever makes pods of it."""
    kind, spec = manifest.get("kind"), manifest.get("spec", {})
    if kind == "Pod":
        return dict(spec)
    if kind == "CronJob":
        return dict(spec["jobTemplate"]["spec"]["template"]["spec"])
    return dict(spec["template"]["spec"]) if kind in TEMPLATES else None


def complaints(pod: Json) -> list[str]:
    """What `restricted` refuses, and what we ask of our own pods besides; empty if there is nothing."""
    return [*_pod_level(pod), *(f"{c['name']}: {text}" for c in _containers(pod) for text in _container(pod, c))]


def _containers(pod: Json) -> list[Json]:
    return [*pod.get("initContainers", ()), *pod["containers"]]


def _pod_level(pod: Json) -> Iterator[str]:
    for key in ("hostNetwork", "hostPID", "hostIPC"):
        if pod.get(key):
            yield f"{key} is set"
    for volume in pod.get("volumes", ()):
        if kinds := set(volume) - {"name"} - VOLUMES:
            yield f"volume {volume['name']} is of kind {', '.join(kinds)}"
    if "automountServiceAccountToken" not in pod:
        yield "automountServiceAccountToken is not said"
    options = pod.get("securityContext", {}).get("seLinuxOptions", {})
    if options.get("user") or options.get("role"):
        yield "seLinuxOptions has a user or role"
    if pod.get("securityContext", {}).get("sysctls"):
        yield "sysctls are set"


def _container(pod: Json, container: Json) -> Iterator[str]:
    own = container.get("securityContext", {})
    both = {**pod.get("securityContext", {}), **own}
    if own.get("allowPrivilegeEscalation") is not False:
        yield "allowPrivilegeEscalation is not false"
    if own.get("privileged"):
        yield "privileged"
    capabilities = own.get("capabilities", {})
    if capabilities.get("drop") != ["ALL"]:
        yield "capabilities are not dropped"
    if set(capabilities.get("add", ())) - {"NET_BIND_SERVICE"}:
        yield "capabilities are added"
    if both.get("runAsNonRoot") is not True:
        yield "runAsNonRoot is not true"
    if both.get("runAsUser") == 0:
        yield "runAsUser is 0"
    if both.get("seccompProfile", {}).get("type") not in ("RuntimeDefault", "Localhost"):
        yield "no seccomp profile"
    if any(port.get("hostPort") for port in container.get("ports", ())):
        yield "a hostPort"
    if own.get("readOnlyRootFilesystem") is not True:
        yield "the root file system can be written to"
    for given in ("requests", "limits"):
        if "memory" not in container.get("resources", {}).get(given, {}):
            yield f"no {given} of memory"
