"""Wire types of ray.io: validation of given objects, defaults, and the CustomResourceDefinitions.

Pure. `parse(kind, obj)` gives a typed view of a JSON object or raises InvalidObject, which names each field at fault. The given
object stays what is copied and written; a view is only read.
"""

from __future__ import annotations

from raybus.api import v1alpha1
from raybus.api.meta import InvalidObject, Json, Problem, Root
from raybus.api.raycluster import RayCluster
from raybus.api.raycronjob import RayCronJob
from raybus.api.rayjob import RayJob
from raybus.api.rayservice import RayService
from raybus.domain.kinds import Kind

__all__ = ["InvalidObject", "Problem", "RayCluster", "RayCronJob", "RayJob", "RayService", "parse"]

_TYPES: dict[tuple[str, str], type[Root]] = {
    ("ray.io/v1", "RayCluster"): RayCluster,
    ("ray.io/v1", "RayJob"): RayJob,
    ("ray.io/v1", "RayService"): RayService,
    ("ray.io/v1", "RayCronJob"): RayCronJob,
    ("ray.io/v1alpha1", "RayCluster"): v1alpha1.RayCluster,
    ("ray.io/v1alpha1", "RayJob"): v1alpha1.RayJob,
    ("ray.io/v1alpha1", "RayService"): v1alpha1.RayService,
}


def parse(kind: Kind | str, obj: Json) -> Root:
    """The typed view of `obj`, which should be of `kind`; its apiVersion chooses between v1 and v1alpha1.

    Raises InvalidObject. Where the kind is known to the caller, `RayJob.parse(obj)` gives the precise type.
    """
    name = kind if isinstance(kind, str) else kind.kind
    version = obj.get("apiVersion")
    problems = []
    if obj.get("kind") != name:
        problems.append(Problem("kind", f"must be {name}, not {obj.get('kind')!r}"))
    if (version, name) not in _TYPES:
        known = sorted(api for api, of in _TYPES if of == name)
        problems.append(Problem("apiVersion", f"must be {' or '.join(known) or 'one of ray.io'}, not {version!r}"))
    if problems:
        raise InvalidObject(name, str((obj.get("metadata") or {}).get("name", "")), tuple(problems))
    return _TYPES[str(version), name].parse(obj)
