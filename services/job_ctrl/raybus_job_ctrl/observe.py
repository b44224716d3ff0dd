"""From a tree to what decisions about a RayJob look at. No clock, no input or output: only a different view of what is there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from raybus.api.shape import Shapes
from raybus.decide.tree import Fact, Tree
from raybus.domain import labels, owners, times
from raybus_job_ctrl.build import head_service
from raybus_job_ctrl.decide.world import JobWorld, Phase, Poll, Record, Submitter

Json = Mapping[str, Any]


def observe(tree: Tree, /, *, shapes: Shapes | None = None) -> JobWorld:
    """A view of the tree; objects that are not this RayJob's own are left out. `shapes` remembers which specs can be read."""
    if tree.root is None or tree.key.kind != "RayJob":
        return JobWorld(key=tree.key, job=tree.root, complete=tree.complete, fresh=tree.fresh)
    job, trouble = (shapes or Shapes()).readable(tree.root)
    uid, status = job["metadata"]["uid"], job.get("status") or {}
    cluster = _own(tree, "RayCluster", status.get("rayClusterName") or "", uid)
    head = _head(tree, cluster)
    return JobWorld(
        key=tree.key,
        job=job,
        unreadable=trouble,
        cluster=cluster,
        submitter=_submitter(tree, uid),
        head_service=tree.named("Service", head_service.name_of(tree.key.name)),
        head=head.identity,
        head_ready=head.ready,
        poll=_poll(tree.facts.get(f"rayjob/{status.get('jobId')}")),
        complete=tree.complete,
        fresh=tree.fresh,
    )


def _own(tree: Tree, kind: str, name: str, uid: str) -> Json | None:
    found = tree.named(kind, name) if name else None
    return found if found is not None and owners.controller_uid(found) == uid else None


def _submitter(tree: Tree, uid: str) -> Submitter:
    job = _own(tree, "Job", tree.key.name, uid)
    if job is None:
        return Submitter(phase=Phase.ABSENT if "Job" in tree.complete else Phase.UNKNOWN)
    for condition in (job.get("status") or {}).get("conditions") or ():
        if condition.get("status") == "True" and condition.get("type") in ("Complete", "Failed"):
            return Submitter(
                phase=Phase.COMPLETE if condition["type"] == "Complete" else Phase.FAILED,
                job=job,
                reason=condition.get("reason") or "",
                message=condition.get("message") or "",
                finished_at=times.parse(condition.get("lastTransitionTime")),
            )
    return Submitter(phase=Phase.ACTIVE, job=job)


class _Head(NamedTuple):
    """`<uid>/<restarts of the Ray container>`, empty without a living head Pod; and whether it is said to be unready."""

    identity: str = ""
    ready: bool = True


def _head(tree: Tree, cluster: Json | None) -> _Head:
    if cluster is None:
        return _Head()
    heads = [(pod, _ray(pod, cluster)) for pod in tree.of("Pod") if _is_living_head(pod, cluster["metadata"]["uid"])]
    alive = [(pod, ray) for pod, ray in heads if "terminated" not in (ray.get("state") or {})]
    if not alive:
        return _Head()
    pod, ray = max(
        alive, key=lambda one: (one[0]["metadata"].get("creationTimestamp") or "", one[0]["metadata"]["name"])
    )
    conditions = (pod.get("status") or {}).get("conditions") or ()
    ready = all(condition.get("status") == "True" for condition in conditions if condition.get("type") == "Ready")
    return _Head(f"{pod['metadata']['uid']}/{int(ray.get('restartCount') or 0)}", ready)


def _is_living_head(pod: Json, cluster_uid: str) -> bool:
    meta = pod["metadata"]
    if (meta.get("labels") or {}).get(labels.NODE_TYPE) != labels.HEAD or owners.controller_uid(pod) != cluster_uid:
        return False
    return not meta.get("deletionTimestamp") and (pod.get("status") or {}).get("phase") not in ("Failed", "Succeeded")


def _ray(pod: Json, cluster: Json) -> Json:
    """State of Ray's container: the template's first one, found by name, since a webhook may put another before it."""
    head = (cluster.get("spec") or {}).get("headGroupSpec") or {}
    given: Sequence[Json] = ((head.get("template") or {}).get("spec") or {}).get("containers") or ({},)
    present = [container.get("name") for container in (pod.get("spec") or {}).get("containers") or ()]
    expected = given[0].get("name")
    ray = expected if expected in present else next(iter(present), None)
    states = (pod.get("status") or {}).get("containerStatuses") or ()
    return next((state for state in states if state.get("name") == ray), {})


def _poll(fact: Fact | None) -> Poll | None:
    """What the probe learned (see probe.py for the shape)."""
    if fact is None:
        return None
    value = fact.value
    record = value.get("record")
    return Poll(
        token=value.get("token") or "",
        session=value.get("session") or "",
        record=Record(**record) if record else None,
        error=value.get("error") or "",
        asked=value.get("asked", True),
        seen_at=fact.seen_at,
    )
