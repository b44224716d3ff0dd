"""The RayCluster that a RayJob runs on. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from raybus.domain import labels, owners
from raybus_job_ctrl.build.labels import origin

Json = Mapping[str, Any]


def ray_cluster(job: Json, name: str) -> dict[str, Any]:
    """The cluster of this name from `spec.rayClusterSpec`, with the RayJob's labels and annotations, owned by it.

    What Raybus remembers in annotations of the RayJob is not the cluster's business and stays behind.
    """
    meta, spec = job["metadata"], job["spec"]
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": meta["namespace"],
        "labels": {
            **(meta.get("labels") or {}),
            **origin(meta["name"]),
            labels.JOB_SUBMISSION_MODE: spec.get("submissionMode") or "K8sJobMode",
        },
        "ownerReferences": [owners.controller_reference(job)],
    }
    annotations = {
        key: value for key, value in (meta.get("annotations") or {}).items() if not key.startswith("raybus.io/")
    }
    if annotations:
        metadata["annotations"] = annotations
    return {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": metadata, "spec": spec["rayClusterSpec"]}
