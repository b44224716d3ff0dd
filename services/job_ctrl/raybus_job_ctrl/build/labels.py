"""Labels that mark an object as made for a RayJob. Pure."""

from __future__ import annotations

from raybus.domain import labels


def origin(job_name: str) -> dict[str, str]:
    return {labels.ORIGINATED_FROM_NAME: job_name, labels.ORIGINATED_FROM_CRD: "RayJob"}
