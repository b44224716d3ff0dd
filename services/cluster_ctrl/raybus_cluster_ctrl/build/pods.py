"""Head and worker pods of a RayCluster, from the template that the user wrote.

Pure. What may live here: the order in which a template becomes a pod. What is added is a module beside this one: env,
probes, volumes, sidecars. Lists are appended to in upstream's order, since users and tests see it. The user's objects are
never modified, only put into new ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from raybus.domain import api_token, cluster_spec, fingerprint, labels, names, start_params
from raybus_cluster_ctrl.build import env, probes, sidecars, volumes
from raybus_cluster_ctrl.build.target import Cluster, Group

Json = Mapping[str, Any]

_OURS_ALONE = (labels.NODE_TYPE, labels.GROUP, labels.CLUSTER)
_OPEN_FILES = "ulimit -n ${RAY_START_ULIMIT_OPEN_FILES:-65536}; "


def pod(group: Group, *, slot: int, name: str) -> dict[str, Any]:
    """The pod of this slot. All pods of a group share everything but name, slot and index."""
    body = _remembered(group)
    metadata = {**body["metadata"], "name": name}
    metadata["annotations"] = {**metadata["annotations"], labels.SLOT: str(slot)}
    if not group.is_head and group.policy.replica_index:
        metadata["labels"] = {**metadata["labels"], labels.REPLICA_INDEX: str(slot)}
    return {**body, "metadata": metadata}


def generate_name(cluster: Cluster, group_name: str) -> str:
    """What the API server would append to, and what our names begin with."""
    prefix = names.group_prefix(cluster.name, group_name)
    return names.pod_name(prefix, "head" if group_name == labels.HEAD_GROUP else "worker", generate=True)


def _remembered(group: Group) -> Json:
    return group.policy.built.get((*group.cluster.version, group.name), lambda: _build(group))


def _build(group: Group) -> Json:
    spec = _spec(group)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": _metadata(group), "spec": spec}


def _metadata(group: Group) -> dict[str, Any]:
    cluster = group.cluster
    given = group.template.get("metadata") or {}
    metadata: dict[str, Any] = {
        "generateName": generate_name(cluster, group.name),
        "namespace": cluster.namespace,
        "labels": _labels(group, given.get("labels") or {}),
        "annotations": {**(given.get("annotations") or {}), **_annotations(group)},
        "ownerReferences": [cluster.owner],
    }
    if given.get("finalizers"):
        metadata["finalizers"] = given["finalizers"]
    return metadata


def _labels(group: Group, given: Mapping[str, str]) -> dict[str, str]:
    name = group.cluster.name
    base = {
        labels.IS_RAY_NODE: "yes",
        labels.CLUSTER: name,
        labels.NODE_TYPE: group.node_type,
        labels.GROUP: group.name,
        labels.IDENTIFIER: names.identifier(name, group.node_type),
        labels.APP_NAME: labels.APP_NAME_VALUE,
        labels.CREATED_BY: labels.CREATED_BY_VALUE,
    }
    kept = {key: base[key] for key in _OURS_ALONE}
    result = {**base, **given, **(group.raw.get("labels") or {}), **kept}
    if group.cluster.origin == "RayService":
        result[labels.SERVE] = "false" if group.is_head else "true"
    return result


def _annotations(group: Group) -> dict[str, str]:
    cluster = group.cluster
    added = {}
    if _overwritten(cluster):
        added[labels.OVERWRITE_CONTAINER_CMD] = "true"
    if group.is_head:
        fault_tolerant = cluster_spec.fault_tolerant(cluster.spec, cluster.annotations)
        added[labels.FT_ENABLED] = "true" if fault_tolerant else "false"
        added[labels.RECREATE_HASH] = fingerprint.recreate_hash(cluster.spec)
        added[labels.KUBERAY_VERSION] = group.policy.version
    return added


def _spec(group: Group) -> Json:
    cluster, given = group.cluster, group.template["spec"]
    given_ray, *others = given["containers"]
    params = group.start_params()
    spec = {**given, "volumes": list(given.get("volumes") or ())}
    containers = [_ray_container(group, given_ray, params), *others]
    init = list(given.get("initContainers") or ())
    if group.is_head and cluster.autoscaling:
        spec["serviceAccountName"] = names.autoscaler_account_name(cluster.name, cluster.spec)
        containers.append(sidecars.autoscaler(group, given_ray))
    if cluster.autoscaling and cluster_spec.autoscaler_version(cluster.spec) == "v2":
        spec["restartPolicy"] = "Never"
    if not group.is_head and group.policy.inject_init_container:
        init.append(sidecars.wait_for_gcs(group, given_ray))
    if cluster_spec.kubernetes_token_auth(cluster.spec):  # Ray itself asks the API server about tokens
        spec["volumes"] = volumes.with_volume(spec["volumes"], volumes.token())
        containers = [volumes.with_token_mount(c) if c is containers[0] or _is_ours(c) else c for c in containers]
        init = [volumes.with_token_mount(c) if _is_ours(c) else c for c in init]
    else:
        spec |= api_token.without_token(spec)
    containers = _with_shared_places(spec, containers, params)
    spec["containers"] = containers
    if init:
        spec["initContainers"] = [{**c, "env": [*(c.get("env") or ()), *env.head_address(group)]} for c in init]
    if not spec["volumes"]:
        del spec["volumes"]
    return spec


def _is_ours(container: Json) -> bool:
    return container["name"] in (sidecars.AUTOSCALER, sidecars.WAIT_GCS)


def _ray_container(group: Group, given: Json, params: Mapping[str, str]) -> dict[str, Any]:
    """Container 0, the one that runs Ray."""
    container = dict(given)
    ports = given.get("ports") or ()
    if not any(port.get("name") == "metrics" for port in ports):
        container["ports"] = [*ports, {"name": "metrics", "containerPort": start_params.METRICS_PORT}]
    filled = start_params.with_container_resources(params, given.get("resources") or {})
    command = start_params.command(group.node_type, filled)
    container |= _command(group, given, command)
    container["env"] = env.of_ray_container(group, given.get("env") or (), command)
    container |= probes.probes(group, container, filled)
    return container


def _command(group: Group, given: Json, start_command: str) -> dict[str, Any]:
    """Command and args of container 0; nothing where they are the user's business."""
    user = "".join(f" {word} " for word in (*(given.get("command") or ()), *(given.get("args") or ())))
    if _hands_off(group) or "ray start" in user:
        return {}
    generated = _OPEN_FILES + start_command
    return {"command": group.shell, "args": [f"{user} && {generated}" if user else generated]}


