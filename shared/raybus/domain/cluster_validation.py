"""What makes a RayCluster's spec refused, in the order in which it is looked for. The first problem found is reported.

Pure. Used for RayClusters and for the cluster templates of RayJobs and RayServices. A problem names the field and says what
to do; no problem is the empty string.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from raybus.domain import cluster_spec, labels, names, syntax, versions
from raybus.domain.cluster_spec import WorkerGroup

Json = Mapping[str, Any]

_TRUE = ("1", "true")
_AUTOSCALER_V2 = "RAY_enable_autoscaler_v2"
_RESOURCE_PARAMS = ("num-cpus", "num-gpus", "memory", "resources")
DELETION_POLICY_GATE = "RayJobDeletionPolicy"
# Part of the spec -> the gate without which it is refused.
_GATED = {
    "historyServerOptions": "RayClusterHistoryServer",
    "networkPolicy": "RayClusterNetworkPolicy",
    "tlsOptions": "RayClusterMTLS",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Subject:
    """What the checks look at, read once."""

    spec: Json
    annotations: Mapping[str, str]
    gates: Collection[str]
    groups: tuple[WorkerGroup, ...]
    head: Json
    env: Mapping[str, Json]  # of head container 0, by name

    @property
    def autoscaling(self) -> bool:
        return cluster_spec.autoscaling(self.spec)

    @property
    def version(self) -> str:
        return cluster_spec.autoscaler_version(self.spec)

    @property
    def v2(self) -> bool:
        return self.version == "v2" or (self.env.get(_AUTOSCALER_V2) or {}).get("value") in _TRUE


def metadata_problem(name: str, limit: int = names.MAX_CLUSTER_NAME) -> str:
    if len(name) > limit:
        return (
            f"metadata.name: {name!r} has {len(name)} characters; use at most {limit}, since pod names are made from it"
        )
    if not syntax.is_dns_label(name):
        return f"metadata.name: {name!r} must be lower-case letters, digits and '-', begin with a letter and not end with '-'"
    return ""


def spec_problem(spec: Json, annotations: Mapping[str, str], gates: Collection[str] = (DELETION_POLICY_GATE,)) -> str:
    """`annotations` are those of the object that the spec stands in; `gates` the feature gates that are on."""
    containers = _containers(spec.get("headGroupSpec") or {})
    env = {str(entry.get("name")): entry for entry in (containers[0].get("env") or ())} if containers else {}
    subject = _Subject(
        spec=spec,
        annotations=annotations,
        gates=gates,
        groups=cluster_spec.worker_groups(spec),
        head=spec.get("headGroupSpec") or {},
        env=env,
    )
    return next((problem for check in _CHECKS if (problem := check(subject))), "")


def upgrade_problem(spec: Json, cluster_labels: Mapping[str, str]) -> str:
    kind = (spec.get("upgradeStrategy") or {}).get("type")
    if kind and kind not in ("Recreate", "None"):
        return f"spec.upgradeStrategy.type: {kind!r} is unknown; use Recreate or None"
    origin = cluster_spec.origin(cluster_labels)
    if kind and origin != "RayCluster":
        return f"spec.upgradeStrategy: a cluster of a {origin} cannot have one; remove it"
    return ""


def _containers(group: Json) -> Sequence[Json]:
    pod = (group.get("template") or {}).get("spec") or {}
    containers: Sequence[Json] = pod.get("containers") or ()
    return containers


def _group_problem(where: str, group: Json) -> str:
    """What holds for head and workers alike."""
    params = group.get("rayStartParams") or {}
    doubled = [name for name in _RESOURCE_PARAMS if params.get(name)]
    if group.get("resources") and doubled:
        return f"{where}.resources: rayStartParams says {', '.join(doubled)} too; keep only one of the two places"
    if "labels" in params:
        return f"{where}.rayStartParams: 'labels' is not taken here; use {where}.labels"
    problems = []
    for key, value in (group.get("labels") or {}).items():
        problems += [syntax.label_key_problem(key), syntax.label_value_problem(key, str(value))]
    joined = "; ".join(problem for problem in problems if problem)
    return f"{where}.labels: {joined}" if joined else ""


def _head(subject: _Subject) -> str:
    if not _containers(subject.head):
        return "spec.headGroupSpec.template.spec.containers: at least one container is needed, the first one runs Ray"
    return _group_problem("spec.headGroupSpec", subject.head)


def _workers(subject: _Subject) -> str:
    for index, group in enumerate(subject.groups):
        where = f"spec.workerGroupSpecs[{index}]"
        if not _containers(group.raw):
            return f"{where}.template.spec.containers: at least one container is needed, the first one runs Ray"
        problem = _bounds(where, group, autoscaling=subject.autoscaling) or _group_problem(where, group.raw)
        problem = problem or _autoscaler_v2_fields(where, group.raw, subject) or _group_name(where, group)
        if problem:
            return problem
    return _unique_names(subject)


def _bounds(where: str, group: WorkerGroup, *, autoscaling: bool) -> str:
    low, high = group.minimum, group.maximum
    if not autoscaling and (low is None or high is None):
        return f"{where}: minReplicas and maxReplicas are both needed without autoscaling"
    if low is not None and low < 0:
        return f"{where}.minReplicas: {low} is negative; use 0 or more"
    if high is not None and high < 0:
        return f"{where}.maxReplicas: {high} is negative; use 0 or more"
    if low is not None and high is not None and low > high:
        return f"{where}: minReplicas {low} is greater than maxReplicas {high}; lower the one or raise the other"
    if group.hosts < 0:
        return f"{where}.numOfHosts: {group.hosts} is negative; use 1, or 0 for a group without pods"
    return ""


def _autoscaler_v2_fields(where: str, group: Json, subject: _Subject) -> str:
    idle = group.get("idleTimeoutSeconds")
    if idle is not None and idle < 0:
        return f"{where}.idleTimeoutSeconds: {idle} is negative; use 0 or more"
    if idle is not None and not subject.v2:
        return f"{where}.idleTimeoutSeconds: only autoscaler v2 reads it; set spec.autoscalerOptions.version to v2"
    if group.get("priority"):
        version = subject.spec.get("rayVersion")
        if not versions.at_least(version, 2, 56):
            return f"{where}.priority: needs spec.rayVersion 2.56.0 or newer, not {version!r}"
        if not subject.v2:
            return f"{where}.priority: only autoscaler v2 reads it; set spec.autoscalerOptions.version to v2"
    return ""


def _group_name(where: str, group: WorkerGroup) -> str:
    if group.name == labels.HEAD_GROUP:
        return f"{where}.groupName: {group.name!r} is the head's; use another name"
    # It becomes a label's value and, in lower case, part of pod names.
    if syntax.label_value_problem("groupName", group.name) or not syntax.is_dns_subdomain(group.name.lower()):
        return f"{where}.groupName: {group.name!r} must be at most 63 letters, digits, '-' or '.', not '-' or '.' at an end"
    return ""


def _unique_names(subject: _Subject) -> str:
    counted = Counter(group.name for group in subject.groups)
    doubled = sorted(name for name, count in counted.items() if count > 1)
    if doubled:
        return (
            f"spec.workerGroupSpecs: several groups are called {', '.join(map(repr, doubled))}; give each its own name"
        )
    return ""


def _fault_tolerance(subject: _Subject) -> str:
    options = subject.spec.get("gcsFaultToleranceOptions")
    params = subject.head.get("rayStartParams") or {}
    if subject.annotations.get(labels.FT_ENABLED) and options is not None:
        return f"annotation {labels.FT_ENABLED} and spec.gcsFaultToleranceOptions exclude each other; remove the annotation"
    if not cluster_spec.fault_tolerant(subject.spec, subject.annotations) and "RAY_REDIS_ADDRESS" in subject.env:
        return "env RAY_REDIS_ADDRESS of the head needs fault tolerance; set spec.gcsFaultToleranceOptions.redisAddress"
    if options is not None:
        doubled = [name for name in ("REDIS_PASSWORD", "RAY_REDIS_ADDRESS") if name in subject.env]
        if params.get("redis-password") or doubled:
            what = ", ".join(doubled) or "rayStartParams redis-password"
            return f"{what} of the head: spec.gcsFaultToleranceOptions says this; remove it from the head"
        if subject.annotations.get(labels.EXTERNAL_STORAGE_NAMESPACE):
            return (
                f"annotation {labels.EXTERNAL_STORAGE_NAMESPACE}: "
                "use spec.gcsFaultToleranceOptions.externalStorageNamespace instead"
            )
    if params.get("redis-username") or "REDIS_USERNAME" in subject.env:
        return "redis-username, REDIS_USERNAME: use spec.gcsFaultToleranceOptions.redisUsername instead"
    return ""


def _suspended_groups(subject: _Subject) -> str:
    suspended = [group.name for group in subject.groups if group.suspended]
    if suspended and DELETION_POLICY_GATE not in subject.gates:
        return f"spec.workerGroupSpecs: suspend of group {suspended[0]!r} needs feature gate {DELETION_POLICY_GATE}"
    return ""


def _autoscaler(subject: _Subject) -> str:
    options = subject.spec.get("autoscalerOptions") or {}
    if not subject.autoscaling and (subject.env.get(_AUTOSCALER_V2) or {}).get("value") in _TRUE:
        return f"env {_AUTOSCALER_V2} of the head needs spec.enableInTreeAutoscaling: true"
    if subject.autoscaling:
        problem = _with_autoscaling(subject)
        if problem:
            return problem
    if (options.get("idleTimeoutSeconds") or 0) < 0:
        return "spec.autoscalerOptions.idleTimeoutSeconds: must be 0 or more"
    if any(entry.get("name") == "KUBERAY_GEN_AUTOSCALER_START_CMD" for entry in options.get("env") or ()):
        return "spec.autoscalerOptions.env: KUBERAY_GEN_AUTOSCALER_START_CMD is set by the operator; remove it"
    return ""


def _with_autoscaling(subject: _Subject) -> str:
    suspended = [group.name for group in subject.groups if group.suspended]
    if suspended:
        return f"spec.workerGroupSpecs: group {suspended[0]!r} cannot be suspended while autoscaling is on"
    if subject.version and _AUTOSCALER_V2 in subject.env:
        return f"env {_AUTOSCALER_V2} of the head: spec.autoscalerOptions.version says this; remove it from the head"
    if subject.version == "v2":
        places = [("spec.headGroupSpec", subject.head)]
        places += [(f"spec.workerGroupSpecs[{i}]", group.raw) for i, group in enumerate(subject.groups)]
        for where, group in places:
            policy = ((group.get("template") or {}).get("spec") or {}).get("restartPolicy")
            if policy not in (None, "", "Never"):
                return f"{where}.template.spec.restartPolicy: must be Never with autoscaler v2, not {policy}"
    return ""


def _gated(subject: _Subject) -> str:
    for field, gate in _GATED.items():
        if subject.spec.get(field) is not None and gate not in subject.gates:
            return f"spec.{field}: needs feature gate {gate}; turn it on or remove the field"
    return ""


def _auth(subject: _Subject) -> str:
    options = subject.spec.get("authOptions") or {}
    kubernetes_token = bool(options.get("enableK8sTokenAuth"))
    version = subject.spec.get("rayVersion")
    if options.get("mode") != "token":
        return "spec.authOptions.enableK8sTokenAuth: needs mode: token" if kubernetes_token else ""
    if not versions.at_least(version, 2, 52):
        return f"spec.authOptions: token authentication needs spec.rayVersion 2.52.0 or newer, not {version!r}"
    if kubernetes_token and not versions.at_least(version, 2, 55):
        return f"spec.authOptions.enableK8sTokenAuth: needs spec.rayVersion 2.55.0 or newer, not {version!r}"
    if kubernetes_token and options.get("secretName"):
        return "spec.authOptions.secretName: no Secret is used with enableK8sTokenAuth; remove one of the two"
    return ""


_CHECKS: tuple[Callable[[_Subject], str], ...] = (
    _head, _workers, _fault_tolerance, _suspended_groups, _autoscaler, _auth, _gated,
)  # fmt: skip
