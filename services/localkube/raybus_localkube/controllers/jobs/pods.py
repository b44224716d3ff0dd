"""The pods of a Job. Pure: a pod's name follows from the Job and a number, so that a repeated creation finds the first one."""

from __future__ import annotations

from collections.abc import Collection
from itertools import count
from typing import Any

from raybus.domain import identity, owners
from raybus_localkube.controllers.jobs.facts import COMPLETION_INDEX, TRACKING, JobView
from raybus_localkube.controllers.work import Json

GENERATED_BASE = 58  # characters of generateName that Kubernetes keeps
HOSTNAME_MAX = 63


def new_pod(job: JobView, taken: Collection[str], index: int | None) -> Json:
    """The next pod of a Job, with a name that is not in `taken`."""
    template: Json = job.spec["template"]
    given = template.get("metadata") or {}
    prefix = f"{job.meta['name']}-" if index is None else f"{job.meta['name']}-{index}-"
    metadata: dict[str, Any] = {
        "name": _name(job, prefix, taken, index),
        "generateName": prefix,
        "namespace": job.meta["namespace"],
        "labels": dict(given.get("labels") or {}),
        "annotations": dict(given.get("annotations") or {}),
        "finalizers": [*(given.get("finalizers") or ()), TRACKING],
        "ownerReferences": [
            owners.controller_reference({"apiVersion": "batch/v1", "kind": "Job", "metadata": job.meta})
        ],
    }
    spec = template["spec"]
    if index is not None:
        metadata["labels"][COMPLETION_INDEX] = metadata["annotations"][COMPLETION_INDEX] = str(index)
        spec = _indexed(spec, job.meta["name"], index)
    if not metadata["annotations"]:
        del metadata["annotations"]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _name(job: JobView, prefix: str, taken: Collection[str], index: int | None) -> str:
    names = (prefix[:GENERATED_BASE] + identity.suffix(job.meta["uid"], index or 0, attempt) for attempt in count())
    return next(name for name in names if name not in taken)


def _indexed(spec: Json, job: str, index: int) -> Json:
    path = f"metadata.labels['{COMPLETION_INDEX}']"
    variable = {"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}
    hostname = spec.get("hostname") or f"{job[: HOSTNAME_MAX - len(str(index)) - 1]}-{index}"
    lists = {
        key: [{**each, "env": [*(each.get("env") or ()), variable]} for each in spec[key]]
        for key in ("initContainers", "containers")
        if key in spec
    }
    return {**spec, "hostname": hostname, **lists}
