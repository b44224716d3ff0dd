"""Environment of the Ray container and of what starts before it, in the order that users and tools see.

Pure. What may live here: which variable, which value, in which order, and whether a user's own one wins.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from raybus.domain import cluster_spec, labels, names
from raybus_cluster_ctrl.build.target import Cluster, Group

Json = Mapping[str, Any]

_SERVE_DEFAULTS = {
    "RAY_timeout_ms_task_wait_for_death_info": "0",
    "RAY_gcs_server_request_timeout_seconds": "5",
    "RAY_SERVE_KV_TIMEOUT_S": "5",
}


def value(name: str, text: str) -> Json:
    return {"name": name, "value": text}


def from_field(name: str, path: str) -> Json:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def from_label(name: str, label: str) -> Json:
    return from_field(name, f"metadata.labels['{label}']")


def with_absent(env: list[Json], more: Iterable[Json]) -> list[Json]:
    """`env` with those of `more` whose names are not in it yet: what the user set wins."""
    known = {entry.get("name") for entry in env}
    return env + [entry for entry in more if entry["name"] not in known]


def head_address(group: Group) -> list[Json]:
    return [value("FQ_RAY_IP", group.fqdn), value("RAY_IP", group.cluster.head_service)]


def auth(cluster: Cluster) -> list[Json]:
    """What every container that talks to Ray needs where a token is asked for."""
    if not cluster_spec.token_auth(cluster.spec):
        return []
    options = cluster.spec["authOptions"]
    env = [value("RAY_AUTH_MODE", "token")]
    if cluster_spec.kubernetes_token_auth(cluster.spec):
        return [*env, value("RAY_ENABLE_K8S_TOKEN_AUTH", "true")]
    secret = options.get("secretName") or names.auth_secret_name(cluster.name)
    reference = {"secretKeyRef": {"name": secret, "key": "auth_token"}}
    return [*env, {"name": "RAY_AUTH_TOKEN", "valueFrom": reference}]


def of_ray_container(group: Group, given: Sequence[Json], start_command: str) -> list[Json]:
    """The whole list for container 0. `given` is the user's, `start_command` the generated `ray start`."""
    cluster = group.cluster
    env = list(given)
    version = cluster_spec.autoscaler_version(cluster.spec)
    if group.is_head and cluster.autoscaling and version:
        env.append(value("RAY_enable_autoscaler_v2", "true" if version == "v2" else "false"))
    env = with_absent(env, auth(cluster))
    if not group.is_head:
        env += head_address(group)
    env += [
        from_label("RAY_CLUSTER_NAME", labels.CLUSTER),
        from_field("RAY_CLUSTER_NAMESPACE", "metadata.namespace"),
        from_field("RAY_CLOUD_INSTANCE_ID", "metadata.name"),
        from_label("RAY_NODE_TYPE_NAME", labels.GROUP),
        value("KUBERAY_GEN_RAY_START_CMD", start_command),
    ]
    env = with_absent(env, [value("RAY_PORT", cluster.gcs_port)])
    if cluster.origin == "RayService":
        env = with_absent(env, [value(name, text) for name, text in _SERVE_DEFAULTS.items()])
    address = f"127.0.0.1:{cluster.gcs_port}" if group.is_head else group.gcs_address
    env = with_absent(env, [value("RAY_ADDRESS", address), value("RAY_USAGE_STATS_KUBERAY_IN_USE", "1")])
    if group.is_head:
        tags = f"kuberay_version={group.policy.version};kuberay_crd={cluster.origin}"
        env.append(value("RAY_USAGE_STATS_EXTRA_TAGS", tags))
    return with_absent(env, [value("RAY_DASHBOARD_ENABLE_K8S_DISK_USAGE", "1")])
