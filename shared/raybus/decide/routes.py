"""Which objects belong to which tree, as data that each controller declares and the gateway serves. Pure.

See docs/contracts.md, "Routes" and "Projection".
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from raybus.domain.kinds import Kind


class Via(StrEnum):
    ROOT = "root"  # the object is the root itself
    LABEL = "label"  # a label's value is the root's name
    OWNER = "owner"  # the controller ownerReference names the root
    CLUSTER = "cluster"  # label ray.io/cluster names a RayCluster that belongs to the root (one hop)


@dataclass(frozen=True, slots=True)
class Projection:
    """What of an object's body leaves Kubernetes. `paths` are dotted, `[]` steps into a list; none means the whole object.

    metadata without managedFields and last-applied, apiVersion and kind are always in.
    """

    name: str
    paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """`kind` objects that match `selector` (a Kubernetes label selector) belong to a tree of `root_kind`, found by `via`.

    `label` is the key whose value is the root's name (Via.LABEL); `label_equals` must hold besides, such as
    ("ray.io/originated-from-crd", "RayJob").
    """

    root_kind: str
    kind: Kind
    via: Via
    projection: Projection
    selector: str = ""
    label: str = ""
    label_equals: tuple[tuple[str, str], ...] = ()


FULL = Projection("full")
POD_STATUS = Projection(
    "pod.status",
    (
        "status",
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.containers[].name",
        "spec.initContainers[].name",
    ),
)
