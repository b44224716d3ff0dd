"""Reads a tree, as the mirror or a fresh read shows it, into the world that decisions are made on.

What may live here: reading of Kubernetes objects into values. No decision, no input or output.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from raybus.api.shape import Shapes
from raybus.decide.tree import RootKey, Tree
from raybus.domain import cluster_spec, kinds, labels, owners, services
from raybus_cluster_ctrl.build.target import Cluster
from raybus_cluster_ctrl.decide.world import ClusterWorld, Place, Pod

Json = Mapping[str, Any]

_NEEDED = frozenset({kinds.POD.kind, kinds.SERVICE.kind})
_REMEMBERED = 20_000
_HEAD_SERVICE_LABELS = (labels.CLUSTER, labels.NODE_TYPE, labels.IDENTIFIER)


@dataclass(slots=True)
class _Seen:
    """Of one RayCluster: in each place the newest pods, which were created in one second, in the order in which they were seen;
    and the pods as read from their objects.
    """

    uid: str
    ray_containers: Mapping[str, str] = field(default_factory=dict)
    newest: dict[Place, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    read: dict[str, tuple[Json, Pod]] = field(default_factory=dict)


class Observer:
    """Remembers which pod stood where, so that its successor gets another name, and pods that have not changed, so that a
    cluster of a thousand is not read anew for each of them. Forgetting costs nothing but that.
    """

    def __init__(self, remembered: int = _REMEMBERED) -> None:
        self._limit = remembered
        self._seen: OrderedDict[RootKey, _Seen] = OrderedDict()
        self._shapes = Shapes(remembered)

    def __call__(self, tree: Tree) -> ClusterWorld:
        if tree.root is None:
            self._seen.pop(tree.key, None)
            return ClusterWorld(cluster=None)
        root, trouble = self._shapes.readable(tree.root)
        cluster = Cluster(root)
        if trouble:
            return ClusterWorld(cluster=cluster, unreadable=trouble)
        seen = self._seen_of(tree.key, cluster)
        found = tuple(_read(seen, obj) for obj in tree.of(kinds.POD.kind))
        if len(seen.read) > len(found):
            seen.read = {pod.name: seen.read[pod.name] for pod in found}
        mine = tuple(pod for pod in found if pod.ours)
        _remember_places(seen, mine)
        return ClusterWorld(
            cluster=cluster,
            pods=mine,
            heads=tuple(pod for pod in found if pod.node_type == labels.HEAD),
            workers=_by_group(mine),
            names=frozenset(pod.name for pod in found),
            head_services=tuple(_head_services(cluster, tree.of(kinds.SERVICE.kind))),
            groups=cluster_spec.worker_groups(cluster.spec),
            complete=tree.complete >= _NEEDED,
            last_seen={place: uids[-1] for place, (_, uids) in seen.newest.items()},
        )

    def _seen_of(self, key: RootKey, cluster: Cluster) -> _Seen:
        ray_containers = _ray_containers(cluster.spec)
        seen = self._seen.get(key)
        if seen is None or seen.uid != cluster.uid:
            seen = self._seen[key] = _Seen(cluster.uid, ray_containers)
        elif seen.ray_containers != ray_containers:
            seen.ray_containers, seen.read = ray_containers, {}
        self._seen.move_to_end(key)
        if len(self._seen) > self._limit:
            self._seen.popitem(last=False)
        return seen


def _read(seen: _Seen, obj: Json) -> Pod:
    """The pod; objects are replaced and never modified, so the same object is the same pod."""
    name = obj["metadata"]["name"]
    known = seen.read.get(name)
    if known is not None and known[0] is obj:
        return known[1]
    pod = _pod(obj, seen.uid, seen.ray_containers)
    seen.read[name] = (obj, pod)
    return pod


def _remember_places(seen: _Seen, pods: Iterable[Pod]) -> None:
    for pod in pods:
        if pod.slot is not None:
            place = (pod.group, pod.slot)
            created, uids = seen.newest.get(place, ("", ()))
            if pod.created > created:
                seen.newest[place] = (pod.created, (pod.uid,))
            elif pod.created == created and pod.uid not in uids:  # times are in seconds: what is seen later is newer
                seen.newest[place] = (created, (*uids, pod.uid))


def _by_group(pods: Iterable[Pod]) -> Mapping[str, tuple[Pod, ...]]:
    groups: dict[str, list[Pod]] = {}
    for pod in pods:
        if pod.node_type == labels.WORKER:
            groups.setdefault(pod.group, []).append(pod)
    return {name: tuple(members) for name, members in groups.items()}


def _ray_containers(spec: Json) -> dict[str, str]:
    """Group -> name of its Ray container, as the template says now."""
    groups = {labels.HEAD_GROUP: spec.get("headGroupSpec") or {}}
    groups |= {str(group.get("groupName")): group for group in spec.get("workerGroupSpecs") or ()}
    named = {}
    for name, group in groups.items():
        containers: Sequence[Json] = ((group.get("template") or {}).get("spec") or {}).get("containers") or ({},)
        named[name] = str(containers[0].get("name", ""))
    return named


def _pod(obj: Json, cluster_uid: str, ray_containers: Mapping[str, str]) -> Pod:
    metadata, spec, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
    marks = metadata.get("labels") or {}
    group = str(marks.get(labels.GROUP, ""))
    return Pod(
        name=metadata["name"],
        uid=metadata["uid"],
        node_type=str(marks.get(labels.NODE_TYPE, "")),
        group=group,
        slot=_slot(metadata),
        phase=str(status.get("phase", "")),
        ip=str(status.get("podIP", "")),
        created=str(metadata.get("creationTimestamp", "")),
        restart_policy=str(spec.get("restartPolicy", "Always")),
        terminating="deletionTimestamp" in metadata,
        ours=owners.controller_uid(obj) == cluster_uid,
        ray_ended=_ray_ended(spec, status, ray_containers.get(group, "")),
        ready=next((c for c in status.get("conditions") or () if c.get("type") == "Ready"), None),
        status=status,
    )


def _slot(metadata: Json) -> int | None:
    """The pod's place in its group; pods that another operator made have it in a label."""
    text = (metadata.get("annotations") or {}).get(labels.SLOT)
    if text is None:
        text = (metadata.get("labels") or {}).get(labels.REPLICA_INDEX, "")
    return int(text) if text.isascii() and text.isdigit() else None


def _ray_ended(spec: Json, status: Json, expected: str) -> bool:
    """Matched by name: a container that something put in front of Ray's must not be taken for it."""
    names = [container.get("name") for container in spec.get("containers") or ()]
    name = expected if expected in names else next(iter(names), None)
    statuses = status.get("containerStatuses") or ()
    state = next((entry.get("state") or {} for entry in statuses if entry.get("name") == name), {})
    return "terminated" in state


def _head_services(cluster: Cluster, found: Iterable[Json]) -> Iterable[Json]:
    wanted = services.head_selector(cluster.name, cluster.spec)
    for service in found:
        marks = service["metadata"].get("labels") or {}
        if all(marks.get(key) == wanted[key] for key in _HEAD_SERVICE_LABELS):
            yield service
