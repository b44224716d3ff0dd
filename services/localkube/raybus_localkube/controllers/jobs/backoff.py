"""When a Job may make its next pod after failures: 10 s, doubled for each one since the last success, up to 6 minutes. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from raybus_localkube.controllers.jobs.facts import PodFact

BASE_S = 10.0
CAP_S = 360.0


def next_pod_at(pods: Sequence[PodFact]) -> datetime | None:
    """The earliest time for a new pod; None if there was no failure since the last success."""
    ends = sorted(
        (pod.finished_at, pod.failed or (pod.terminating and pod.tracked))
        for pod in pods
        if pod.finished_at is not None
    )
    failures = 0
    for _, failed in reversed(ends):
        if not failed:
            break
        failures += 1
    if not failures:
        return None
    return ends[-1][0] + timedelta(seconds=min(BASE_S * 2.0 ** min(failures - 1, 30), CAP_S))