def _hands_off(group: Group) -> bool:
    """Whether an annotation, of the cluster or of the template, says that the command is the user's."""
    template = (group.template.get("metadata") or {}).get("annotations") or {}
    return _overwritten(group.cluster) or template.get(labels.OVERWRITE_CONTAINER_CMD) == "true"


def _overwritten(cluster: Cluster) -> bool:
    return cluster.annotations.get(labels.OVERWRITE_CONTAINER_CMD, "").lower() == "true"


def _with_shared_places(
    spec: dict[str, Any], containers: list[dict[str, Any]], params: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Shared memory for Ray unless its place was given, and with the autoscaler the logs that both need."""
    ray, *others = containers
    if "plasma-directory" not in params:
        ray = _with_empty_dir(spec, ray, volumes.shared_memory(ray), "/dev/shm")  # noqa: S108 - a place in the pod
    if any(other["name"] == sidecars.AUTOSCALER for other in others):
        ray = _with_empty_dir(spec, ray, volumes.logs(), volumes.LOGS_PATH)
        others = [
            _with_empty_dir(spec, other, volumes.logs(), volumes.LOGS_PATH) if _is_ours(other) else other
            for other in others
        ]
    return [ray, *others]


def _with_empty_dir(spec: dict[str, Any], container: dict[str, Any], volume: Json, path: str) -> dict[str, Any]:
    """`container` with the volume at `path`; the volume joins the pod's. Nothing if something is mounted there."""
    mounted = volumes.with_mount(container, {"name": volume["name"], "mountPath": path})
    if mounted is not container:
        spec["volumes"] = volumes.with_volume(spec["volumes"], volume)
    return mounted
