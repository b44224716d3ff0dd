"""Kubernetes objects for tests, as small as they may be."""

from __future__ import annotations

from typing import Any

CREATED = "2026-11-29T10:00:00Z"


def pod(
    name: str,
    cluster: str = "c1",
    *,
    namespace: str = "ns",
    uid: str = "",
    rv: int | str = 1,
    phase: str = "Pending",
    created: str = CREATED,
    **labels: str,
) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid or f"uid-{name}",
            "resourceVersion": str(rv),
            "creationTimestamp": created,
            "labels": {"ray.io/cluster": cluster, **labels},
        },
        "spec": {"nodeName": "n1", "restartPolicy": "Never", "containers": [{"name": "ray", "env": [{"name": "S"}]}]},
        "status": {"phase": phase},
    }


def raycluster(
    name: str,
    *,
    namespace: str = "ns",
    uid: str = "",
    rv: int | str = 1,
    generation: int = 1,
    created: str = CREATED,
    **labels: str,
) -> dict[str, Any]:
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid or f"uid-{name}",
            "resourceVersion": str(rv),
            "generation": generation,
            "creationTimestamp": created,
            "labels": labels,
        },
        "spec": {"headGroupSpec": {}},
        "status": {},
    }


def rayjob(name: str, *, namespace: str = "ns", uid: str = "", rv: int | str = 1) -> dict[str, Any]:
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid or f"uid-{name}",
            "resourceVersion": str(rv),
            "generation": 1,
            "creationTimestamp": CREATED,
        },
        "spec": {"entrypoint": "python x.py"},
        "status": {},
    }
