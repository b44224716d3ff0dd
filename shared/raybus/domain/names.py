"""Names of everything that is made for a RayCluster, as pure functions of what is stored.

Pure. What may live here: how a name is cut, where it comes from. The lengths and the ends that are kept are interface
facts: kubectl, the autoscaler and users compute the same names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from raybus.domain import identity, labels

MAX_CLUSTER_NAME = 53
DEFAULT_CLUSTER_DOMAIN = "cluster.local"
_KEPT = 50  # characters that leave room for "-worker-" and five more in a name of 63
_LABEL = 63
_ROUTE = 51
_PUNCTUATION = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")

NodeType = Literal["head", "worker"]


def pod_name(prefix: str, node_type: NodeType, *, generate: bool) -> str:
    """First 50 characters of prefix, "-", node type; with a trailing "-" where the API server appends to it."""
    return (f"{prefix[:_KEPT]}-{node_type}" + ("-" if generate else "")).lower()


def check_name(name: str) -> str:
    """The last 50 characters; a digit or punctuation in front is replaced by "r", so that it is a valid DNS label."""
    name = name[-_KEPT:]
    if name[:1].isdigit():
        name = "r" + name[1:]
    return "r" + name[1:] if name[:1] in _PUNCTUATION else name


def check_label(value: str) -> str:
    """The last 63 characters; punctuation in front is replaced by "r"."""
    value = value[-_LABEL:]
    return "r" + value[1:] if value[:1] in _PUNCTUATION else value


def check_route_name(name: str, namespace: str) -> str:
    """An OpenShift route's name and its namespace share one DNS label."""
    return check_name(name[: max(_ROUTE - len(namespace), 0)])


def head_service_name(cluster_name: str, cluster_spec: Mapping[str, Any]) -> str:
    """The name given in `headGroupSpec.headService`, else `<cluster>-head-svc`."""
    given = ((cluster_spec.get("headGroupSpec") or {}).get("headService") or {}).get("metadata") or {}
    return str(given.get("name") or f"{cluster_name}-head-svc")


def service_fqdn(service_name: str, namespace: str, cluster_domain: str = DEFAULT_CLUSTER_DOMAIN) -> str:
    return f"{service_name}.{namespace}.svc.{cluster_domain}"


def identifier(cluster_name: str, node_type: NodeType) -> str:
    """Value of the label `ray.io/identifier`."""
    return check_label(f"{cluster_name}-{node_type}")


def head_ingress_name(cluster_name: str) -> str:
    return check_name(f"{cluster_name}-head-ingress")


def auth_secret_name(cluster_name: str) -> str:
    """The Secret that is made for token authentication where the user names none."""
    return check_name(cluster_name)


def autoscaler_account_name(cluster_name: str, cluster_spec: Mapping[str, Any]) -> str:
    """The head's service account with autoscaling: the template's, else one named like the cluster."""
    pod = ((cluster_spec.get("headGroupSpec") or {}).get("template") or {}).get("spec") or {}
    return check_name(str(pod.get("serviceAccountName") or cluster_name))


def group_prefix(cluster_name: str, group: str) -> str:
    """What a pod's name is made of besides its node type: the cluster, and for workers the group."""
    return cluster_name if group == labels.HEAD_GROUP else f"{cluster_name}-{group}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a pod stands: its group, its slot in the group, its host in a replica of several hosts."""

    uid: str  # of the RayCluster
    group: str
    slot: int
    host: int = 0


def child_names(prefix: str, place: Place, salt: str = "") -> Iterator[str]:
    """The names that a pod of this place may have, in the order in which they are tried; without end.

    `prefix` is the generateName. The first salt is the given one, the next ones are numbered.
    """
    parts = (place.uid, place.group, place.slot, place.host, salt)
    yield prefix + identity.suffix(*parts)
    number = 1
    while True:
        yield prefix + identity.suffix(*parts, number)
        number += 1


def child_name(prefix: str, place: Place, salt: str = "", taken: Collection[str] = ()) -> str:
    """The first name of this place that is not taken. `taken`: names of existing pods and of `workersToDelete`."""
    return next(name for name in child_names(prefix, place, salt) if name not in taken)
