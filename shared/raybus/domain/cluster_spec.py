"""Reading a RayCluster's spec: worker groups, how many pods are wanted, what is switched on.

Pure. The spec stays the dict that Kubernetes gave; these are views of it with the defaults filled in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from raybus.domain import labels, resources
from raybus.domain.resources import Desired

Json = Mapping[str, Any]

MAX_INT32 = 2147483647
MANAGED_BY_US = "ray.io/kuberay-operator"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerGroup:
    """One entry of `workerGroupSpecs`. Numbers not given are None; `raw` is the entry as given."""

    name: str
    replicas: int | None
    minimum: int | None
    maximum: int | None
    hosts: int
    suspended: bool
    to_delete: tuple[str, ...]
    raw: Json

    @property
    def template(self) -> Json:
        template: Json = self.raw.get("template") or {}
        return template

    @property
    def wanted_replicas(self) -> int:
        """`replicas` within its bounds; none given means the minimum. The maximum wins over the minimum."""
        low = self.minimum or 0
        high = MAX_INT32 if self.maximum is None else self.maximum
        return min(max(low if self.replicas is None else self.replicas, low), high)

    @property
    def wanted_pods(self) -> int:
        return 0 if self.suspended else self.wanted_replicas * self.hosts


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers of worker pods over all groups that are not suspended."""

    desired: int
    minimum: int
    maximum: int


def worker_groups(spec: Json) -> tuple[WorkerGroup, ...]:
    return tuple(_group(raw) for raw in spec.get("workerGroupSpecs") or ())


def _group(raw: Json) -> WorkerGroup:
    hosts = raw.get("numOfHosts")
    return WorkerGroup(
        name=str(raw.get("groupName", "")),
        replicas=raw.get("replicas"),
        minimum=raw.get("minReplicas"),
        maximum=raw.get("maxReplicas"),
        hosts=1 if hosts is None else int(hosts),
        suspended=bool(raw.get("suspend")),
        to_delete=tuple((raw.get("scaleStrategy") or {}).get("workersToDelete") or ()),
        raw=raw,
    )


def counts(groups: Sequence[WorkerGroup]) -> Counts:
    """Pods wanted, least and most; the most saturates at the largest 32-bit number."""
    running = [group for group in groups if not group.suspended]
    highest = sum((MAX_INT32 if group.maximum is None else group.maximum) * group.hosts for group in running)
    return Counts(
        desired=sum(group.wanted_pods for group in running),
        minimum=sum((group.minimum or 0) * group.hosts for group in running),
        maximum=min(highest, MAX_INT32),
    )


def desired_resources(spec: Json, groups: Sequence[WorkerGroup]) -> Desired:
    """Head and workers together. `replicas` count as written, not within their bounds: the columns show the request."""
    total = resources.of_pod((spec.get("headGroupSpec") or {}).get("template") or {})
    for group in groups:
        if not group.suspended:
            total = total.plus(resources.of_pod(group.template), group.hosts * (group.replicas or 0))
    return total


def managed_elsewhere(spec: Json) -> bool:
    """Whether another controller (MultiKueue) was told to look after the object."""
    manager = spec.get("managedBy")
    return manager is not None and manager != MANAGED_BY_US


def autoscaling(spec: Json) -> bool:
    return bool(spec.get("enableInTreeAutoscaling"))


def autoscaler_version(spec: Json) -> str:
    """`v1`, `v2`, or empty: Ray decides."""
    return str((spec.get("autoscalerOptions") or {}).get("version") or "")


def token_auth(spec: Json) -> bool:
    return (spec.get("authOptions") or {}).get("mode") == "token"


def kubernetes_token_auth(spec: Json) -> bool:
    """Whether Ray asks Kubernetes about tokens, so that pods show their service account's."""
    return token_auth(spec) and bool(spec["authOptions"].get("enableK8sTokenAuth"))


def makes_auth_secret(spec: Json) -> bool:
    """Whether a Secret with a token has to be made: asked for, and none of the user's named."""
    options = spec.get("authOptions")
    return options is not None and not (
        options.get("mode") == "disabled" or options.get("enableK8sTokenAuth") or options.get("secretName")
    )


def fault_tolerant(spec: Json, annotations: Mapping[str, str]) -> bool:
    """Whether the GCS keeps its state outside the head, by options or by the older annotation."""
    return spec.get("gcsFaultToleranceOptions") is not None or annotations.get(labels.FT_ENABLED, "").lower() == "true"


def origin(cluster_labels: Mapping[str, str]) -> str:
    """Kind of what the cluster was made for: RayJob, RayService, else RayCluster."""
    kind = cluster_labels.get(labels.ORIGINATED_FROM_CRD, "")
    return kind if kind in ("RayJob", "RayService") else "RayCluster"
