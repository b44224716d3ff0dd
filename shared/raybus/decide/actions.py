"""What a controller may want done: one small frozen class per verb and object.

Pure. An action says what, under which precondition, and why; the executor (raybus.runtime.executor) is the only place that
carries it out. A service lists the classes it may use in its act.py; that list generates its rights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from raybus.domain import kinds
from raybus.domain.kinds import Kind

Json = Mapping[str, Any]
Propagation = Literal["Background", "Foreground", "Orphan"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Announce:
    """Events about an action, on the object the pass is about; an empty reason means no event.

    `note` says what was done; of a failure the server's words follow it.
    """

    action: str
    done: str = ""
    failed: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """`reason` says in words why; it goes to history, log and event. `marker` names the failure for status computation."""

    reason: str
    announce: Announce | None = None
    marker: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateObject(Action):
    """Create `body`. "Already exists" with our owner is success; with another owner it is refused."""

    kind: ClassVar[Kind]
    body: Json

    @property
    def namespace(self) -> str:
        return str(self.body["metadata"]["namespace"])

    @property
    def name(self) -> str:
        return str(self.body["metadata"]["name"])


@dataclass(frozen=True, slots=True, kw_only=True)
class ExistingObject(Action):
    """Something done to an object that was seen; `uid` is always a precondition."""

    kind: ClassVar[Kind]
    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteObject(ExistingObject):
    propagation: Propagation = "Background"
    resource_version: str | None = None
    grace_seconds: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchObject(ExistingObject):
    """Merge patch of metadata or spec, under the resourceVersion it was decided on."""

    patch: Json
    resource_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchStatus(ExistingObject):
    """Bring the status from `previous` (as read) to `status`: the executor sends the difference under `resource_version`."""

    status: Json
    previous: Json
    resource_version: str


class CreatePod(CreateObject):
    kind = kinds.POD


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletePod(DeleteObject):
    """`group` is the pod's value of label ray.io/group, for what is said about the deletion."""

    kind: ClassVar[Kind] = kinds.POD
    group: str = ""


class CreateService(CreateObject):
    kind = kinds.SERVICE


class PatchService(PatchObject):
    kind = kinds.SERVICE


class CreateServiceAccount(CreateObject):
    """One that exists already is success, whoever made it: users prepare accounts of their own."""

    kind = kinds.SERVICE_ACCOUNT


class CreateRole(CreateObject):
    kind = kinds.ROLE


class CreateRoleBinding(CreateObject):
    kind = kinds.ROLE_BINDING


class CreateIngress(CreateObject):
    kind = kinds.INGRESS


class CreateAuthSecret(CreateObject):
    """Create the Secret with a token drawn at random; one that exists already is success and keeps its token."""

    kind = kinds.SECRET


class CreateRayCluster(CreateObject):
    kind = kinds.RAYCLUSTER


class DeleteRayCluster(DeleteObject):
    kind = kinds.RAYCLUSTER


class PatchRayClusterStatus(PatchStatus):
    kind = kinds.RAYCLUSTER


class CreateJob(CreateObject):
    kind = kinds.JOB


class PatchJob(PatchObject):
    kind = kinds.JOB


class DeleteJob(DeleteObject):
    kind = kinds.JOB


class PatchRayJob(PatchObject):
    kind = kinds.RAYJOB


class DeleteRayJob(DeleteObject):
    kind = kinds.RAYJOB


class PatchRayJobStatus(PatchStatus):
    kind = kinds.RAYJOB


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordEvent(Action):
    """An event on `regarding` that no action caused (a refused spec, say). Equal ones within ten minutes are sent once.

    With `rests` it tells of a state, not of a happening: it is sent once per version (generation) of `regarding`.
    """

    regarding: Json
    type: Literal["Normal", "Warning"]
    event_reason: str
    action: str
    note: str
    rests: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RayEndpoint:
    """Where a cluster's dashboard is: `address` is host:port without scheme; `service` allows the API server's proxy."""

    address: str
    namespace: str
    service: str
    auth_secret: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitRayJob(Action):
    """POST /api/jobs/ with `request` (Ray's own field names); a submission of this id that exists already is success."""

    endpoint: RayEndpoint
    submission_id: str
    request: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRayJob(Action):
    """Ask Ray to stop the submission; one that ended already, or is unknown, is success."""

    endpoint: RayEndpoint
    submission_id: str
    deadline_seconds: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconsider(Action):
    """End the pass here and look again at once: what follows depends on what earlier steps did."""

    body: Json = field(default_factory=dict)
