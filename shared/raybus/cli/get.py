"""`raybus get`: Ray objects and what they own, one table per kind."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.table import Table

from raybus.cli.errors import UserError
from raybus.domain import labels
from raybus.domain.kinds import JOB, POD, RAYCLUSTER, RAYCRONJOB, RAYJOB, RAYSERVICE, Kind
from raybus.kube.client import KubeClient
from raybus.kube.errors import NotFound

Json = Mapping[str, Any]
Column = tuple[str, Callable[[Json], str]]


def _status(*path: str) -> Callable[[Json], str]:
    def read(obj: Json) -> str:
        value: Any = obj.get("status") or {}
        for key in path:
            value = value.get(key) if isinstance(value, Mapping) else None
        return "" if value is None else str(value)

    return read


def _owner(obj: Json) -> str:
    owners = obj["metadata"].get("ownerReferences") or [{}]
    return "/".join(part for part in (owners[0].get("kind", "").lower(), owners[0].get("name", "")) if part)


def _pod_ready(pod: Json) -> str:
    found = [item for item in (pod.get("status") or {}).get("conditions") or () if item["type"] == "Ready"]
    return found[0]["status"] if found else ""


def _workers(cluster: Json) -> str:
    status = cluster.get("status") or {}
    return f"{status.get('readyWorkerReplicas', 0)}/{status.get('desiredWorkerReplicas', 0)}"


def _job_state(job: Json) -> str:
    found = [item["type"] for item in (job.get("status") or {}).get("conditions") or () if item["status"] == "True"]
    return found[-1] if found else "Running"


COLUMNS: dict[Kind, tuple[Column, ...]] = {
    RAYJOB: (
        ("job", _status("jobStatus")),
        ("state", _status("jobDeploymentStatus")),
        ("cluster", _status("rayClusterName")),
        ("message", _status("message")),
    ),
    RAYCLUSTER: (("state", _status("state")), ("workers", _workers), ("head", _status("head", "podIP"))),
    RAYSERVICE: (("state", _status("serviceStatus")),),
    RAYCRONJOB: (("last", _status("lastScheduleTime")),),
    JOB: (("state", _job_state), ("of", _owner)),
    POD: (("phase", _status("phase")), ("ready", _pod_ready), ("ip", _status("podIP")), ("of", _owner)),
}
ALIASES = {name: kind for kind in COLUMNS for name in (kind.kind.lower(), kind.plural)}
# Only what Ray objects own is shown of the kinds that others use too.
SELECTORS = {
    JOB: f"{labels.ORIGINATED_FROM_CRD}",
    POD: "",
}


def kind_named(text: str) -> Kind:
    """The kind of a word such as "rayjob", "rayjobs" or "pods". UserError lists the words."""
    try:
        return ALIASES[text.lower()]
    except KeyError:
        raise UserError(f"no kind {text!r}", f"one of {', '.join(kind.kind.lower() for kind in COLUMNS)}") from None


def split_name(text: str) -> tuple[Kind, str]:
    """Kind and name of a word such as "rayjob/hello"; a bare name is a RayJob's."""
    kind, slash, name = text.rpartition("/")
    return (kind_named(kind) if slash else RAYJOB), name


def split_word(text: str) -> tuple[Kind, str]:
    """Kind and name of "pods" (all of them) or "rayjob/hello"."""
    kind, _, name = text.partition("/")
    return kind_named(kind), name


async def objects(client: KubeClient, kind: Kind, namespace: str | None, name: str = "") -> list[dict[str, Any]]:
    """The objects to show; of pods and Jobs only those of Ray objects."""
    if name:
        return [await client.get(kind, namespace or "default", name)]
    try:
        found = await client.list_all(kind, namespace, label_selector=SELECTORS.get(kind, ""))
    except NotFound:  # the kind is not installed
        return []
    if kind is POD:
        return [pod for pod in found if _of_ray(pod)]
    return found


def _of_ray(pod: Json) -> bool:
    given = pod["metadata"].get("labels") or {}
    return labels.CLUSTER in given or labels.ORIGINATED_FROM_CRD in given


def table(kind: Kind, found: Sequence[Json], now: dt.datetime) -> Table:
    """One row per object."""
    columns = COLUMNS[kind]
    result = Table(title=kind.plural, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for title in ("namespace", "name", *(title for title, _ in columns), "age"):
        result.add_column(title, overflow="fold")
    for obj in found:
        meta = obj["metadata"]
        cells = [read(obj) for _, read in columns]
        result.add_row(meta.get("namespace", ""), meta["name"], *cells, age(meta.get("creationTimestamp", ""), now))
    return result


def age(created: str, now: dt.datetime) -> str:
    """How long ago an RFC 3339 time was, in the largest unit that fits: 5s, 3m, 2h, 4d."""
    if not created:
        return ""
    seconds = max(0, int((now - dt.datetime.fromisoformat(created)).total_seconds()))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
